//! Messages about a kubeconfig that leads to no cluster, without its contents or the output of its programs, which are
//! secrets.

use kube::client::AuthError;
use kube::config::{InferConfigError, KubeconfigError};
use nudge_protocol::error_chain::{message, without_os_code};

/// Returns the message if no cluster is known. The message names the missing part of the kubeconfig, a likelier mistake
/// than the pod's own account.
pub fn not_found_message(error: &InferConfigError) -> String {
    let source = std::error::Error::source(error).and_then(|error| error.downcast_ref());
    format!("no cluster is known: {}", source.map_or_else(|| message(error), kubeconfig_fault))
}

/// Returns why a kubeconfig can't be used.
pub fn kubeconfig_fault(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, file) => {
            format!("{}: {}", file.display(), without_os_code(&error.to_string()))
        }
        // The other lines quote the file, and with it secrets.
        KubeconfigError::Parse(error) => {
            let text = error.to_string();
            format!("it is not a kubeconfig: {}", text.lines().next().unwrap_or_default().trim_start_matches("error: "))
        }
        KubeconfigError::CurrentContextNotSet => {
            "it names no current context; choose one with --context or kubectl config use-context".to_owned()
        }
        KubeconfigError::LoadContext(name) => format!("there is no context {name}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("there is no cluster {name}, which the context names"),
        other => message(other),
    }
}

/// Returns why a kubeconfig that could be read makes no client.
pub fn client_fault(error: &kube::Error) -> String {
    let program = "the program that the kubeconfig names for credentials";
    match error {
        // The library shows the program's output and its arguments.
        kube::Error::Auth(AuthError::AuthExecRun { out, .. }) => {
            format!("{program} has failed ({}); kubectl with the same kubeconfig shows its output", out.status)
        }
        kube::Error::Auth(AuthError::AuthExecParse(_)) => format!("{program} prints none"),
        other => message(other),
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_fault_is_named_and_what_stands_around_it_is_not() {
        let error = Kubeconfig::from_yaml("users:\n- token: hunter2\n  name: [\n").unwrap_err();
        assert!(error.to_string().contains("hunter2"), "the library keeps it to itself: {error}");
        let fault = kubeconfig_fault(&error);
        assert!(fault.starts_with("it is not a kubeconfig: line ") && !fault.contains("hunter2"), "{fault}");
        assert_eq!(fault.lines().count(), 1, "{fault}");
    }

    #[test]
    fn what_a_program_for_credentials_prints_is_not_shown() {
        for (script, what) in [
            (
                "echo hunter2; exit 3",
                "the program that the kubeconfig names for credentials has failed (exit status: 3); kubectl with the same kubeconfig shows its output",
            ),
            ("echo '[hunter2'", "the program that the kubeconfig names for credentials prints none"),
        ] {
            let user = serde_json::json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
                "env": [{"name": "PIN", "value": "hunter2"}], "interactiveMode": "Never",
            }});
            let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
            config.auth_info = serde_json::from_value(user).unwrap();
            let error = kube::Client::try_from(config).err().unwrap();
            assert!(error.to_string().contains("hunter2") || format!("{error:?}").contains("hunter2"), "{error:?}");
            assert_eq!(client_fault(&error), what);
        }
    }
}
