//! The results of a run's events: how long each step took, which pods were left behind, and how long the return took.
//! Does no I/O.

use std::time::Duration;

use nudge_api::RolloutStage;

use super::journal::{Event, Look, What, last_condition};

/// A step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Pods that it has assigned the version to.
    pub(super) pods: usize,
    /// When it was seen.
    pub(super) assigned: Duration,
    /// How long until the last of them had the version, had acknowledged it, and had a condition that says so; none if
    /// one of them never had the version.
    pub(super) taken: Option<Duration>,
    pub(super) acknowledged: Option<Duration>,
    pub(super) proven: Option<Duration>,
    /// Pods that had acknowledged the version, and whose condition did not say so yet when the next step went out or
    /// the bake was over.
    pub(super) skipped: usize,
}

/// Returns the steps of the move of a config to `version`. `assigned`: whether a pod is to run the version by that
/// status.
pub(super) fn steps(
    pods: &[Vec<Event>],
    looks: &[Look],
    version: u32,
    assigned: impl Fn(&Look, usize) -> bool,
) -> Vec<Step> {
    let name = version.to_string();
    let mut known = vec![false; pods.len()];
    let mut went_out: Vec<(Duration, Vec<usize>)> = Vec::new();
    let (mut last, mut over) = (None, None);
    for look in looks {
        let (stage, internal) = (look.status.rollout.stage, &look.status.internal);
        if over.is_none() && !went_out.is_empty() && look.status.current_version.as_deref() == Some(&name) {
            over = Some(look.at);
        }
        let moves = matches!(stage, Some(RolloutStage::Moving | RolloutStage::Baking));
        let now = Some((internal.threshold, &internal.workloads, &internal.selectors));
        if !moves || look.status.target_version.as_deref() != Some(&name) || now == last {
            continue;
        }
        last = now;
        let fresh: Vec<usize> = (0..pods.len()).filter(|&pod| !known[pod] && assigned(look, pod)).collect();
        for &pod in &fresh {
            known[pod] = true;
        }
        if !fresh.is_empty() {
            went_out.push((look.at, fresh));
        }
    }
    let next = went_out.iter().skip(1).map(|(at, _)| *at).chain(over).map(Some).chain([None]);
    let next: Vec<Option<Duration>> = next.collect();
    let step = |((at, fresh), next): (&(Duration, Vec<usize>), Option<Duration>)| {
        let until_last = |what| {
            let each = fresh.iter().map(|&pod| first(&pods[pod], what, version));
            each.collect::<Option<Vec<_>>>().map(|all| all.into_iter().max().unwrap_or(*at).saturating_sub(*at))
        };
        let before = |pod: usize, what| next.is_some_and(|next| first(&pods[pod], what, version) < Some(next));
        let is_skipped = |pod: &&usize| {
            let acknowledged = first(&pods[**pod], What::Acknowledged, version).is_some();
            let proven = first(&pods[**pod], What::Proven, version).is_some();
            acknowledged && before(**pod, What::Acknowledged) && !(proven && before(**pod, What::Proven))
        };
        Step {
            pods: fresh.len(),
            assigned: *at,
            taken: until_last(What::Taken),
            acknowledged: until_last(What::Acknowledged),
            proven: until_last(What::Proven),
            skipped: fresh.iter().filter(is_skipped).count(),
        }
    };
    went_out.iter().zip(next).map(step).collect()
}

/// Returns when it happened first.
fn first(events: &[Event], what: What, version: u32) -> Option<Duration> {
    events.iter().find(|event| (event.what, event.version) == (what, version)).map(|event| event.at)
}

/// The way back from a bad version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Back {
    /// How long the verdict took from when the first application refused the version.
    pub(super) verdict: Duration,
    /// Pods that had the version.
    pub(super) pods: usize,
    /// The time from the first refusal, and from the verdict, until the last of them had the old version again.
    pub(super) taken_after_harm: Option<Duration>,
    pub(super) taken: Option<Duration>,
    /// The time from the verdict until each pod of the config has a condition that says so.
    pub(super) proven: Option<Duration>,
    /// Pods whose condition changed after the verdict.
    pub(super) rewritten: usize,
}

/// Returns the way back of a config from version `bad` to `good`; none if there was no verdict.
pub(super) fn back(pods: &[Vec<Event>], looks: &[Look], bad: u32, good: u32) -> Option<Back> {
    let name = bad.to_string();
    let harm = pods.iter().filter_map(|events| first(events, What::Refused, bad)).min()?;
    let failed = |look: &&Look| look.status.rollout.failure.as_ref().is_some_and(|failure| failure.version == name);
    let verdict = looks.iter().find(failed)?.at;
    let had: Vec<&Vec<Event>> = pods.iter().filter(|events| first(events, What::Taken, bad).is_some()).collect();
    let returned = |events: &&Vec<Event>| {
        let last = events.iter().rev().find(|event| event.what == What::Taken)?;
        (last.version == good).then_some(last.at)
    };
    let returned = had.iter().map(returned).collect::<Option<Vec<_>>>();
    let returned = returned.map(|all| all.into_iter().max().unwrap_or(verdict));
    let proven = |events: &Vec<Event>| {
        let last = last_condition(events)?;
        ((last.what, last.version) == (What::Proven, good)).then_some(last.at)
    };
    let conditions = pods.iter().map(proven).collect::<Option<Vec<_>>>();
    let rewritten = pods.iter().filter_map(|events| last_condition(events)).filter(|last| last.at > verdict).count();
    Some(Back {
        verdict: verdict.saturating_sub(harm),
        pods: had.len(),
        taken_after_harm: returned.map(|at| at.saturating_sub(harm)),
        taken: returned.map(|at| at.saturating_sub(verdict)),
        proven: conditions.map(|all| all.into_iter().max().unwrap_or(verdict).saturating_sub(verdict)),
        rewritten,
    })
}

