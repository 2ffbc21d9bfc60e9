//! How a command ends that did not do what it was asked for: a sentence, and a code for scripts.

use kube::core::Status;
use nudge_protocol::error_chain::{message, plain};

/// It failed.
pub(super) const FAILED: u8 = 1;
/// It was called in a wrong way; clap's own code.
pub(super) const USAGE: u8 = 2;
/// The rollout that was waited for failed, or was rolled back.
pub(super) const ROLLOUT_FAILED: u8 = 3;
/// The rollout was still on when the time was up; the code of timeout(1).
pub(super) const TIMED_OUT: u8 = 124;
/// Somebody pressed Ctrl-C; the code that shells give.
pub(super) const INTERRUPTED: u8 = 130;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The exit code.
    pub(super) code: u8,
    /// A sentence with the way out.
    pub(super) message: String,
    /// The HTTP status that the API server answered with, or 0.
    pub(super) status: u16,
}

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), status: 0 }
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, ..Self::new(message) }
    }

    pub(super) fn rollout(message: impl Into<String>) -> Self {
        Self { code: ROLLOUT_FAILED, ..Self::new(message) }
    }

    pub(super) fn timed_out(message: impl Into<String>) -> Self {
        Self { code: TIMED_OUT, ..Self::new(message) }
    }

    pub(super) fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, ..Self::new(message) }
    }

    /// Of a call of the API server that was to do `what`.
    pub(super) fn of(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self { status: status.code, ..Self::new(refusal(what, status)) },
            // Libraries put their own names around what has happened.
            kube::Error::Service(_) | kube::Error::HyperError(_) => Self::new(format!(
                "{what}: no answer from the API server: {}; check --context, --kubeconfig, and whether it can be reached from here",
                root(error)
            )),
            other => Self::new(format!("{what}: {}", message(other))),
        }
    }
}

fn refusal(what: &str, status: &Status) -> String {
    let message = status.message.trim_end_matches('.');
    // A path that the server does not serve, in place of an object that it does not have.
    if status.code == 404 && message.contains("could not find the requested resource")
        || message.contains("page not found")
    {
        return format!("{what}: this cluster does not know VersionedConfigs; install Nudge first");
    }
    match status.code {
        401 => format!("{what}: {message}; log in again, or choose another --context"),
        _ if message.contains("admission webhook") => format!("{what}: {}", without_webhook(message)),
        403 if message.contains("resource \"namespaces\"") => format!("{what}: {message}; ask an admin of the cluster"),
        403 => format!("{what}: {message}; ask the namespace's admin for that right"),
        _ => format!("{what}: {message}"),
    }
}

/// Our own refusals are whole sentences without the API server's introduction; those of others are not.
fn without_webhook(message: &str) -> &str {
    message
        .split_once(".nudge.dev\" denied the request: ")
        .filter(|(before, _)| before.starts_with("admission webhook"))
        .map_or(message, |(_, refusal)| refusal)
}

/// The innermost cause.
fn root(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    plain(&last.to_string())
}

/// For [`Result::map_err`].
pub(super) fn doing(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Failure {
    let what = what.into();
    move |error| Failure::of(&what, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn what_only_libraries_know_is_left_out() {
        let refused = std::io::Error::from_raw_os_error(111);
        let failure = Failure::of("reading config shop", &kube::Error::Service(Box::new(refused)));
        let desired = "reading config shop: no answer from the API server: Connection refused; check --context";
        assert!(failure.message.starts_with(desired), "{}", failure.message);
        let ours = api(403, "admission webhook \"configs-delete.nudge.dev\" denied the request: it is in use.");
        assert_eq!(Failure::of("deleting", &ours).message, "deleting: it is in use");
    }

    #[test]
    fn refusals_name_the_way_out() {
        let of = |code, message| Failure::of("reading config shop", &api(code, message)).message;
        assert_eq!(
            of(403, "configmaps is forbidden"),
            "reading config shop: configmaps is forbidden; ask the namespace's admin for that right"
        );
        assert!(of(404, "the server could not find the requested resource").contains("install Nudge"));
        assert!(of(404, "404 page not found").contains("install Nudge"));
        assert_eq!(
            of(403, "admission webhook \"x\" denied: no"),
            "reading config shop: admission webhook \"x\" denied: no"
        );
        assert_eq!(Failure::of("x", &api(409, "conflict")).status, 409);
    }
}
