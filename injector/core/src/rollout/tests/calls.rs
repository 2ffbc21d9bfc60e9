//! Failing calls outside of the rollout keep it from no verdict and from no return.

use nudge_api::{Reason, RolloutStage};

use super::memory::baking;
use super::verdict::at_step;
use super::{TestRollout, failure, reason};
use crate::rollout::Subject;

#[test]
fn while_nodes_cant_be_read_the_deadline_comes_all_the_same() {
    let mut rollout = at_step("web", 40, 2);
    rollout.nodes_unread = true;
    rollout.pods.iter_mut().for_each(Subject::fall);
    rollout.watch("2", 590);
    assert_eq!((rollout.assigned("2"), failure(&rollout)), (10, None));
    rollout.watch("2", 20);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ProgressDeadlineExceeded));
    rollout.take();
    rollout.watch("2", 1);
    assert_eq!(rollout.assigned("1"), 40);
}

#[test]
fn while_nodes_cant_be_read_agents_are_heard() {
    let mut rollout = at_step("web", 40, 2);
    rollout.nodes_unread = true;
    let why = Reason::CheckRefused.explained("check app refuses it");
    rollout.with("2").into_iter().for_each(|pod| pod.failure = Some(why.clone()));
    rollout.watch("2", 10);
    assert_eq!(rollout.assigned("1"), 40, "{:?}", rollout.status.rollout);
}

#[test]
fn a_version_that_cant_be_published_waits_for_its_deadline_and_goes_back() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.unpublished = Some(Reason::NotPublished.explained("ConfigMap shop can't be replaced, because of this"));
    for _ in 0..200 {
        rollout.watch("2", 1);
        rollout.take();
    }
    let effects = rollout.rest("2");
    assert_eq!(
        (reason(&effects), rollout.status.rollout.stage),
        (Some(Reason::NotPublished), Some(RolloutStage::Restarting))
    );
    rollout.watch("2", 600);
    let (why, message) = failure(&rollout).unwrap();
    assert_eq!(why, Reason::ProgressDeadlineExceeded);
    assert!(message.contains("because of this"), "{message}");
    rollout.take();
    rollout.watch("2", 610);
    assert_eq!((rollout.status.rollout.stage, rollout.assigned("1")), (None, 1), "{:?}", rollout.status.rollout);
}

#[test]
fn a_moment_without_nodes_ends_no_long_bake() {
    let mut rollout = baking(4, 3600);
    rollout.watch("2", 900);
    rollout.nodes_unread = true;
    rollout.pods[0].fall();
    rollout.rest("2");
    assert_eq!(failure(&rollout), None);
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Baking));
}
