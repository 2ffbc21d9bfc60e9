//! Restarts of all containers of a pod that its agent commands (`nudge.dev/notify: in-place`), as the status of the pod
//! shows them.
//!
//! The agent ends with an exit code of its own. The kubelet then ends and removes all containers before it starts any,
//! the agent first. So the command explains the end of a container that started before the agent did, but not of one
//! that started later.

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_protocol::Notify;
use nudge_protocol::pod::{RESTART_EXIT_CODE, env};
use nudge_protocol::settings::SEPARATOR;

/// The reason that a kubelet gives for a container that it has removed for such a restart
/// (`pkg/kubelet/kubelet_pods.go`).
const REMOVED: &str = "RestartingAllContainers";

/// The state of the agent's last command to restart all containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastCommand {
    /// The agent gave no command.
    #[default]
    None,
    /// The agent gave the command, and does not run yet.
    Restarting,
    /// The agent gave the command, and has run since that time.
    RunningSince(Time),
}

/// Returns the last command, as the status of the agent's container shows it.
pub(super) fn commands(container: &Container, agent: Option<&ContainerStatus>) -> LastCommand {
    let Some(agent) = agent.filter(|_| restarts_in_place(container)) else { return LastCommand::None };
    let (now, last) = (agent.state.as_ref(), agent.last_state.as_ref());
    let is_command = |termination: &ContainerStateTerminated| {
        termination.exit_code == i32::from(RESTART_EXIT_CODE) || is_removed(termination)
    };
    let termination =
        now.and_then(|now| now.terminated.as_ref()).or_else(|| last.and_then(|last| last.terminated.as_ref()));
    if !termination.is_some_and(is_command) {
        return LastCommand::None;
    }
    let started = now.and_then(|now| now.running.as_ref()?.started_at.clone());
    started.map_or(LastCommand::Restarting, LastCommand::RunningSince)
}

/// Returns whether the kubelet removed a container because a rule of any container has all of them restarted.
pub(super) fn is_removed(termination: &ContainerStateTerminated) -> bool {
    termination.reason.as_deref() == Some(REMOVED)
}

/// Returns whether the agent restarts containers. Admission refuses a pod if another container has such a rule, too.
pub(super) fn restarts_in_place(agent: &Container) -> bool {
    let variable = agent.env.iter().flatten().find(|variable| variable.name == env::NOTIFY);
    let list = variable.and_then(|variable| variable.value.as_deref()).unwrap_or_default();
    let way = |item: &str| item.split_once('=').is_some_and(|(_, way)| way.trim() == Notify::InPlace.as_str());
    list.split(SEPARATOR).any(way)
}

impl LastCommand {
    /// Returns whether a container ended because of the command.
    pub(super) fn explains(&self, termination: &ContainerStateTerminated) -> bool {
        match self {
            Self::None => false,
            Self::Restarting => true,
            Self::RunningSince(started) => {
                is_removed(termination) || termination.started_at.as_ref().is_none_or(|began| began.0 < started.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: u32) -> String {
        format!("2026-11-23T12:00:{second:02}Z")
    }

    fn agent(state: &serde_json::Value, last: &serde_json::Value) -> LastCommand {
        let status = json!({
            "name": "nudge-agent", "restartCount": 1, "image": "", "imageID": "", "ready": true, "state": state, "lastState": last,
        });
        commands(&container("log=none,app=in-place"), Some(&serde_json::from_value(status).unwrap()))
    }

    fn container(notify: &str) -> Container {
        let variable = json!({"name": "NUDGE_NOTIFY", "value": notify});
        serde_json::from_value(json!({"name": "nudge-agent", "env": [variable]})).unwrap()
    }

    /// The end of a container that began in this second.
    fn end(exit_code: i32, reason: &str, began: Option<u32>) -> serde_json::Value {
        json!({"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": began.map(at), "finishedAt": began.map(|_| at(20))}})
    }

    fn terminated(termination: &serde_json::Value) -> ContainerStateTerminated {
        serde_json::from_value(termination["terminated"].clone()).unwrap()
    }

    #[test]
    fn an_agent_that_ended_for_another_reason_has_commanded_nothing() {
        let running = json!({"running": {"startedAt": at(10)}});
        for last in [json!({}), end(137, "OOMKilled", Some(9)), end(0, "Completed", Some(9)), end(3, "Error", Some(9))]
        {
            assert_eq!(agent(&running, &last), LastCommand::None, "{last}");
        }
        assert_eq!(
            agent(&end(3, "Error", Some(12)), &end(88, "Error", Some(9))),
            LastCommand::None,
            "it has crashed since"
        );
        assert_eq!(commands(&container("app=in-place"), None), LastCommand::None);
        let status = json!({
            "name": "nudge-agent", "restartCount": 1, "image": "", "imageID": "", "ready": true, "lastState": end(137, REMOVED, None),
        });
        let status = serde_json::from_value(status).unwrap();
        assert_eq!(commands(&container("app=SIGHUP"), Some(&status)), LastCommand::None, "a rule of the user's");
        assert!(!LastCommand::None.explains(&terminated(&end(1, "Error", Some(1)))));
    }

    #[test]
    fn what_began_before_the_agent_did_is_explained_and_nothing_after() {
        let running = json!({"running": {"startedAt": at(10)}});
        for last in [end(88, "Error", Some(9)), end(137, REMOVED, None)] {
            let commands = agent(&running, &last);
            for (other, explained) in [
                (end(143, "Error", Some(9)), true),
                (end(137, REMOVED, None), true),
                // In the same second: it began after the agent.
                (end(1, "Error", Some(10)), false),
                (end(1, "Error", Some(11)), false),
                (end(137, "OOMKilled", Some(11)), false),
            ] {
                assert_eq!(commands.explains(&terminated(&other)), explained, "{other}");
            }
        }
    }

    #[test]
    fn a_restart_is_under_way_until_the_agent_runs() {
        let waiting = json!({"waiting": {"reason": REMOVED}});
        assert_eq!(agent(&end(88, "Error", Some(9)), &json!({})), LastCommand::Restarting);
        assert_eq!(agent(&waiting, &end(137, REMOVED, None)), LastCommand::Restarting);
        assert!(LastCommand::Restarting.explains(&terminated(&end(143, "Error", Some(9)))));
    }
}
