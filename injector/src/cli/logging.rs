//! Logging to standard error. Each line carries the fields of the spans around it, such as the config that is reconciled.

use tracing::{Level, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::settings::{LogFormat, LogLevel};

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
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(writer);
    match format {
        // The list of spans includes the innermost.
        LogFormat::Json => Box::new(builder.json().flatten_event(true).with_current_span(false).finish()),
        LogFormat::Text => Box::new(builder.with_ansi(false).finish()),
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

    /// What is logged by a warning in the span of a reconcile.
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
