//! Evidence for and against a version, with all settings at their defaults.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{BackgroundStatus, ConfigState, Pods, Reason, RolloutStage};

use super::{TestRollout, failure, on_hold, pod, reason, steps};
use crate::keys::PodUid;
use crate::pods::{Readiness, Removal};
use crate::rollout::judgement::probability::poisson_binomial_tail;
use crate::rollout::judgement::verdict::{error_share, too_many_by_chance};
use crate::rollout::{Acknowledgement, Continuation, Evidence, Neighbours, SteadyTime, Subject};

/// So many of these pods have the version, have taken it, and are watched.
pub(super) fn at_step(workload: &str, count: usize, step: usize) -> TestRollout {
    let mut rollout = TestRollout::new(&[(workload, count)]);
    rollout.rest("1");
    rollout.rest("2");
    for _ in 1..step {
        rollout.take();
        rollout.watch("2", 38);
    }
    rollout.take();
    rollout.rest("2");
    rollout
}

/// Harms the first pod with the version by `harm`, after the given number of seconds.
fn one_harmed(rollout: &mut TestRollout, after: i64, harm: impl Fn(&mut Subject, i64)) -> String {
    rollout.watch("2", after);
    let millis = rollout.millis;
    let pod = rollout.with("2").remove(0);
    harm(pod, millis);
    pod.name.clone()
}

#[test]
fn a_version_that_makes_pods_unready_reaches_the_first_step_alone() {
    for count in [3, 8, 40, 500] {
        let mut rollout = at_step("web", count, 1);
        let name = one_harmed(&mut rollout, 25, |pod, _| pod.fall());
        let held = rollout.watch("2", 5);
        assert_eq!(reason(&held), Some(Reason::Inconclusive), "others are looked at first");
        rollout.watch("2", 8);
        let others = count - 1;
        let message = format!(
            "1 of 1 pod on 2 became unready (first: {name}, 25 s after its notification); of {others} on 1 none"
        );
        assert_eq!(failure(&rollout), Some((Reason::PodNotReady, message)));
        assert_eq!((rollout.assigned("1"), rollout.status.state()), (count, ConfigState::RollingBack));
    }
}

#[test]
fn a_crash_on_notification_waits_for_nobody() {
    let mut rollout = at_step("web", 8, 1);
    one_harmed(&mut rollout, 1, Subject::crash);
    rollout.rest("2");
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ContainerRestarted));
    assert_eq!(rollout.assigned("1"), 8);
}

#[test]
fn a_refusal_of_the_agent_waits_for_nobody() {
    let mut rollout = at_step("web", 40, 3);
    one_harmed(&mut rollout, 30, |pod, _| pod.failure = Some(Reason::NoHandler.explained("it has none")));
    rollout.rest("2");
    let (reason, message) = failure(&rollout).unwrap();
    assert!(reason == Reason::NoHandler && message.ends_with("reported about version 2: it has none"), "{message}");
}

#[test]
fn a_version_that_is_not_shown_to_be_taken_is_weighed_as_unreadiness() {
    for count in [1, 8, 40] {
        let mut rollout = TestRollout::new(&[("web", count)]);
        rollout.pods.iter_mut().for_each(|pod| pod.verify_seconds = 30);
        rollout.rest("1");
        rollout.rest("2");
        rollout.take();
        rollout.with("2").remove(0).acknowledgement = Acknowledgement::Missing;
        rollout.watch("2", 32);
        assert_eq!(failure(&rollout), None);
        let pod = rollout.with("2").remove(0);
        let name = pod.name.clone();
        pod.is_unverified = true;
        let held = rollout.watch("2", 5);
        assert_eq!(reason(&held), Some(Reason::Inconclusive), "others are looked at first");
        rollout.watch("2", if count == 1 { 120 } else { 8 });
        let (reason, message) = failure(&rollout).unwrap();
        let says = format!("1 of 1 pod on 2 did not show that the version was taken (first: {name}, 32 s after its ");
        assert!(reason == Reason::NotVerified && message.starts_with(&says), "{message}");
        assert_eq!(rollout.status.state(), ConfigState::RollingBack);
    }
}

