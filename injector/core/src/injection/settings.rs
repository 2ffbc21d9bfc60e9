//! What an installation is set to, the same for every pod.

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectionSettings {
    /// Image of the agent: `/nudge-agent`, for any user.
    pub agent_image: String,
    /// Image of the agent whose file has the capability `cap_kill`, for signals to processes of any user.
    pub agent_kill_image: String,
    /// `Always`, `IfNotPresent` or `Never`; by the image's tag, as Kubernetes does it, where absent.
    pub image_pull_policy: Option<String>,
    /// Secrets with which the images are pulled: added to the pod's own. They must be in the pod's namespace.
    pub image_pull_secrets: Vec<String>,
    /// The hub's URL, for agents.
    pub hub: String,
    /// Containers of other injectors, by name: they get nothing unless the pod names them.
    pub foreign_containers: Vec<String>,
}
