//! The failure of a command: a message for people, and an exit code for scripts.

use std::path::Path;
use std::process::ExitCode;

use kube::core::Status;
use nudge_protocol::error_chain::{message, without_os_code};

/// The exit codes, which the help and KUBECTL.md list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command failed or was refused.
    Failed = 1,
    /// The usage was wrong; clap's own code.
    Usage = 2,
    /// The rollout that the command waited for failed or was rolled back.
    RolloutFailed = 3,
    /// The rollout was not finished at the timeout; the code of timeout(1).
    TimedOut = 124,
    /// The user pressed Ctrl-C; the code that shells give.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// The message: the object, its problem, and the remedy.
    pub(crate) message: String,
    /// The HTTP status that the API server answered with, or 0.
    pub(crate) status: u16,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::with(Exit::Failed, message)
    }

    pub(crate) fn with(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), status: 0 }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::with(Exit::Usage, message)
    }

    /// Returns the failure of a call of the API server; `what` names the attempt.
    pub(crate) fn of(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self { status: status.code, ..Self::new(refusal(what, status)) },
            // Libraries wrap the cause in errors with names of their own.
            kube::Error::Service(_) | kube::Error::HyperError(_) => Self::new(format!(
                "{what}: the API server does not answer: {}; check --context, --kubeconfig, proxies and the network",
                root_cause(error)
            )),
            error => Self::new(format!("{what}: {}", message(error))),
        }
    }
}

fn refusal(what: &str, status: &Status) -> String {
    let message = status.message.trim_end_matches('.');
    // Messages with this text report a path that the API server does not serve, not a missing object.
    if status.code == 404 && message.contains("could not find the requested resource")
        || message.contains("page not found")
    {
        return format!("{what}: this cluster does not know VersionedConfigs; install Nudge first");
    }
    match status.code {
        401 => format!("{what}: {message}; log in again, or choose another --context"),
        _ if message.contains("admission webhook") => format!("{what}: {}", without_webhook(message)),
        // A user who binds a role needs all rights of the role. The message lists them at such length that it hides the
        // rest.
        403 if message.contains("attempting to grant RBAC permissions not currently held") => {
            format!(
                "{what}: you do not have the rights that the role has, and may not bind it; ask an admin of the cluster"
            )
        }
        403 if ["\"namespaces\"", "\"rolebindings\"", "\"roles\""]
            .iter()
            .any(|resource| message.contains(&format!("resource {resource}"))) =>
        {
            format!("{what}: {message}; ask an admin of the cluster")
        }
        403 => format!("{what}: {message}; ask the namespace's admin for that right"),
        _ => format!("{what}: {message}"),
    }
}

/// Removes the API server's introduction from a refusal by a webhook of Nudge, which is complete without it.
fn without_webhook(message: &str) -> &str {
    message
        .split_once(".nudge.dev\" denied the request: ")
        .filter(|(before, _)| before.starts_with("admission webhook"))
        .map_or(message, |(_, refusal)| refusal)
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    without_os_code(&last.to_string())
}

/// Returns the message about a file that can't be read.
pub(crate) fn file_message(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {}", path.display(), without_os_code(&error.to_string()))
}

/// Returns a conversion of errors for [`Result::map_err`]; `what` names the attempt.
pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Failure {
    let action = what.into();
    move |error| Failure::of(&action, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn messages_leave_out_the_names_of_libraries() {
        let refused = std::io::Error::from_raw_os_error(111);
        let failure = Failure::of("reading config shop", &kube::Error::Service(Box::new(refused)));
        let expected = "reading config shop: the API server does not answer: Connection refused; check --context";
        assert!(failure.message.starts_with(expected), "{}", failure.message);
        let ours = api(403, "admission webhook \"configs-delete.nudge.dev\" denied the request: it is in use.");
        assert_eq!(Failure::of("deleting", &ours).message, "deleting: it is in use");
    }

    #[test]
    fn refusals_say_what_to_do() {
        let message_of = |code, message| Failure::of("reading config shop", &api(code, message)).message;
        assert_eq!(
            message_of(403, "configmaps is forbidden"),
            "reading config shop: configmaps is forbidden; ask the namespace's admin for that right"
        );
        let bound = message_of(
            403,
            "rolebindings \"x\" is forbidden: user \"jane\" is attempting to grant RBAC permissions not currently held:\n{A}",
        );
        assert!(bound.ends_with("may not bind it; ask an admin of the cluster") && !bound.contains("{A}"), "{bound}");
        assert!(
            message_of(403, "User \"jane\" cannot patch resource \"rolebindings\"")
                .ends_with("ask an admin of the cluster")
        );
        assert!(message_of(404, "the server could not find the requested resource").contains("install Nudge"));
        assert!(message_of(404, "404 page not found").contains("install Nudge"));
        assert_eq!(
            message_of(403, "admission webhook \"x\" denied: no"),
            "reading config shop: admission webhook \"x\" denied: no"
        );
        assert_eq!(Failure::of("x", &api(409, "conflict")).status, 409);
    }
}
