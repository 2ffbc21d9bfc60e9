//! Restarts of a pod's containers: those that the API ordered, and crashes.
//!
//! The API orders a restart by resizing the container in place, by a restart rule that the exit code meets, or through
//! the agent, which may command it. The way a container ended shows whether a rule or the agent caused it. A resize
//! shows only when the pod is compared with its earlier state.

use std::cmp::max;

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus};

use super::commands::{LastCommand, is_removed};
use super::hash::hash;

/// The restarts of the containers that get the configuration and are started again after any exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRestartHistory {
    containers: Vec<RestartHistory>,
    /// Whether the kubelet says that it resizes the pod in place.
    is_resizing: bool,
}

/// The sums of the restarts of a pod's containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartSums {
    /// The number of restarts that the API did not order: crashes.
    pub crashes: i32,
    /// The number of restarts that the API ordered.
    pub ordered: i32,
    /// The time when a container last crashed before it was started again, in seconds since 1970.
    pub last_crash: Option<i64>,
}

/// The restarts of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RestartHistory {
    name: String,
    /// The number of restarts, as the kubelet counts.
    count: i32,
    /// The numbers of restarts after a crash, and by order.
    crashes: i32,
    ordered: i32,
    /// The time when the container last ended before it was started again, in seconds since 1970.
    ended: Option<i64>,
    /// The time of the last end that nothing ordered.
    crashed: Option<i64>,
    /// Whether the last end was a command's, or meets a restart rule.
    ordered_end: bool,
    /// The digest of the resources that the node has allocated for the container.
    allocated: Option<String>,
    /// The digest of the resources that the container last ran with.
    running: Option<String>,
    /// Whether the container is being resized, and was not started again for that yet.
    resized: bool,
}

impl RestartHistory {
    /// Returns the history that one status of the container shows.
    pub(super) fn new(container: &Container, status: &ContainerStatus, commands: &LastCommand) -> Self {
        let termination = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let is_ordered = |termination| {
            commands.explains(termination) || is_removed(termination) || is_by_rule(container, termination)
        };
        let ordered_end = termination.is_some_and(is_ordered);
        let ended = termination.and_then(|termination| Some(termination.finished_at.as_ref()?.0.as_second()));
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        let count = status.restart_count;
        let (crashes, ordered) = if ordered_end { (0, count) } else { (count, 0) };
        Self {
            name: status.name.clone(),
            count,
            crashes,
            ordered,
            ended,
            crashed: ended.filter(|_| !ordered_end),
            ordered_end,
            allocated: status.allocated_resources.as_ref().map(hash),
            // For a container that does not run, the kubelet shows the allocated resources, in other units.
            running: status.resources.as_ref().filter(|_| is_running).map(hash),
            resized: false,
        }
    }

    /// Distinguishes restarts since `before`. One order explains one restart.
    fn follow(&mut self, before: &Self, resizing: bool) {
        let changed = differ(self.allocated.as_ref(), before.allocated.as_ref())
            || differ(self.running.as_ref(), before.running.as_ref());
        let resized = changed || (before.resized && resizing);
        let restarts = max(self.count - before.count, 0);
        let ordered = i32::from(restarts > 0 && (self.ordered_end || resized));
        (self.crashes, self.ordered) = (before.crashes + restarts - ordered, before.ordered + ordered);
        if ordered > 0 && restarts == ordered {
            self.crashed = None;
        } else if self.ended == before.ended {
            self.crashed = before.crashed;
        }
        self.allocated = self.allocated.take().or_else(|| before.allocated.clone());
        self.running = self.running.take().or_else(|| before.running.clone());
        self.resized = resized && restarts == 0;
    }
}

impl PodRestartHistory {
    /// Returns the history with these containers.
    pub(super) fn new(containers: Vec<RestartHistory>, is_resizing: bool) -> Self {
        Self { containers, is_resizing }
    }

    /// Distinguishes the restarts of the containers since `before`.
    pub(super) fn follow(&mut self, before: &Self) {
        for container in &mut self.containers {
            if let Some(earlier) = before.containers.iter().find(|earlier| earlier.name == container.name) {
                container.follow(earlier, self.is_resizing || before.is_resizing);
            }
        }
    }

    /// Returns the sums of all containers.
    pub fn sums(&self) -> RestartSums {
        RestartSums {
            crashes: self.containers.iter().map(|container| container.crashes).sum(),
            ordered: self.containers.iter().map(|container| container.ordered).sum(),
            last_crash: self.containers.iter().filter_map(|container| container.crashed).max(),
        }
    }

    /// Returns whether the pod is being resized in place, so that a container may be restarted.
    pub fn is_resizing(&self) -> bool {
        self.is_resizing || self.containers.iter().any(|container| container.resized)
    }
}

#[cfg(test)]
impl PodRestartHistory {
    /// The pod is being resized.
    pub(crate) fn resized(self) -> Self {
        Self { is_resizing: true, ..self }
    }
}

/// The history of a pod with one container.
impl From<RestartSums> for PodRestartHistory {
    fn from(RestartSums { crashes, ordered, last_crash: crashed }: RestartSums) -> Self {
        Self::new(
            vec![RestartHistory { count: crashes + ordered, crashes, ordered, crashed, ..RestartHistory::default() }],
            false,
        )
    }
}

/// Returns whether both are known, and are not the same.
fn differ(now: Option<&String>, before: Option<&String>) -> bool {
    now.zip(before).is_some_and(|(now, before)| now != before)
}