#[test]
fn a_version_that_is_shown_late_is_taken() {
    for (count, late) in [(1, 20), (8, 5)] {
        let mut rollout = TestRollout::new(&[("web", count)]);
        rollout.pods.iter_mut().for_each(|pod| pod.verify_seconds = 30);
        rollout.rest("1");
        rollout.rest("2");
        rollout.take();
        let show = |rollout: &mut TestRollout, is_shown: bool| {
            let pod = rollout.with("2").remove(0);
            pod.acknowledgement = if is_shown { Acknowledgement::Taken } else { Acknowledgement::Missing };
            pod.is_unverified = !is_shown;
        };
        rollout.with("2").remove(0).acknowledgement = Acknowledgement::Missing;
        rollout.watch("2", 32);
        show(&mut rollout, false);
        rollout.watch("2", late);
        show(&mut rollout, true);
        assert_eq!(rollout.walk("2").last(), Some(&count), "{count}: {:?}", failure(&rollout));
    }
}

#[test]
fn the_time_of_an_acknowledgement_counts_from_the_end_of_the_verification() {
    for (verify, after, silent) in [(0, 20, true), (30, 20, false), (30, 55, false), (30, 65, true), (300, 20, false)] {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout
            .pods
            .iter_mut()
            .for_each(|pod| (pod.verify_seconds, pod.acknowledgement) = (verify, Acknowledgement::Taken));
        rollout.rest("1");
        rollout.rest("2");
        rollout.take();
        rollout.with("2").remove(0).acknowledgement = Acknowledgement::Missing;
        let seconds = i64::from(rollout.spec.ack_timeout_seconds) + after;
        let effects = rollout.watch("2", seconds);
        assert_eq!(
            reason(&effects) == Some(Reason::NotAcknowledged),
            silent,
            "{verify}, {after}: {:?}",
            reason(&effects)
        );
    }
}

#[test]
fn what_befalls_others_too_is_the_environment() {
    let mut rollout = at_step("web", 40, 2);
    rollout.watch("2", 20);
    // A dependency is away: everybody is harmed within one period of the probe.
    for at in 0..40 {
        rollout.pods[at].fall();
        rollout.watch("2", i64::from(at % 4 == 0));
    }
    let held = rollout.watch("2", 120);
    assert_eq!(
        (reason(&held), matches!(held.continuation, Continuation::Inconclusive(_)), rollout.assigned("2")),
        (Some(Reason::Inconclusive), true, 10)
    );
    let message = held.continuation.explanation().unwrap().message.clone();
    assert!(message.starts_with("10 of 10 pods on 2 became unready (first: "), "{message}");
    assert!(message.contains("; of 30 on 1 30: the version may not be the cause"), "{message}");
    rollout.pods.iter_mut().for_each(Subject::recover);
    assert_eq!(rollout.walk("2").last(), Some(&40));
    assert_eq!(rollout.status.current_version.as_deref(), Some("2"));
}

#[test]
fn one_flap_of_a_pod_without_the_version_does_not_excuse_what_comes_much_later() {
    let mut rollout = at_step("web", 8, 1);
    rollout.with("1").remove(0).fall();
    rollout.watch("2", 30);
    rollout.pods.iter_mut().for_each(Subject::recover);
    rollout.spec.bake_seconds = 600;
    for _ in 0..300 {
        rollout.watch("2", 1);
        rollout.take();
    }
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Baking));
    rollout.watch("2", 200);
    rollout.pods[..4].iter_mut().for_each(Subject::fall);
    rollout.watch("2", 80);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::PodNotReady));
}

#[test]
fn an_outage_that_does_not_end_is_left_at_the_deadline() {
    let mut rollout = at_step("web", 40, 2);
    rollout.pods.iter_mut().for_each(Subject::fall);
    rollout.watch("2", 590);
    assert_eq!(rollout.assigned("2"), 10);
    rollout.watch("2", 20);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ProgressDeadlineExceeded));
}

#[test]
fn one_flap_among_many_pods_holds_for_as_long_as_it_lasts() {
    let mut rollout = at_step("web", 500, 3);
    one_harmed(&mut rollout, 20, |pod, _| pod.fall());
    assert_eq!(reason(&rollout.watch("2", 20)), Some(Reason::Inconclusive));
    rollout.pods.iter_mut().for_each(Subject::recover);
    rollout.watch("2", 38);
    assert_eq!(rollout.assigned("2"), 500, "{:?}", failure(&rollout));
}

