//! A version that a container refuses when it is asked, and one about which it does not answer.

use nudge_api::{ConfigState, Reason};

use super::{TestRollout, failure, reason};
use crate::rollout::Acknowledgement;

#[test]
fn a_refusal_fails_the_version_at_the_first_pod_and_does_not_count_for_the_next_one() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.rest("2");
    // The pod continues to run version 1, which it acknowledged.
    let asked = rollout.with("2").remove(0);
    asked.failure = Some(Reason::CheckRefused.explained("config shop: container app refuses it: no"));
    asked.acknowledgement = Acknowledgement::Missing;
    let name = asked.name.clone();
    rollout.rest("2");
    let message = format!("pod {name} reported about version 2: config shop: container app refuses it: no");
    assert_eq!(failure(&rollout), Some((Reason::CheckRefused, message)));
    assert_eq!((rollout.assigned("1"), rollout.status.state()), (8, ConfigState::RollingBack));
    // The pod's report is on its way.
    rollout.watch("3", 20);
    assert_eq!((rollout.assigned("3"), rollout.status.state()), (0, ConfigState::RollingBack));
    for pod in &mut rollout.pods {
        (pod.failure, pod.acknowledgement) = (None, Acknowledgement::Taken);
    }
    assert_eq!(rollout.walk("3").last(), Some(&8));
    assert_eq!(rollout.status.current_version.as_deref(), Some("3"), "{:?}", rollout.status);
}

#[test]
fn a_pod_that_does_not_answer_is_silent() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.rest("2");
    let late = rollout.watch("2", 40);
    assert_eq!((reason(&late), rollout.assigned("2")), (Some(Reason::NotAcknowledged), 1));
    rollout.take();
    assert_eq!(rollout.walk("2").last(), Some(&8));
}