/// Returns whether a restart rule of the container meets its end.
pub(super) fn is_by_rule(container: &Container, termination: &ContainerStateTerminated) -> bool {
    let mut codes = container.restart_policy_rules.iter().flatten().filter_map(|rule| rule.exit_codes.as_ref());
    codes.any(|codes| {
        let listed = codes.values.iter().flatten().any(|code| *code == termination.exit_code);
        match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::pods::{PodState, RestartSums, pod_state};

    /// Returns a pod of two containers whose statuses have these fields in addition to the usual ones.
    fn pod(resizing: bool, app: &Value, proxy: &Value) -> PodState {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42, 43]}}]);
        let others = json!([{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 1]}}]);
        let status = |name: &str, fields: &Value| {
            let mut status = json!({
                "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}, "allocatedResources": {"cpu": "1"}, "resources": {"limits": {"memory": "1Gi"}},
            });
            status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            status
        };
        let resize = if resizing { "True" } else { "False" };
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": {
                "initContainers": [{"name": "nudge-agent"}],
                "containers": [{"name": "app", "restartPolicyRules": rules}, {"name": "proxy", "restartPolicyRules": others}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodResizeInProgress", "status": resize}],
                "containerStatuses": [status("app", app), status("proxy", proxy)],
            },
        });
        pod_state(&serde_json::from_value(object).unwrap()).unwrap()
    }

    fn ended(times: i32, exit_code: i32) -> Value {
        let termination = json!({"exitCode": exit_code, "finishedAt": format!("2026-11-23T12:00:{times:02}Z")});
        json!({"restartCount": times, "lastState": {"terminated": termination}})
    }

    fn with(mut fields: Value, more: &Value) -> Value {
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    }

    /// Crashes, restarts by order, and whether the pod counts as one that crashed, after these looks at the first
    /// container.
    fn counts(looks: &[(bool, Value)]) -> (i32, i32, bool) {
        let none = json!({});
        let looks = looks.iter().map(|(resizing, app)| pod(*resizing, app, &none));
        let last = looks.fold(pod(false, &none, &none), |before, now| now.after(&before));
        let RestartSums { crashes, ordered, last_crash } = last.restarts.sums();
        (crashes, ordered, last_crash.is_some())
    }

    #[test]
    fn a_container_that_is_resized_restarts_once_by_order() {
        let allocated = json!({"allocatedResources": {"cpu": "2"}});
        let limits = json!({"resources": {"limits": {"memory": "2Gi"}}});
        let at_once = [(false, with(ended(1, 143), &allocated))];
        let of_limits = [(false, with(ended(1, 143), &limits))];
        let later = [(true, allocated.clone()), (true, allocated.clone()), (false, with(ended(1, 0), &allocated))];
        for (looks, resized) in [(&at_once[..], &allocated), (&of_limits, &limits), (&later, &allocated)] {
            assert_eq!(counts(looks), (0, 1, false), "{looks:?}");
            let crash = [(true, with(ended(2, 1), resized))];
            assert_eq!(counts(&[looks, &crash].concat()), (1, 1, true), "{looks:?}, and a crash");
        }
        assert_eq!(counts(&[(true, with(ended(2, 1), &allocated))]), (1, 1, true), "one order, one restart");
    }

    #[test]
    fn a_crash_is_not_ordered_by_a_resize_that_is_over_or_of_another_container() {
        let allocated = json!({"allocatedResources": {"cpu": "2"}});
        let crashed = with(ended(1, 1), &allocated);
        let over =
            [(true, allocated.clone()), (false, allocated.clone()), (false, allocated.clone()), (false, crashed)];
        assert_eq!(counts(&over), (1, 0, true));
        assert_eq!(counts(&[(true, json!({})), (true, ended(1, 1))]), (1, 0, true), "nothing of it was resized");
        let none = json!({});
        let beside = pod(true, &with(ended(1, 143), &allocated), &ended(1, 1)).after(&pod(false, &none, &none));
        assert_eq!((beside.restarts.sums().crashes, beside.restarts.sums().ordered), (1, 1));
    }

    #[test]
    fn resources_that_a_container_without_a_process_shows_are_no_resize() {
        let waits = json!({"state": {"waiting": {}}, "resources": {"limits": {"memory": "1024Mi"}}});
        let missing = json!({"state": {"waiting": {}}, "resources": null, "allocatedResources": null});
        for shown in [waits, missing] {
            assert_eq!(counts(&[(false, with(ended(1, 1), &shown))]), (1, 0, true));
            assert_eq!(counts(&[(false, shown), (false, ended(1, 1))]), (1, 0, true));
        }
    }

    #[test]
    fn an_end_that_a_rule_meets_is_ordered_and_no_other() {
        for (code, ordered) in [(42, true), (43, true), (0, false), (1, false), (137, false)] {
            assert_eq!(counts(&[(false, ended(1, code))]).1 == 1, ordered, "{code}");
            let first = pod(false, &ended(3, code), &json!({}));
            assert_eq!(first.restarts.sums().crashes == 0, ordered, "{code}, at the first look");
        }
        for (code, ordered) in [(0, false), (1, false), (2, true)] {
            assert_eq!(pod(false, &json!({}), &ended(1, code)).restarts.sums().ordered == 1, ordered, "{code}");
        }
    }

    #[test]
    fn a_kubelet_that_counts_anew_takes_no_restart_back() {
        assert_eq!(counts(&[(false, ended(2, 1)), (false, json!({})), (false, ended(1, 1))]), (3, 0, true));
    }
}