#[test]
fn without_others_to_compare_with_it_is_held_for_two_windows() {
    for recovers in [true, false] {
        let mut rollout = at_step("web", 1, 1);
        one_harmed(&mut rollout, 25, |pod, _| pod.fall());
        rollout.watch("2", 70);
        assert_eq!((failure(&rollout), rollout.assigned("2")), (None, 1));
        if recovers {
            rollout.pods.iter_mut().for_each(Subject::recover);
        }
        rollout.watch("2", 120);
        assert_eq!(failure(&rollout).is_some(), !recovers);
        assert_eq!(rollout.status.current_version.as_deref(), Some(if recovers { "2" } else { "1" }));
    }
}

/// In the last two steps of 40 pods, so many seconds after the last one, pods crash that have the version for longer.
/// Before, or soon after that step, one did, too.
#[test]
fn what_begins_soon_after_the_last_step_excuses_nothing_that_comes_much_later() {
    for (one_before, after, fails) in [(false, 20, false), (false, 200, true), (true, 200, true)] {
        let mut rollout = at_step("web", 40, 3);
        rollout.spec.bake_seconds = 600;
        let mut harmed: Vec<PodUid> = rollout.with("2").iter().take(4).map(|pod| pod.uid.clone()).collect();
        let mut crash = |rollout: &mut TestRollout, count: usize| {
            let (millis, uids) = (rollout.millis, harmed.split_off(harmed.len() - count));
            rollout.pods.iter_mut().filter(|pod| uids.contains(&pod.uid)).for_each(|pod| pod.crash(millis));
        };
        if one_before {
            rollout.watch("2", 20);
            crash(&mut rollout, 1);
            rollout.watch("2", 80);
        } else {
            rollout.watch("2", 38);
        }
        assert_eq!((rollout.assigned("2"), failure(&rollout)), (40, None));
        rollout.take();
        if !one_before {
            rollout.watch("2", 20);
            crash(&mut rollout, 1);
        }
        rollout.watch("2", after);
        crash(&mut rollout, 3);
        rollout.watch("2", 100);
        assert_eq!(failure(&rollout).is_some(), fails, "{one_before} {after}");
    }
}

#[test]
fn what_happens_to_pods_that_are_taken_away_is_no_harm() {
    type Change = fn(&mut Subject);
    let cases: [(&str, Change); 5] = [
        ("node", |pod| {
            pod.node_ready = false;
            pod.fall();
        }),
        ("disrupted", |pod| {
            pod.fall();
            pod.removal = Removal::Disrupted;
        }),
        ("reboot", |pod| {
            pod.change_restarts(|sums| sums.crashes += 1);
            pod.agent.restarts += 1;
        }),
        ("gate", |pod| pod.lose_readiness(0)),
        ("ended", |pod| {
            pod.fall();
            pod.end(true);
        }),
    ];
    for (name, harm) in cases {
        let mut rollout = at_step("web", 8, 2);
        one_harmed(&mut rollout, 20, |pod, _| harm(pod));
        rollout.watch("2", 60);
        assert_eq!(failure(&rollout), None, "{name}");
        rollout.pods.iter_mut().for_each(|pod| {
            pod.recover();
            (pod.node_ready, pod.removal) = (true, Removal::None);
            pod.end(false);
        });
        assert_eq!(rollout.walk("2").last(), Some(&8), "{name}");
    }
    let mut rollout = at_step("web", 8, 2);
    let name = one_harmed(&mut rollout, 20, |pod, _| pod.fall());
    rollout.watch("2", 5);
    rollout.pods.retain(|pod| pod.name != name);
    assert_eq!(rollout.walk("2").last(), Some(&7), "evicted");
}

