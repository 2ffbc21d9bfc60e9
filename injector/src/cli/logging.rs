//! Logging to standard error. Lines with target `audit` are written at every level. Each line has the fields of the
//! spans around it, such as the config that is reconciled.

use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::settings::{LogFormat, LogLevel};

/// The target of the audit trail.
const AUDIT_TARGET: &str = "audit";

/// The target of the Kubernetes client. If it can't parse an answer of the API server, it logs the answer as a warning,
/// with Secrets and the environments of pods.
const CLIENT_TARGET: &str = "kube_client";

/// Starts logging.
pub(super) fn start(level: LogLevel, format: LogFormat) {
    subscriber(level, format, std::io::stderr).init();
}

fn subscriber<W>(level: LogLevel, format: LogFormat, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let filter = Targets::new().with_default(level);
    let filter = filter.with_target(AUDIT_TARGET, Level::INFO).with_target(CLIENT_TARGET, Level::ERROR);
    let builder = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(writer);
    match format {
        // The list of spans includes the innermost span.
        LogFormat::Json => Box::new(builder.json().flatten_event(true).with_current_span(false).finish().with(filter)),
        LogFormat::Text => Box::new(builder.with_ansi(false).finish().with(filter)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_level_switches_the_audit_trail_off() {
        for level in <LogLevel as clap::ValueEnum>::value_variants() {
            let lines = Lines::default();
            let writer = lines.clone();
            tracing::subscriber::with_default(subscriber(*level, LogFormat::Json, move || writer.clone()), || {
                let _span = tracing::error_span!("review", namespace = "shops").entered();
                tracing::info!(target: "audit", config = "shop", "version chosen");
                tracing::trace!("never");
            });
            let bytes = lines.0.lock().unwrap().clone();
            let line: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!((&line["target"], &line["config"]), (&json!("audit"), &json!("shop")), "{level:?}");
            assert_eq!(line["spans"][0]["namespace"], "shops", "{level:?}");
        }
    }

    /// The client of the API server reads an answer that it can't parse.
    #[test]
    fn no_level_shows_an_answer_of_the_api_server() {
        let answer = json!({"data": {"key": "aHVudGVyMg=="}, "metadata": {"name": "s", "managedFields": [{"time": "10000-01-01T00:00:00Z"}]}});
        let answered = tower::service_fn(move |_: hyper::Request<kube::client::Body>| {
            let body = http_body_util::Full::new(bytes::Bytes::from(answer.to_string()));
            async { Ok::<_, std::convert::Infallible>(hyper::Response::new(body)) }
        });
        for level in <LogLevel as clap::ValueEnum>::value_variants() {
            let lines = Lines::default();
            let writer = lines.clone();
            tracing::subscriber::with_default(subscriber(*level, LogFormat::Text, move || writer.clone()), || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let secrets = async {
                    let client = kube::Client::new(answered.clone(), "ns");
                    kube::Api::<k8s_openapi::api::core::v1::Secret>::default_namespaced(client).get("s").await
                };
                assert!(matches!(runtime.block_on(secrets), Err(kube::Error::SerdeError(_))));
            });
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("aHVudGVyMg"), "{level:?}: {text}");
        }
    }

    /// Returns the log line of a warning in the span of a reconcile.
    fn logged(format: LogFormat) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing::subscriber::with_default(subscriber(LogLevel::Error, format, move || writer.clone()), || {
            let _span = tracing::error_span!("reconcile", namespace = "shops", config = "shop").entered();
            tracing::error!(error = "refused", "reconcile failed; retrying");
            tracing::warn!("not at this level");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_carry_the_fields_of_their_span_at_every_level() {
        let line: Value = serde_json::from_str(&logged(LogFormat::Json)).unwrap();
        assert_eq!(line["spans"], json!([{"name": "reconcile", "namespace": "shops", "config": "shop"}]));
        assert_eq!((&line["message"], &line["error"]), (&json!("reconcile failed; retrying"), &json!("refused")));
        let text = logged(LogFormat::Text);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("reconcile{namespace=\"shops\" config=\"shop\"}:"), "{text}");
        assert!(text.contains("reconcile failed; retrying error=\"refused\""), "{text}");
    }
}
