//! How many pods a bad version reaches with the default spec, and how pods return, even where none is healthy.

use k8s_openapi::api::core::v1::PodSpec;
use nudge_api::{Batch, Phase, Reason, RolloutSpec, RolloutStage};
use serde_json::{Value, json};

use super::tests::{TestRollout, reason};
use super::{Subject, version_by_number};
use crate::identity::Identity;
use crate::pods::{SlowestProbe, slowest_probe};

/// Pods with this readiness probe, moved as the default spec says.
fn default_rollout(workloads: &[(&str, usize)], probe: &Value) -> TestRollout {
    let mut rollout = TestRollout::new(workloads);
    rollout.spec = RolloutSpec::default();
    for pod in &mut rollout.pods {
        pod.slowest_probe = slowest(probe);
    }
    rollout
}

fn slowest(readiness: &Value) -> Option<SlowestProbe> {
    let spec: PodSpec =
        serde_json::from_value(json!({"containers": [{"name": "app", "readinessProbe": readiness}]})).unwrap();
    slowest_probe(&spec)
}

/// The pods that the version is assigned to.
fn assigned<'a>(rollout: &'a mut TestRollout, version: &str) -> Vec<&'a mut Subject> {
    let status = rollout.status.clone();
    let is = |pod: &&mut Subject| {
        version_by_number(&status, Identity::of_uid("uid"), &pod.uid, &pod.workload) == Some(version)
    };
    rollout.pods.iter_mut().filter(is).collect()
}

fn crash_loops(pod: &mut Subject, now: i64) {
    pod.ready = false;
    pod.restarts += 5;
    pod.last_restart = Some(now);
}

#[test]
fn by_default_one_pod_of_the_config_comes_first_and_then_a_quarter_of_each_workload() {
    let mut rollout = default_rollout(&[("web", 8), ("api", 8)], &json!({}));
    let mut counts = Vec::new();
    for _ in 0..5 {
        rollout.rest("2");
        counts.push(rollout.assigned("2"));
        rollout.take();
        rollout.rest("2");
        rollout.later(37_000);
    }
    assert_eq!(counts, [1, 5, 9, 13, 16]);
}

#[test]
fn a_share_is_one_of_the_config_also_where_each_workload_has_one_pod() {
    let names: Vec<String> = (0..40).map(|number| format!("shop-{number}")).collect();
    let workloads: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).chain([("web", 2)]).collect();
    let mut rollout = default_rollout(&workloads, &json!({}));
    let mut counts = Vec::new();
    while counts.last() != Some(&42) {
        rollout.rest("2");
        counts.push(rollout.assigned("2"));
        let web = assigned(&mut rollout, "2").iter().filter(|pod| pod.workload == "web").count();
        assert!(web < 2 || counts.len() > 2, "a batch has one of two pods at most: {counts:?}");
        rollout.take();
        rollout.rest("2");
        rollout.later(37_000);
    }
    assert_eq!(counts, [1, 12, 23, 34, 42]);
}

#[test]
fn the_first_pod_is_a_healthy_one() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    rollout.pods.sort_by_key(|pod| pod.number);
    for pod in &mut rollout.pods[..3] {
        pod.ready = false;
    }
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 4, "those before it in the order go with it");
    assert_eq!(assigned(&mut rollout, "2").iter().filter(|pod| pod.ready).count(), 1);
}

#[test]
fn where_the_first_pod_is_gone_before_it_proves_anything_another_one_is_next() {
    let mut rollout = default_rollout(&[("web", 8), ("Job", 8)], &json!({}));
    for gone in 0..3 {
        rollout.rest("2");
        let first: Vec<String> = assigned(&mut rollout, "2").iter().map(|pod| pod.uid.clone()).collect();
        assert!(first.len() == 1 && first[0].starts_with("web"), "after {gone}: {first:?}");
        rollout.pods.retain(|pod| pod.uid != first[0]);
    }
}

