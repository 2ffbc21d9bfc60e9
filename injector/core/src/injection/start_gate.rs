//! The gate that holds the pod's containers back until the agent has their configuration.

use serde_json::{Value, json};

use super::facts::Features;
use super::user_pod::UserPod;

/// The time in seconds that one probe waits. The probe ends at once when the configuration is there; its failure is an
/// Event with the reason.
const PROBE_SECONDS: u32 = 20;

/// The gate that holds the pod's containers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// A hook of the agent's container, which fails after a time, so that the kubelet starts the agent again. A hook
    /// without an end would keep the pod from being deleted.
    Hook,
    /// A startup probe that never counts as failed: if a restart counts as a failure of the pod, as in a Job, the agent
    /// is not restarted.
    Probe,
}

impl Gate {
    pub(super) fn of(pod: &UserPod, features: Features) -> Self {
        if features.native_sidecars && pod.restart_policy() != "Always" { Self::Probe } else { Self::Hook }
    }

    /// Adds the gate to the agent's container.
    pub(super) fn add_to(self, agent: &mut Value) {
        match self {
            Self::Hook => {
                agent["lifecycle"] = json!({"postStart": {"exec": {"command": ["/nudge-agent", "wait-ready"]}}});
            }
            Self::Probe => {
                // Events report the wait: a termination message would outlast it.
                let timeout = format!("--timeout={PROBE_SECONDS}s");
                let command = ["/nudge-agent", "wait-ready", &timeout, "--termination-log=/dev/null"];
                agent["startupProbe"] = json!({
                    "exec": {"command": command},
                    "periodSeconds": 1,
                    "timeoutSeconds": PROBE_SECONDS + 10,
                    "failureThreshold": i32::MAX,
                });
            }
        }
    }
}
