//! The agent's user and image: the least privileges that let it signal the processes it must.

use std::collections::BTreeSet;

use super::Targets;
use crate::injection::request::PodRequest;
use crate::injection::request::annotations::AGENT_RUN_AS_USER;
use crate::injection::user_pod::{UserContainer, UserPod};

/// The user of an agent that signals no process; the images have it too.
pub(in crate::injection) const NOBODY_UID: i64 = 65532;

/// The user and the image of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::injection) struct RunAsUser {
    /// Whether the image with the capability to signal any process is used.
    pub(in crate::injection) has_kill: bool,
    /// The user that signals need; `None` if any user will do.
    pub(in crate::injection) uid: Option<i64>,
    pub(in crate::injection) warnings: Vec<String>,
}

impl RunAsUser {
    pub(in crate::injection) fn of(pod: &UserPod, request: &PodRequest, targets: &Targets<'_>) -> Self {
        let targets: Vec<(&str, Option<i64>)> = targets.signalled().map(|name| (name, uid(pod, name))).collect();
        let without_kill = |uid, warnings| Self { has_kill: false, uid, warnings };
        if let Some(uid) = request.run_as_user {
            let warnings = targets.iter().filter_map(|target| signal_warning(uid, *target)).collect();
            return without_kill(Some(uid), warnings);
        }
        let uids: BTreeSet<Option<i64>> = targets.iter().map(|(_, uid)| *uid).collect();
        match Vec::from_iter(uids)[..] {
            [] => without_kill(None, Vec::new()),
            [Some(uid)] if uid != 0 => without_kill(Some(uid), Vec::new()),
            _ => Self { has_kill: true, uid: None, warnings: vec![kill_warning(&targets)] },
        }
    }
}

/// Returns the user of a container's processes, if the pod sets it.
fn uid(pod: &UserPod, name: &str) -> Option<i64> {
    reader_of(pod, pod.member(name)?).uid
}

/// The processes of a container, as readers of files.
pub(in crate::injection) struct FileReader {
    /// The user of the processes, if the pod sets it.
    pub(in crate::injection) uid: Option<i64>,
    /// Whether the processes read files of every user.
    pub(in crate::injection) reads_all: bool,
}

/// Returns who reads the files of a container.
pub(in crate::injection) fn reader_of(pod: &UserPod, member: &UserContainer) -> FileReader {
    let context = member.container.security_context.as_ref();
    let container_uid = context.and_then(|context| context.run_as_user);
    let uid = container_uid.or_else(|| pod.spec.security_context.as_ref()?.run_as_user);
    let is_privileged = context.and_then(|context| context.privileged) == Some(true);
    let capabilities = context.and_then(|context| context.capabilities.as_ref());
    let lists = |list: Option<&Vec<String>>| {
        let mut names = list.into_iter().flatten().map(|name| name.trim_start_matches("CAP_"));
        names.any(|name| matches!(name, "ALL" | "DAC_OVERRIDE" | "DAC_READ_SEARCH"))
    };
    let is_dropped = capabilities.is_some_and(|capabilities| lists(capabilities.drop.as_ref()));
    let is_added = capabilities.is_some_and(|capabilities| lists(capabilities.add.as_ref()));
    FileReader { uid, reads_all: uid == Some(0) && (is_privileged || is_added || !is_dropped) }
}

fn signal_warning(agent: i64, (name, uid): (&str, Option<i64>)) -> Option<String> {
    match uid {
        Some(uid) if uid == agent => None,
        Some(uid) => Some(format!(
            "container {name} runs as user {uid}: an agent of user {agent} may not signal it; remove annotation {AGENT_RUN_AS_USER} or set it to {uid}"
        )),
        None => Some(format!(
            "container {name} can be signalled only if it runs as user {agent}; set its securityContext.runAsUser to {agent}"
        )),
    }
}

/// Returns the warning why the capability is needed, and how to avoid it.
fn kill_warning(targets: &[(&str, Option<i64>)]) -> String {
    let first = |wanted: Option<i64>| targets.iter().find(|(_, uid)| *uid == wanted).map(|(name, _)| *name);
    let reason = if let Some(name) = first(None) {
        format!("the user of container {name} is not known (set runAsUser there, or {AGENT_RUN_AS_USER})")
    } else if let Some(name) = first(Some(0)) {
        format!("container {name} runs as root (set another runAsUser)")
    } else {
        "the containers to signal run as several users (set one runAsUser)".to_owned()
    };
    format!("{reason}: to signal it the agent gets capability KILL, so Pod Security \"restricted\" refuses this pod")
}
