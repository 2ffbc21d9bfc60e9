//! How a command ends that did not do what it was asked for: a sentence, and a code for scripts.

use kube::core::Status;

/// It failed.
pub(super) const FAILED: u8 = 1;
/// It was called in a wrong way; clap's own code.
pub(super) const USAGE: u8 = 2;
/// The rollout that was waited for failed, or was rolled back.
pub(super) const ROLLOUT_FAILED: u8 = 3;
/// The rollout was still on when the time was up; the code of timeout(1).
pub(super) const TIMED_OUT: u8 = 124;

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

    /// Of a call of the API server that was to do `what`.
    pub(super) fn of(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self { status: status.code, ..Self::new(refusal(what, status)) },
            other => Self::new(format!(
                "{what}: {}; check --context, --kubeconfig, and whether the API server can be reached from here",
                causes(other)
            )),
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
        403 if message.contains("admission webhook") => format!("{what}: {message}"),
        403 => format!("{what}: {message}; ask the namespace's admin for that right"),
        _ => format!("{what}: {message}"),
    }
}

/// The error with its causes; libraries often say a cause in the error already.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
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
    fn a_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] std::io::Error);
        let of = |text| causes(&Outer(text, std::io::Error::other("it is closed")));
        assert_eq!(of("reading: it is closed"), "reading: it is closed");
        assert_eq!(of("reading"), "reading: it is closed");
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