#[test]
fn a_batch_is_watched_until_the_probes_of_its_pods_notice() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    rollout.rest("2");
    rollout.take();
    let watched = rollout.rest("2").waits_for.unwrap().message;
    assert_eq!(
        watched,
        "1 of 8 pods run version 2 and are watched for 37 s, because the readiness probe of container app needs 3 x 10 s + \
         1 s to notice a change"
    );
    assert_eq!(rollout.status.rollout.watch.as_ref().map(|watch| watch.seconds), Some(37));
    rollout.later(36_999);
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 1);
    rollout.later(1);
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 3);
}

#[test]
fn a_probe_that_takes_very_long_is_not_waited_for_and_min_ready_seconds_may_be_longer() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({"periodSeconds": 600}));
    rollout.rest("2");
    rollout.take();
    rollout.rest("2");
    assert_eq!(rollout.status.rollout.watch.as_ref().map(|watch| watch.seconds), Some(300));
    rollout.spec.min_ready_seconds = 301;
    rollout.rest("2");
    let watch = rollout.status.rollout.watch.clone().unwrap();
    assert_eq!((watch.seconds, watch.reason.as_str()), (301, "spec.rollout.minReadySeconds says so"));
}

#[test]
fn pods_that_were_unhealthy_before_hold_nothing_up_and_the_healthy_ones_judge() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    for pod in &mut rollout.pods[..6] {
        crash_loops(pod, 990);
    }
    for _ in 0..10 {
        rollout.rest("2");
        rollout.take();
        rollout.rest("2");
        rollout.later(60_000);
    }
    rollout.rest("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"), "{:?}", rollout.status);
    // The same, and a healthy one falls.
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    for pod in &mut rollout.pods[..6] {
        crash_loops(pod, 990);
    }
    rollout.rest("2");
    rollout.take();
    let pod = assigned(&mut rollout, "2").into_iter().find(|pod| pod.ready).unwrap();
    pod.ready = false;
    rollout.rest("2");
    assert_eq!((rollout.status.phase, rollout.assigned("1")), (Phase::RollingBack, 8));
}

#[test]
fn where_no_pod_is_healthy_one_batch_gets_the_version_and_the_way_out_is_named() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    for pod in &mut rollout.pods {
        crash_loops(pod, 990);
    }
    let held = rollout.rest("2");
    assert_eq!((reason(&held), held.held, rollout.assigned("2")), (Some(Reason::NobodyToJudge), true, 1));
    let message = held.waits_for.unwrap().message;
    assert!(message.contains("kubectl nudge rollback") && message.contains("100%"), "{message}");
    rollout.spec.batch = Some(Batch::Share("100%".to_owned()));
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 8);
}

#[test]
fn of_two_workloads_the_one_is_begun_with_where_fewer_pods_go_along() {
    let mut rollout = default_rollout(&[("web", 8), ("api", 8)], &json!({}));
    let mut web: Vec<usize> = (0..16).filter(|&at| rollout.pods[at].workload == "web").collect();
    web.sort_by_key(|&at| rollout.pods[at].number);
    // Ready, and restarted a moment ago: they can't judge, and would get the version with the first that can.
    for &at in &web[..3] {
        (rollout.pods[at].restarts, rollout.pods[at].last_restart) = (1, Some(990));
    }
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 1);
    assert_eq!(assigned(&mut rollout, "2")[0].workload, "api");
}

#[test]
fn a_silent_pod_alone_stops_nothing() {
    let mut rollout = default_rollout(&[("web", 40)], &json!({}));
    rollout.rest("2");
    let first = assigned(&mut rollout, "2")[0].uid.clone();
    for _ in 0..3 {
        rollout.take();
        rollout.pods.iter_mut().filter(|pod| pod.uid == first).for_each(|pod| pod.acknowledged = false);
        rollout.rest("2");
        rollout.later(40_000);
    }
    rollout.rest("2");
    assert!(rollout.assigned("2") >= 12, "{:?}", rollout.status.rollout);
}

#[test]
fn pods_that_never_started_hold_nothing_up() {
    let mut rollout = default_rollout(&[("web", 2)], &json!({}));
    for pod in &mut rollout.pods {
        (pod.running, pod.ready, pod.was_ready, pod.in_contact) = (false, false, false, false);
    }
    rollout.spec.batch = Some(Batch::Share("100%".to_owned()));
    rollout.spec.bake_seconds = 0;
    rollout.rest("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"), "{:?}", rollout.status);
}

