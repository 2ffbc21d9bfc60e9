//! The agent's user and image: the least that can reach the processes it must signal.

use std::collections::BTreeSet;

use super::annotations::RUN_AS_USER;
use super::pod_request::PodRequest;
use super::targets::Targets;
use super::user_pod::UserPod;

/// The user of an agent that nothing else is asked of; the images know it too.
pub(super) const NOBODY: i64 = 65532;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunAsUser {
    /// The image with the capability to signal any process.
    pub(super) kill: bool,
    pub(super) uid: i64,
    pub(super) warnings: Vec<String>,
}

impl RunAsUser {
    pub(super) fn of(user: &UserPod, request: &PodRequest, targets: &Targets<'_>) -> Self {
        let targets: Vec<(&str, Option<i64>)> = targets.signalled().map(|name| (name, uid(user, name))).collect();
        let plain = |uid, warnings| Self { kill: false, uid, warnings };
        if let Some(own) = request.run_as_user {
            return plain(own, targets.iter().filter_map(|target| unreached(own, *target)).collect());
        }
        let uids: BTreeSet<Option<i64>> = targets.iter().map(|(_, uid)| *uid).collect();
        match Vec::from_iter(uids)[..] {
            [] => plain(NOBODY, Vec::new()),
            [Some(uid)] if uid != 0 => plain(uid, Vec::new()),
            _ => Self { kill: true, uid: NOBODY, warnings: vec![needs_kill(&targets)] },
        }
    }
}

/// The user of a container's processes, where the pod says it.
fn uid(user: &UserPod, name: &str) -> Option<i64> {
    let own = user.member(name)?.container.security_context.as_ref().and_then(|context| context.run_as_user);
    own.or_else(|| user.spec.security_context.as_ref()?.run_as_user)
}

fn unreached(own: i64, (name, uid): (&str, Option<i64>)) -> Option<String> {
    match uid {
        Some(uid) if uid == own => None,
        Some(uid) => Some(format!(
            "container {name} runs as user {uid}: an agent of user {own} may not signal it; leave {RUN_AS_USER} out or set it to the same"
        )),
        None => Some(format!(
            "container {name} can be signalled only if it runs as user {own}; set its securityContext.runAsUser to that"
        )),
    }
}

/// Why the capability is needed, and how to do without.
fn needs_kill(targets: &[(&str, Option<i64>)]) -> String {
    let first = |request: Option<i64>| targets.iter().find(|(_, uid)| *uid == request).map(|(name, _)| *name);
    let why = if let Some(name) = first(None) {
        format!("the user of container {name} is not known (set runAsUser there, or {RUN_AS_USER})")
    } else if let Some(name) = first(Some(0)) {
        format!("container {name} runs as root (set another runAsUser)")
    } else {
        "the containers to signal run as several users (set one runAsUser)".to_owned()
    };
    format!("{why}: to signal it the agent gets capability KILL, so Pod Security \"restricted\" refuses this pod")
}