#[test]
fn a_broken_pod_that_somebody_deletes_was_harmed() {
    let deletions: [fn(&mut TestRollout, &str); 2] = [
        |rollout, name| rollout.pods.retain(|pod| pod.name != name),
        |rollout, name| rollout.pods.iter_mut().filter(|pod| pod.name == name).for_each(|pod| pod.end(true)),
    ];
    for (delete, after, fails) in [(0, 7, false), (0, 12, true), (1, 7, false), (1, 12, true)] {
        let mut rollout = at_step("web", 8, 2);
        let name = one_harmed(&mut rollout, 20, |pod, _| pod.fall());
        rollout.watch("2", after);
        deletions[delete](&mut rollout, &name);
        rollout.watch("2", 60);
        assert_eq!(failure(&rollout).is_some(), fails, "{delete} after {after} s");
    }
}

#[test]
fn a_pod_that_is_unready_for_less_than_three_seconds_is_not_harmed() {
    let mut rollout = at_step("web", 8, 1);
    for _ in 0..20 {
        rollout.with("2").into_iter().for_each(Subject::fall);
        rollout.watch("2", 2);
        rollout.with("2").into_iter().for_each(Subject::recover);
        rollout.watch("2", 2);
    }
    assert_eq!((failure(&rollout), rollout.assigned("2")), (None, 1), "nor does it prove anything");
    rollout.with("2").into_iter().for_each(Subject::fall);
    rollout.watch("2", 2);
    rollout.with("2").into_iter().for_each(Subject::recover);
    rollout.watch("2", 1);
    // Ready for two seconds at a time.
    for _ in 0..3 {
        rollout.with("2").into_iter().for_each(Subject::fall);
        rollout.watch("2", 4);
        rollout.with("2").into_iter().for_each(Subject::recover);
        rollout.watch("2", 2);
    }
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::PodNotReady));
}

#[test]
fn one_short_time_of_unreadiness_is_forgiven_and_the_next_is_not() {
    let mut rollout = at_step("web", 8, 1);
    for (times, blames) in [(1, false), (2, true)] {
        one_harmed(&mut rollout, 20, |pod, _| pod.fall());
        rollout.watch("2", 8);
        rollout.with("2").into_iter().for_each(Subject::recover);
        rollout.watch("2", 14);
        assert_eq!(failure(&rollout).is_some(), blames, "{times}");
    }
}

#[test]
fn what_a_probe_notices_too_soon_had_begun_before_the_notification() {
    let mut rollout = at_step("web", 8, 1);
    one_harmed(&mut rollout, 10, |pod, _| pod.fall());
    rollout.watch("2", 60);
    assert_eq!((failure(&rollout), rollout.assigned("2")), (None, 1));
    // The pod's container had ended, and is started again now.
    let millis = rollout.millis;
    rollout.with("2").into_iter().for_each(|pod| pod.crash(millis));
    rollout.watch("2", 15);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ContainerRestarted));
}

#[test]
fn where_others_on_the_node_flap_in_the_same_share_the_node_is_blamed() {
    for (others, harmed, blames) in [(4, 4, false), (4, 3, true), (4, 0, true)] {
        let mut rollout = at_step("web", 8, 1);
        let node = rollout.with("2")[0].node.clone().unwrap();
        let at = SteadyTime(rollout.millis + 20_000);
        let own = (0..others).map(|other| (other < harmed).then_some(at)).collect();
        rollout.neighbours.insert(node, Neighbours { own, others: Vec::new() });
        one_harmed(&mut rollout, 20, |pod, _| pod.fall());
        rollout.watch("2", 30);
        assert_eq!(failure(&rollout).is_some(), blames, "{harmed} of {others}");
    }
}

#[test]
fn what_others_on_the_node_do_much_later_excuses_nothing() {
    let mut rollout = at_step("web", 500, 2);
    one_harmed(&mut rollout, 20, |pod, millis| {
        pod.crash(millis);
    });
    rollout.watch("2", 2);
    let harmed = |rollout: &TestRollout| rollout.status.rollout.evidence.as_ref().map(|evidence| evidence.harmed);
    assert_eq!(harmed(&rollout), Some(1));
    let at = SteadyTime(rollout.millis + 20_000);
    let nodes: Vec<String> = rollout.pods.iter().filter_map(|pod| pod.node.clone()).collect();
    for node in nodes {
        rollout.neighbours.insert(node, Neighbours { own: vec![Some(at); 4], others: Vec::new() });
    }
    rollout.watch("2", 22);
    assert_eq!(harmed(&rollout), Some(1), "{:?}", failure(&rollout));
}

