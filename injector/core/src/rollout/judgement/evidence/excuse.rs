//! Harm that is forgiven, and harm that the version did not cause.

use std::collections::HashMap;

use super::super::harm::HarmKind;
use super::history::PodHistory;
use super::{Evidence, HarmCount};
use crate::keys::PodUid;
use crate::pods::Removal;
use crate::rollout::clock::{Millis, SteadyTime};
use crate::rollout::{Observation, Subject};

/// The maximum time between harm and a restart of the pod's agent. Within it, both count as caused by the node.
const AGENT_RESTART_WINDOW: Millis = 60_000;
/// The maximum time from the beginning of harm to the pod's removal. Within it, the removal counts as the cause.
const REMOVAL_WINDOW: Millis = 10_000;
/// The time that a pod must be healthy again, before its harm is compared with others, for the harm to be forgiven
/// once.
const RECOVERY_TIME: Millis = 2_500;

impl Evidence {
    /// Forgets one short unreadiness of each pod. For example, all pods of a node are unready for a moment when its
    /// kubelet restarts. Harm to other pods stays as long as there is harm to compare it with.
    pub(super) fn forgive(&mut self, now: SteadyTime) {
        self.forgive_pods(true, now);
        if self.harms().all(|harm| !harm.assigned) {
            self.forgive_pods(false, now);
        }
    }

    fn forgive_pods(&mut self, assigned: bool, now: SteadyTime) {
        let (pods, Some(trial)) = (&mut self.pods, &mut self.trial) else { return };
        trial.harms.retain(|harm| {
            let may_be = harm.kind.is_state() && harm.assigned == assigned;
            let Some(history) = pods.get_mut(&harm.uid).filter(|_| may_be) else { return true };
            let well = history
                .healthy_since
                .is_some_and(|since| now - since >= RECOVERY_TIME && since < harm.comparison_time());
            if !well || history.forgiven || now > harm.comparison_time() + RECOVERY_TIME {
                return true;
            }
            (history.forgiven, history.role) = (true, history.role.without_harm());
            false
        });
    }

    /// Finds harm that the version did not cause: it had begun before, the pod was removed, its node is away, its
    /// containers were not notified, or the same share of other pods on its node was harmed.
    pub(super) fn excuse(&mut self, observation: &Observation<'_>, now: SteadyTime) {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.harms.iter().any(|harm| !harm.excused)) else {
            return;
        };
        let target = trial.target.clone();
        let pods: HashMap<&PodUid, &Subject> = observation.pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let mut nodes: HashMap<Option<&str>, HarmCount> = HashMap::new();
        for pod in observation.pods {
            let history = self.pods.get(&pod.uid);
            let is_judge = |history: &&PodHistory| history.assignment.is_some() && history.role.judges();
            if let Some(history) = history.filter(is_judge) {
                let node = nodes.entry(pod.node.as_deref()).or_default();
                node.judges += 1;
                node.harmed += u32::from(history.role.is_harmed());
            }
        }
        for harm in trial.harms.iter_mut().filter(|harm| !harm.excused && harm.kind.is_excusable()) {
            // The deletion of a broken pod does not make the version better.
            let is_recent = now - harm.at <= REMOVAL_WINDOW;
            let is_elsewhere = match pods.get(&harm.uid) {
                None => is_recent && harm.kind.is_state(),
                Some(pod) if harm.assigned && pod.is_unaffected_by(&target) => true,
                Some(pod) => !pod.node_ready || (is_recent && (pod.removal != Removal::None || pod.is_ending())),
            };
            let HarmCount { judges, harmed } = nodes.get(&harm.node.as_deref()).copied().unwrap_or_default();
            let delay = harm.comparison_time() - harm.at;
            let others = harm.node.as_ref().filter(|_| harm.assigned).and_then(|node| observation.neighbours.get(node));
            let is_of_node = others.is_some_and(|others| others.is_node_at_fault(harm.at, delay, harmed, judges));
            let history = self.pods.get(&harm.uid);
            // A pod that has not been ready since the API ordered a restart is not unready because of its node.
            let with_agent = history.filter(|history| history.starts_until.is_none());
            let with_agent = with_agent.and_then(|history| history.agent_restarted_at);
            let with_agent =
                with_agent.is_some_and(|restarted_at| (restarted_at - harm.at).abs() <= AGENT_RESTART_WINDOW);
            let flaps = harm.kind == HarmKind::Unready && history.is_some_and(PodHistory::was_unwell);
            harm.excused = is_elsewhere
                || is_of_node
                || with_agent
                || (harm.assigned && (flaps || harm.began_before_notification()));
        }
    }
}
