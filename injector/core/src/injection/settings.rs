//! Settings of an installation, the same for every pod.

use super::quantity::Quantity;
use super::values;

/// How an installation injects pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectionSettings {
    /// Image of the agent: `/nudge-agent`, for any user.
    pub agent_image: String,
    /// Image of the agent whose file has the capability `cap_kill`, for signals to processes of any user.
    pub agent_kill_image: String,
    /// `Always`, `IfNotPresent` or `Never`; where absent, Kubernetes decides by the image's tag.
    pub image_pull_policy: Option<String>,
    /// Secrets with which the images are pulled, added to the pod's own. They must exist in the pod's namespace.
    pub image_pull_secrets: Vec<String>,
    /// The hub's URL, for agents.
    pub hub: String,
    /// Names of containers of other injectors: they get nothing.
    pub foreign_containers: Vec<String>,
    /// Whether a pod may name them all the same.
    pub foreign_containers_allowed: bool,
    /// What agents get where their pods do not say it.
    pub agent_defaults: AgentDefaults,
    /// What becomes of pods with labels or annotations of Nudge's that this version does not know.
    pub unknown_keys: UnknownKeys,
}

/// The treatment of pods with labels or annotations of Nudge's that this version does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownKeys {
    /// Pods with unknown annotations are refused.
    #[default]
    Refuse,
    /// Pods with unknown annotations are injected, with a warning.
    Warn,
}

/// What agents get where the annotations of their pods do not say it. Nothing: what this version has for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentDefaults {
    pub(super) cpu: Option<Quantity>,
    pub(super) memory: Option<Quantity>,
    pub(super) port: Option<u16>,
    pub(super) start_timeout: Option<String>,
}

impl AgentDefaults {
    /// Sets the CPU request from a text as in the annotation. Returns what is allowed where the text is not.
    pub fn set_cpu(&mut self, text: &str) -> Result<(), String> {
        self.cpu = Some(values::cpu(text)?);
        Ok(())
    }

    /// Sets the memory request and limit in the same way.
    pub fn set_memory(&mut self, text: &str) -> Result<(), String> {
        self.memory = Some(values::memory(text)?);
        Ok(())
    }

    /// Sets the port in the same way.
    pub fn set_port(&mut self, text: &str) -> Result<(), String> {
        self.port = Some(values::port(text)?);
        Ok(())
    }

    /// Sets how long the start of a pod waits, in the same way.
    pub fn set_start_timeout(&mut self, text: &str) -> Result<(), String> {
        self.start_timeout = Some(values::start_timeout(text)?);
        Ok(())
    }
}