#[test]
fn what_happened_while_nobody_looked_is_no_harm_but_holds() {
    // A new leader knows nothing of the last one's evidence.
    let mut rollout = at_step("web", 8, 2);
    let now = rollout.millis / 1000;
    rollout.with("2").into_iter().for_each(|pod| {
        pod.fall();
        pod.lose_readiness(now + 5);
    });
    rollout.evidence = Evidence::default();
    let held = rollout.watch("2", 500);
    assert_eq!((reason(&held), rollout.assigned("2")), (Some(Reason::Progressing), 2), "{held:?}");
    rollout.watch("2", 110);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ProgressDeadlineExceeded));
}

#[test]
fn max_harmed_replaces_chance_and_not_the_comparison() {
    for (max_harmed, harmed, blames) in
        [(Pods::Count(0), 1, true), (Pods::Count(2), 2, false), (Pods::Share("10%".to_owned()), 3, true)]
    {
        let mut rollout = TestRollout::new(&[("web", 80)]);
        rollout.spec.steps = steps(&["25%"]);
        rollout.spec.max_harmed = Some(max_harmed.clone());
        rollout.rest("1");
        rollout.rest("2");
        rollout.take();
        rollout.watch("2", 20);
        rollout.with("2").into_iter().take(harmed).for_each(Subject::fall);
        rollout.watch("2", 30);
        assert_eq!(failure(&rollout).is_some(), blames, "{harmed} with {max_harmed:?}");
    }
}

/// A new pod of this template, which is not Ready yet.
fn newborn(number: usize, template: &str) -> Subject {
    let mut new = pod("web", number);
    (new.readiness, new.template) = (Readiness::Never, Some(template.to_owned()));
    new.fall();
    new
}

#[test]
fn new_pods_that_do_not_start_are_evidence_if_there_are_two_or_older_ones_started() {
    for (count, blames) in [(1, false), (2, true)] {
        let mut rollout = at_step("web", 8, 1);
        rollout.spec.steps = steps(&["100%"]);
        rollout.generation += 1;
        rollout.watch("2", 40);
        rollout.take();
        rollout.pods.extend((100..100 + count).map(|number| newborn(number, "a")));
        rollout.watch("2", 1);
        rollout
            .pods
            .iter_mut()
            .filter(|pod| !pod.is_ready())
            .for_each(|pod| pod.change_restarts(|sums| sums.crashes = 2));
        rollout.watch("2", 5);
        assert_eq!(failure(&rollout).map(|failure| failure.0), blames.then_some(Reason::NewPodsFailing), "{count}");
    }
}

#[test]
fn one_new_pod_of_each_of_two_workloads_is_as_much_as_two_of_one() {
    // New pods of these workloads fail with the target, and of these with the current version.
    let two = &["web", "api"][..];
    for (target, current, blames) in [(&["web"][..], &[][..], false), (two, &[], true), (two, &["web"], false)] {
        let mut rollout = TestRollout::new(&[("web", 4), ("api", 4)]);
        rollout.spec.steps = steps(&["50%"]);
        rollout.rest("1");
        rollout.rest("2");
        rollout.take();
        rollout.rest("2");
        rollout.watch("2", 5);
        for (workloads, version) in [(target, "2"), (current, "1")] {
            for workload in workloads {
                let new = |number| {
                    let mut new = pod(workload, number);
                    new.readiness = Readiness::Never;
                    new.fall();
                    new
                };
                let new = (100..200).map(new).find(|new| rollout.version_of(new) == Some(version));
                rollout.pods.extend(new);
            }
        }
        rollout.watch("2", 1);
        rollout
            .pods
            .iter_mut()
            .filter(|pod| !pod.is_ready())
            .for_each(|pod| pod.change_restarts(|sums| sums.crashes = 2));
        rollout.watch("2", 5);
        let failed = failure(&rollout).map(|failure| failure.0);
        assert_eq!(failed, blames.then_some(Reason::NewPodsFailing), "{target:?} {current:?}");
    }
}

