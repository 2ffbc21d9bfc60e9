//! Settings of an installation, the same for every pod.

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
}
