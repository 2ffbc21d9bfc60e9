//! Harm that is forgiven, and harm that the version did not cause.

use std::collections::HashMap;

use super::super::clock::Millis;
use super::super::harm::HarmKind;
use super::super::{Observation, Subject};
use super::Evidence;
use super::history::PodHistory;

/// The maximum time between harm and a restart of the pod's agent for which both count as caused by the node.
const AGENT_RESTART_WINDOW: Millis = 60_000;
/// The maximum time between the beginning of harm to a pod and its removal for which the removal counts as the cause.
const REMOVAL_WINDOW: Millis = 10_000;
/// How long a pod must be healthy again, before others are looked at, for its harm to be forgiven once.
const RECOVERY_TIME: Millis = 2_500;

impl Evidence {
    /// Forgets that pods were unready for a moment, as all pods of a node are whose kubelet restarts: once for each pod. Harm to other pods stays as
    /// long as there is harm to compare it with.
    pub(super) fn forgive(&mut self, now: Millis) {
        self.forgive_those(true, now);
        if self.harms().all(|harm| !harm.assigned) {
            self.forgive_those(false, now);
        }
    }

    fn forgive_those(&mut self, assigned: bool, now: Millis) {
        let pods = &mut self.pods;
        self.harms.retain(|harm| {
            let may_be = harm.kind == HarmKind::Unready && harm.assigned == assigned;
            let Some(history) = pods.get_mut(harm.uid.as_str()).filter(|_| may_be) else { return true };
            let well = history.healthy.is_some_and(|since| now - since >= RECOVERY_TIME && since < harm.compared_at());
            if !well || history.forgiven || now > harm.compared_at() + RECOVERY_TIME {
                return true;
            }
            (history.forgiven, history.role) = (true, history.role.mended());
            false
        });
    }

    /// Finds harm that the version did not cause: it had begun before, the pod was removed, its node is away, or as many other pods on its node were
    /// harmed.
    pub(super) fn excuse(&mut self, seen: &Observation<'_>, now: Millis) {
        if self.harms.iter().all(|harm| harm.excused) {
            return;
        }
        let pods: HashMap<&str, &Subject> = seen.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
        let mut nodes: HashMap<&str, (u32, u32)> = HashMap::new();
        for pod in seen.pods {
            let history = self.pods.get(pod.uid.as_str());
            let judges = |history: &&PodHistory| history.assignment.is_some() && history.role.judges();
            if let Some(history) = history.filter(judges) {
                let (judges, harmed) = nodes.entry(&pod.node).or_default();
                (*judges, *harmed) = (*judges + 1, *harmed + u32::from(history.role.is_harmed()));
            }
        }
        for harm in self.harms.iter_mut().filter(|harm| !harm.excused && harm.kind.may_be_excused()) {
            // Somebody who deletes a broken pod does not make the version a better one.
            let just = now - harm.at <= REMOVAL_WINDOW;
            let taken_away = match pods.get(harm.uid.as_str()) {
                None => just && harm.kind == HarmKind::Unready,
                Some(pod) => !pod.node_ready || (just && (pod.disrupted || pod.ending)),
            };
            let (judges, harmed) = nodes.get(harm.node.as_str()).copied().unwrap_or_default();
            let within = harm.compared_at() - harm.at;
            let others = seen.neighbours.get(&harm.node).filter(|_| harm.assigned);
            let weather = others.is_some_and(|others| others.fell_too(harm.at, within, harmed, judges));
            let history = self.pods.get(harm.uid.as_str());
            // One that has not been ready since the API ordered a restart is not as its node has made it.
            let with_agent = history.filter(|history| history.starts_until.is_none());
            let with_agent = with_agent.and_then(|history| history.agent_restarted);
            let with_agent = with_agent.is_some_and(|at| (at - harm.at).abs() <= AGENT_RESTART_WINDOW);
            let flaps = harm.kind == HarmKind::Unready && history.is_some_and(PodHistory::was_unwell);
            harm.excused =
                taken_away || weather || with_agent || (harm.assigned && (flaps || harm.began_before_notification()));
        }
    }
}
