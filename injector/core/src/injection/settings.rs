//! The settings of an installation, which hold for every pod.

use super::annotation_values;
use super::quantity::Quantity;

/// The settings of an installation for injecting pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectionSettings {
    /// The image of the agent, with `/nudge-agent` for any user.
    pub agent_image: String,
    /// The image of the agent whose file has the capability `cap_kill`, for signals to processes of any user.
    pub agent_kill_image: String,
    /// The pull policy: `Always`, `IfNotPresent` or `Never`; if absent, Kubernetes decides by the image's tag.
    pub image_pull_policy: Option<String>,
    /// The Secrets for pulling the images, besides the pod's own. They must exist in the pod's namespace.
    pub image_pull_secrets: Vec<String>,
    /// The hub's URL, for agents.
    pub hub: String,
    /// The names of other injectors' containers, which get nothing.
    pub foreign_containers: Vec<String>,
    /// Whether a pod may name foreign containers nevertheless.
    pub foreign_containers_allowed: bool,
    /// What an agent gets if the pod's annotations do not say.
    pub agent_defaults: AgentDefaults,
    /// The treatment of pods with labels or annotations of Nudge's that this version does not know.
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

/// The defaults of agents whose pods have no annotation for a value. A value that is absent here has the default of
/// this version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentDefaults {
    pub(super) cpu: Option<Quantity>,
    pub(super) memory: Option<Quantity>,
    pub(super) port: Option<u16>,
    pub(super) start_timeout: Option<String>,
}

impl AgentDefaults {
    /// Sets the CPU request from a text in the form of the annotation. Fails with the rule for allowed values if the
    /// text is not valid.
    pub fn set_cpu(&mut self, text: &str) -> Result<(), String> {
        self.cpu = Some(annotation_values::cpu(text)?);
        Ok(())
    }

    /// Sets the memory request and limit in the same way.
    pub fn set_memory(&mut self, text: &str) -> Result<(), String> {
        self.memory = Some(annotation_values::memory(text)?);
        Ok(())
    }

    /// Sets the port in the same way.
    pub fn set_port(&mut self, text: &str) -> Result<(), String> {
        self.port = Some(annotation_values::port(text)?);
        Ok(())
    }

    /// Sets how long the start of a pod waits, in the same way.
    pub fn set_start_timeout(&mut self, text: &str) -> Result<(), String> {
        self.start_timeout = Some(annotation_values::start_timeout(text)?);
        Ok(())
    }
}