#[test]
fn new_pods_of_a_new_template_are_not_the_versions_fault_alone() {
    let mut rollout = at_step("web", 8, 1);
    rollout.spec.steps = steps(&["100%"]);
    rollout.watch("2", 40);
    rollout.take();
    rollout.pods.extend((100..103).map(|number| newborn(number, "b")));
    rollout.watch("2", 1);
    rollout.pods.iter_mut().filter(|pod| !pod.is_ready()).for_each(|pod| pod.change_restarts(|sums| sums.crashes = 2));
    let held = rollout.watch("2", 5);
    assert_eq!((reason(&held), failure(&rollout)), (Some(Reason::Inconclusive), None));
}

#[test]
fn how_often_pods_are_harmed_anyway_is_counted_hourly_and_halved_weekly() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.watch("1", 1800);
    rollout.pods[0].fall();
    rollout.watch("1", 60);
    rollout.pods[0].recover();
    assert_eq!(rollout.background, None, "not before an hour has passed");
    rollout.watch("1", 1740);
    let hour = rollout.background.clone().unwrap();
    assert_eq!(hour.harmed, 1);
    assert!((7 * 3600..=8 * 3600).contains(&hour.pod_seconds), "{hour:?}");
    let start_time = hour.start_time.clone();
    rollout.background = Some(BackgroundStatus { pod_seconds: 1_000_000, harmed: 100, ..hour });
    rollout.later(7 * 86_400);
    rollout.evidence.reset_after_gap();
    rollout.watch("1", 10);
    let week = rollout.background.clone().unwrap();
    assert!(week.harmed == 50 && week.pod_seconds / 1000 == 500 && week.start_time > start_time, "{week:?}");
}

#[test]
fn pods_that_are_often_harmed_anyway_say_less() {
    for (harmed, blames) in [(0, true), (1000, false)] {
        let mut rollout = at_step("web", 8, 1);
        let start_time = Time(Timestamp::from_millisecond(rollout.millis).unwrap());
        rollout.background = Some(BackgroundStatus { start_time, pod_seconds: 1_000_000, harmed });
        one_harmed(&mut rollout, 25, |pod, _| pod.fall());
        let held = rollout.watch("2", 20);
        assert_eq!(failure(&rollout).is_some(), blames, "{harmed}: {held:?}");
    }
}

#[test]
fn harm_soon_after_the_version_became_current_is_shown() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.walk("2");
    assert_eq!(rollout.status.current_version.as_deref(), Some("2"));
    rollout.watch("2", 300);
    rollout.pods[..4].iter_mut().for_each(Subject::fall);
    rollout.watch("2", 90);
    let suspect = rollout.suspect.clone().unwrap();
    assert!(suspect.starts_with("version 2: 4 of 8 pods on 2 became unready"), "{suspect}");
    assert_eq!((rollout.status.rollout.stage, rollout.status.state()), (None::<RolloutStage>, ConfigState::Current));
    // After fifteen minutes nobody looks any more.
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.walk("2");
    rollout.watch("2", 1000);
    rollout.pods[..4].iter_mut().for_each(Subject::fall);
    rollout.watch("2", 90);
    assert_eq!(rollout.suspect, None);
}

#[test]
fn a_late_harm_weighs_the_same_whether_or_not_anybody_looked_before_it() {
    for (count, crash_loop) in [(1, false), (3, false), (40, false), (40, true)] {
        let verdict = |looks: bool| {
            let mut rollout = at_step("web", count, 1);
            rollout.spec.bake_seconds = 86_400;
            if count == 1 {
                rollout.watch("2", 60);
            }
            rollout.closed_gate = Some(on_hold());
            rollout.watch("2", 60);
            // Eleven and a half times a quarter of an hour.
            if looks {
                drop(rollout.watch("2", 10_350));
            } else {
                rollout.later(10_350);
            }
            for _ in 0..if crash_loop { 8 } else { 1 } {
                let millis = rollout.millis;
                rollout.with("2").remove(0).crash(millis);
                rollout.watch("2", 10);
                rollout.with("2").remove(0).recover();
                rollout.watch("2", 20);
            }
            rollout.watch("2", 200);
            failure(&rollout).map(|failure| failure.0)
        };
        assert_eq!(verdict(false), verdict(true), "{count} pods, crash loop: {crash_loop}");
        assert!(crash_loop || verdict(false).is_none(), "one restart in three hours is chance: {count} pods");
    }
}

