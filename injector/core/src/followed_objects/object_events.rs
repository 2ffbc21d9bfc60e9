//! The Events of a config that its objects and its workloads have, too: people look there first.

use std::collections::BTreeSet;

use nudge_api::Reason;

use crate::event_record::EventRecord;
use crate::owners::{OwnerKind, WorkloadId, WorkloadKind};
use crate::pods::PodState;

/// The maximum number of workloads that have the Events of one config.
const MAX_WORKLOADS: usize = 10;

/// Returns the Events about the beginning and the end of a move and about a missing text, with the config's name in the
/// message.
pub fn object_events(config: &str, events: &[EventRecord]) -> Vec<EventRecord> {
    let is_for_objects = |event: &&EventRecord| {
        use Reason::{Current, Failed, NoText, Progressing, RollingBack};
        matches!(event.explanation.reason, Progressing | Current | RollingBack | Failed | NoText)
    };
    let with_name = |event: &EventRecord| {
        let mut named = event.clone();
        named.explanation.message = format!("config {config}: {}", event.explanation.message);
        named
    };
    events.iter().filter(is_for_objects).map(with_name).collect()
}

/// Returns the workloads of these pods that have the Events: the first by kind and name.
pub fn event_workloads<'a>(pods: impl Iterator<Item = &'a PodState>) -> Vec<(WorkloadKind, &'a str)> {
    let workloads: BTreeSet<&WorkloadId> =
        pods.filter(|pod| pod.is_live()).filter_map(|pod| pod.workload.as_ref()).collect();
    let rolling = workloads.into_iter().filter_map(|id| match id.kind() {
        OwnerKind::Rolling(kind) => Some((kind, id.name())),
        OwnerKind::Job | OwnerKind::Other => None,
    });
    rolling.take(MAX_WORKLOADS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_begin_and_the_end_of_a_move() {
        let reasons = [Reason::Progressing, Reason::Step, Reason::Current, Reason::Sealed, Reason::RollingBack];
        let all: Vec<EventRecord> = reasons.into_iter().map(|reason| EventRecord::new(reason, "m")).collect();
        let chosen = object_events("web", &all);
        let reasons: Vec<Reason> = chosen.iter().map(|event| event.explanation.reason).collect();
        assert_eq!(reasons, [Reason::Progressing, Reason::Current, Reason::RollingBack]);
        assert!(chosen.iter().all(|event| event.explanation.message == "config web: m"));
        assert_eq!(chosen[2].warning, all[4].warning);
    }

    #[test]
    fn a_bounded_number_of_workloads_is_for_objects() {
        let pod = |workload: &str| PodState { workload: Some(workload.into()), ..PodState::default() };
        let workloads = |pods: &[PodState]| {
            let chosen = event_workloads(pods.iter());
            chosen.into_iter().map(|(_, name)| name.to_owned()).collect::<Vec<_>>()
        };
        let pods = ["Deployment/web", "Deployment/web", "Job", "ReplicaSet/old", "StatefulSet/db"].map(pod);
        assert_eq!(workloads(&pods), ["web", "db"]);
        let many: Vec<PodState> = (0..30).map(|number| pod(&format!("Deployment/w{number:02}"))).collect();
        assert_eq!((workloads(&many).len(), &*workloads(&many)[9]), (MAX_WORKLOADS, "w09"));
    }
}