/// Returns when the version became current.
pub(super) fn current(looks: &[Look], version: u32) -> Option<Duration> {
    let name = version.to_string();
    looks.iter().find(|look| look.status.current_version.as_deref() == Some(&name)).map(|look| look.at)
}

/// Returns the most pods at a time that were not waited for.
pub(super) fn not_waited_for(looks: &[Look], since: Duration) -> u32 {
    let of = |look: &Look| look.status.rollout.evidence.as_ref().map_or(0, |evidence| evidence.not_waited_for);
    looks.iter().filter(|look| look.at >= since).map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use nudge_api::{InternalStatus, Reason, RolloutFailure, RolloutStatus, VersionedConfigStatus};

    use super::*;

    const fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// Returns a look after this many seconds: `below` pods are assigned the target.
    fn look(at: u64, current: &str, target: Option<&str>, below: u64, stage: Option<RolloutStage>) -> Look {
        let rollout = RolloutStatus { stage, ..RolloutStatus::default() };
        let internal = InternalStatus { threshold: below, ..InternalStatus::default() };
        let (current_version, target_version) = (Some(current.to_owned()), target.map(str::to_owned));
        Look {
            at: second(at),
            bytes: 0,
            status: VersionedConfigStatus {
                current_version,
                target_version,
                rollout,
                internal,
                ..VersionedConfigStatus::default()
            },
        }
    }

    fn events(all: &[(u64, What, u32)]) -> Vec<Event> {
        all.iter().map(|&(at, what, version)| Event { at: second(at), what, version }).collect()
    }

    fn assigned(look: &Look, pod: usize) -> bool {
        (pod as u64) < look.status.internal.threshold
    }

    #[test]
    fn a_step_lasts_until_its_last_pod_is_proven() {
        use What::{Acknowledged, Proven, Taken};
        let moving = Some(RolloutStage::Moving);
        let looks = [
            look(5, "1", Some("2"), 0, moving),
            look(10, "1", Some("2"), 1, moving),
            look(12, "1", Some("2"), 1, moving),
            look(20, "1", Some("2"), 3, moving),
            look(30, "1", Some("2"), 3, Some(RolloutStage::Baking)),
            look(40, "2", None, 0, None),
        ];
        let pods = [
            events(&[(1, Proven, 1), (11, Taken, 2), (12, Acknowledged, 2), (13, Proven, 2)]),
            events(&[(21, Taken, 2), (22, Acknowledged, 2), (25, Proven, 2)]),
            // It is left behind: its condition comes when all is over.
            events(&[(21, Taken, 2), (23, Acknowledged, 2), (41, Proven, 2)]),
            events(&[(41, Taken, 2), (42, Acknowledged, 2)]),
        ];
        let [one, two] = &steps(&pods, &looks, 2, assigned)[..] else { panic!("there are two steps") };
        let times = |step: &Step| [step.taken, step.acknowledged, step.proven].map(|time| time.unwrap().as_secs());
        assert_eq!((one.pods, one.assigned, times(one), one.skipped), (1, second(10), [1, 2, 3], 0));
        assert_eq!((two.pods, two.assigned, times(two), two.skipped), (2, second(20), [1, 3, 21], 1));
        assert_eq!(current(&looks, 2), Some(second(40)));
    }

    #[test]
    fn a_pod_that_never_acknowledges_is_not_skipped_but_proves_nothing() {
        let moving = Some(RolloutStage::Moving);
        let looks = [look(10, "1", Some("2"), 1, moving), look(50, "2", None, 0, None)];
        let pods = [events(&[(11, What::Taken, 2)])];
        let step = &steps(&pods, &looks, 2, assigned)[0];
        assert_eq!((step.taken, step.proven, step.skipped), (Some(second(1)), None, 0));
    }

    #[test]
    fn the_way_back_counts_from_the_verdict_and_from_the_harm() {
        use What::{Proven, Refused, Taken, Unproven};
        let mut looks = [
            look(10, "1", Some("2"), 2, Some(RolloutStage::Moving)),
            look(13, "1", Some("2"), 0, Some(RolloutStage::RollingBack)),
        ];
        looks[1].status.rollout.failure = Some(RolloutFailure {
            version: "2".to_owned(),
            digest: String::new(),
            retry_time: None,
            reason: Reason::Failed,
            message: String::new(),
            overridden: None,
        });
        let mut pods = vec![
            events(&[
                (1, Proven, 1),
                (11, Taken, 2),
                (12, Refused, 2),
                (12, Unproven, 2),
                (14, Taken, 1),
                (17, Proven, 1),
            ]),
            events(&[(1, Proven, 1), (11, Taken, 2), (15, Taken, 1), (16, Unproven, 2), (18, Proven, 1)]),
            events(&[(1, Proven, 1)]),
        ];
        let found = back(&pods, &looks, 2, 1).unwrap();
        let expected = Back {
            verdict: second(1),
            pods: 2,
            taken_after_harm: Some(second(3)),
            taken: Some(second(2)),
            proven: Some(second(5)),
            rewritten: 2,
        };
        assert_eq!(found, expected);
        pods[1].truncate(4);
        assert_eq!(back(&pods, &looks, 2, 1).unwrap().proven, None, "one still says something else");
        assert_eq!(back(&pods, &looks[..1], 2, 1), None, "there is no verdict");
    }
}