#[test]
fn the_page_has_the_numbers_of_the_rule() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = |text: &str| assert!(page.contains(text), "injector/README.md does not say: {text}");
    // The maximum number of pod-seconds that makes this number of harmed pods too many for chance.
    let rate = 1.0 / (7.0 * 86_400.0);
    let suffice = |harmed: u32, epoch: u32| {
        let enough = |seconds: &u32| too_many_by_chance(f64::from(*seconds) * rate, harmed, epoch);
        (1..1_000_000).take_while(enough).last().unwrap_or(0)
    };
    for (harmed, seconds, row) in [
        (1, 272, "| up to 272 s, such as one pod for four minutes | 1 |"),
        (2, 3 * 3600 + 35 * 60, "| up to 3 h 35 min, such as 40 pods for five minutes | 2 |"),
        (3, 15 * 3600, "| up to 15 h, such as 100 pods for nine minutes | 3 |"),
        (4, 33 * 3600, "| up to 33 h | 4 |"),
    ] {
        says(row);
        let (least, unit) = (suffice(harmed, 1), if harmed == 1 { 1 } else { 60 * 60 });
        assert!((seconds..seconds + unit).contains(&least), "{row}: {least}");
    }
    assert!(suffice(2, 1) - (3 * 3600 + 35 * 60) < 60 && 40 * 300 < suffice(2, 1) && 100 * 540 < suffice(3, 1));
    // All looks together err in one rollout of a thousand.
    says("less than 0.001 × 2⁻ᵏ");
    let spent: f64 = (1..10_000).map(error_share).sum();
    assert!(spent < 0.001 && spent > 0.000_999, "{spent}");
    // The example of the comparison: 10 of 40 pods have the version, some of them are harmed, and then one without it.
    for (harmed, probability, text) in
        [(5_u32, 0.0014, "the probability is 0.0014"), (6, 0.0002, "the probability is 0.0002")]
    {
        says(text);
        let shares: Vec<f64> = (0..=harmed).map(|before| f64::from(10 - before) / f64::from(40 - before)).collect();
        let exact = poisson_binomial_tail(&shares, harmed);
        assert!((exact - probability).abs() < 0.000_05, "{harmed}: {exact}");
    }
}

#[test]
fn a_version_is_assigned_to_all_pods_at_once_where_that_is_requested_even_on_hold() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods.iter_mut().for_each(Subject::fall);
    rollout.closed_gate = Some(on_hold());
    rollout.neighbour = Some("keys");
    rollout.override_reason = Some("a key leaked");
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 8);
    let description = "version 2 is assigned to 8 more pods at once: a key leaked";
    assert!(rollout.events.iter().any(|event| event.explanation.message == description), "{:?}", rollout.events);
}

#[test]
fn a_version_that_failed_at_once_waits_for_another_reason_or_a_retry() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.override_reason = Some("a key leaked");
    rollout.rest("2");
    rollout.take();
    rollout.watch("2", 10);
    for pod in &mut rollout.pods {
        pod.crash(rollout.millis);
    }
    rollout.watch("2", 120);
    rollout.take();
    rollout.rest("2");
    assert_eq!((rollout.status.state(), rollout.assigned("2")), (ConfigState::Failed, 0));
    rollout.generation += 1;
    let held = rollout.rest("2").continuation.explanation().unwrap().clone();
    assert_eq!((rollout.status.state(), rollout.assigned("2")), (ConfigState::Failed, 0), "another change of spec");
    assert!(held.message.ends_with("kubectl nudge retry tries 2 again"), "{}", held.message);
    let failed = rollout.status.clone();
    rollout.override_reason = None;
    rollout.rest("2");
    assert_eq!((rollout.status.state(), rollout.assigned("2")), (ConfigState::Failed, 0), "the end of an override");
    rollout.retry();
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 1, "in steps");
    (rollout.status, rollout.override_reason) = (failed, Some("a key leaked"));
    rollout.rest("2");
    assert_eq!((rollout.status.state(), rollout.assigned("2")), (ConfigState::Failed, 0), "a retry goes out in steps");
    rollout.override_reason = Some("no, really");
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 8);
}