#[test]
fn the_previous_version_is_assigned_to_all_in_one_write_even_where_none_is_healthy() {
    let mut rollout = default_rollout(&[("web", 8), ("api", 1)], &json!({}));
    (rollout.status.current, rollout.status.previous) = (Some("2".to_owned()), Some("1".to_owned()));
    for pod in &mut rollout.pods {
        pod.runs = Some("2".to_owned());
        crash_loops(pod, 990);
    }
    rollout.spec.paused = true;
    rollout.neighbour = Some("keys");
    let waits = rollout.rest("1");
    assert_eq!(
        (reason(&waits), rollout.assigned("1"), rollout.status.phase),
        (Some(Reason::RollingBack), 9, Phase::RollingBack)
    );
    assert_eq!((rollout.status.rollout.stage, &rollout.status.previous), (Some(RolloutStage::Leaving), &None));
    assert!(
        rollout.status.rollout.workloads_restarted_at.is_some(),
        "workloads that take versions by a restart are restarted back"
    );
    // Agents answer, whatever becomes of their applications.
    rollout.take();
    rollout.rest("1");
    assert_eq!((rollout.status.phase, rollout.status.target.as_deref()), (Phase::Current, None));
    // What was left is no way back: it is moved to like any other version.
    rollout.spec.paused = false;
    rollout.neighbour = None;
    rollout.later(1_000_000);
    for pod in &mut rollout.pods {
        pod.ready = true;
    }
    rollout.rest("2");
    assert_eq!((rollout.assigned("2"), rollout.status.rollout.stage), (1, Some(RolloutStage::Moving)));
}

#[test]
fn a_rollout_can_be_left_for_the_previous_version() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    (rollout.status.current, rollout.status.previous) = (Some("2".to_owned()), Some("1".to_owned()));
    rollout.rest("3");
    rollout.take();
    rollout.rest("1");
    assert_eq!((rollout.assigned("1"), rollout.status.phase), (8, Phase::RollingBack));
    rollout.take();
    rollout.rest("1");
    assert_eq!((rollout.status.current.as_deref(), rollout.status.phase), (Some("1"), Phase::Current));
}

#[test]
fn a_silent_pod_that_falls_is_held_against_the_version() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    rollout.spec.batch = Some(Batch::Count(2));
    rollout.rest("2");
    rollout.take();
    assigned(&mut rollout, "2")[0].acknowledged = false;
    rollout.rest("2");
    rollout.later(i64::from(rollout.spec.ack_timeout_seconds) * 1000);
    rollout.rest("2");
    assert_eq!(rollout.status.rollout.skipped.len(), 1, "it is not waited for");
    assigned(&mut rollout, "2")[0].ready = false;
    rollout.rest("2");
    assert_eq!(rollout.status.rollout.failure.as_ref().map(|it| it.reason), Some(Reason::PodNotReady));
}

#[test]
fn while_the_node_of_an_assigned_pod_is_away_there_is_no_further_batch_and_no_blame() {
    let mut rollout = default_rollout(&[("web", 8)], &json!({}));
    rollout.spec.batch = Some(Batch::Count(2));
    rollout.rest("2");
    rollout.take();
    let pod = &mut *assigned(&mut rollout, "2")[0];
    (pod.node_ready, pod.ready) = (false, false);
    rollout.rest("2");
    rollout.later(3_600_000);
    let waits = rollout.rest("2");
    assert_eq!((reason(&waits), rollout.assigned("2")), (Some(Reason::NodeNotReady), 2), "{waits:?}");
    let pod = &mut *assigned(&mut rollout, "2")[0];
    (pod.node_ready, pod.ready) = (true, true);
    rollout.rest("2");
    rollout.later(37_000);
    rollout.rest("2");
    assert_eq!((rollout.assigned("2"), &rollout.status.rollout.failure), (4, &None));
}
