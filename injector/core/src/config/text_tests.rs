//! Decisions about a config that follows its text.

use std::sync::Arc;

use nudge_api::{
    ConfigState, Hold, OnFailure, PartKind, Reason, ReleaseRequester, RolloutStage, VersionedConfigStatus,
};
use nudge_protocol::{ConfigName, VersionName};
use serde_json::json;

use super::decide_tests::{Fixture, at};
use crate::followed_objects::{TextWrites, record_text};
use crate::keys::PodUid;
use crate::pods::{PodPhase, PodState, Readiness, Report, ReportState};
use crate::requester::Requester;

/// Three versions, and a text that is the first.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new(None).with("1").with("2").with("3");
    fixture.config.spec.objects = vec![PartKind::ConfigMap];
    fixture.write_text("1");
    fixture.step();
    fixture
}

impl Fixture {
    /// The text is this version now.
    pub(super) fn write_text(&mut self, version: &str) {
        self.record(version, &TextWrites::default());
    }

    /// The text is this version now, and this manager has just written it.
    fn write_text_by(&mut self, version: &str, manager: &str) {
        let entry = json!({"manager": manager, "time": at(self.now), "fieldsV1": {"f:data": {}}});
        let mut writes = TextWrites::default();
        writes.add(&serde_json::from_value(json!({"managedFields": [entry]})).unwrap());
        self.record(version, &writes);
    }

    fn record(&mut self, version: &str, writes: &TextWrites) {
        self.config.status = Some(record_text(&self.config, Ok((version, writes)), &at(self.now)).0);
    }
}

/// The state of a move: the current version, the target, and whether pods are moved.
fn state(status: &VersionedConfigStatus) -> (&str, Option<&str>, Option<RolloutStage>) {
    (status.current_version.as_deref().unwrap_or_default(), status.target_version.as_deref(), status.rollout.stage)
}

/// A pod that runs this version, and has acknowledged it.
fn pod(runs: &str) -> Vec<Arc<PodState>> {
    pod_with(runs, ReportState::Acknowledged)
}

/// A pod that runs this version, with this report.
fn pod_with(runs: &str, state: ReportState) -> Vec<Arc<PodState>> {
    let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new(runs).ok())];
    vec![Arc::new(PodState {
        uid: PodUid::new("a").unwrap(),
        readiness: Readiness::Ready,
        containers_ready: true,
        phase: PodPhase::Running,
        report: Some(Report { versions, state, reasons: Vec::new(), at: None }),
        ..PodState::default()
    })]
}

#[test]
fn a_text_lasts_over_decisions_until_a_version_is_named() {
    let mut fixture = fixture();
    fixture.write_text("2");
    fixture.now += 60;
    let status = fixture.step().status;
    assert_eq!((state(&status), status.desired_version.as_deref()), (("2", None, None), Some("2")));
    assert_eq!(status.internal.text.map(|text| text.version).as_deref(), Some("2"));
    fixture.config.spec.version = Some("1".to_owned());
    let status = fixture.step().status;
    assert_eq!((status.current_version.as_deref(), status.internal.text), (Some("1"), None));
    assert!(status.conditions.iter().all(|condition| condition.type_ != "Fetched"));
}

#[test]
fn until_the_text_is_read_no_version_is_wanted() {
    let mut fixture = Fixture::new(None).with("1");
    fixture.config.spec.objects = vec![PartKind::ConfigMap];
    let status = fixture.step().status;
    assert_eq!((status.current_version.as_deref(), fixture.ready().1.as_str()), (None, "Unsettled"));
    let missing = Reason::NoText.explained("ConfigMap shop does not exist");
    fixture.config.status = Some(record_text(&fixture.config, Err(&missing), &at(fixture.now)).0);
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("1"), "the first version, as without objects");
}

#[test]
fn another_text_ends_a_move_at_once_and_begins_a_minute_after_that_move() {
    let mut fixture = fixture();
    fixture.pods = pod("1");
    fixture.step();
    fixture.write_text("2");
    fixture.now += 60;
    let began = fixture.now;
    assert_eq!(state(&fixture.step().status), ("1", Some("2"), Some(RolloutStage::Moving)));
    fixture.now = began + 20;
    fixture.write_text("3");
    let status = fixture.step().status;
    assert_eq!((state(&status), status.state()), (("1", Some("3"), None), ConfigState::Waiting), "no pod has it");
    assert_eq!(fixture.ready().1, "Unsettled", "{:?}", fixture.ready());
    fixture.now = began + 58;
    assert_eq!(fixture.step().status.rollout.stage, None);
    fixture.now = began + 62;
    assert_eq!(state(&fixture.step().status), ("1", Some("3"), Some(RolloutStage::Moving)));
    // The text of the current version ends a move without a wait.
    fixture.write_text("1");
    let status = fixture.step().status;
    assert_eq!((state(&status), status.state()), (("1", None, None), ConfigState::Current));
}

#[test]
fn a_tool_that_writes_the_old_text_again_and_again_ends_five_moves() {
    let mut fixture = fixture();
    fixture.pods = pod("1");
    fixture.step();
    fixture.now += 60;
    let mut waits = 0;
    // Somebody edits the text every 6 s, and the tool undoes it after 3 s.
    for _ in 0..150 {
        fixture.write_text("2");
        fixture.step();
        waits += u32::from(fixture.ready().2.contains("has ended 5 moves in a row"));
        fixture.now += 3;
        fixture.write_text("1");
        let status = fixture.step().status;
        assert_eq!((state(&status), status.state()), (("1", None, None), ConfigState::Current));
        fixture.now += 3;
    }
    let status = fixture.step().status;
    let moves = status.releases.iter().filter(|release| release.version == "2");
    assert_eq!((moves.count(), waits > 90), (5, true), "{:#?}", status.releases);
}

#[test]
fn the_text_of_the_previous_version_returns_in_one_write_unless_a_hold_withholds_it() {
    let mut fixture = fixture();
    fixture.write_text("2");
    fixture.now += 60;
    fixture.step();
    fixture.pods = pod("2");
    fixture.step();
    fixture.config.spec.rollout.hold =
        Some(Hold { reason: "release day".to_owned(), until_time: None, protected: false });
    fixture.write_text("1");
    let status = fixture.step().status;
    assert_eq!(state(&status), ("2", Some("1"), None), "everybody who writes the object could return it");
    fixture.config.spec.rollout.hold = None;
    assert_eq!(state(&fixture.step().status), ("1", Some("2"), Some(RolloutStage::Returning)));
}

#[test]
fn who_follows_a_text_is_not_sent_to_spec_version() {
    let mut missing = fixture();
    missing.write_text("9");
    missing.step();
    let expected = "version 9 does not exist; correct the text, or make another version current with kubectl nudge use shop VERSION: 3, 2, 1";
    assert_eq!(missing.ready().2, expected);

    let mut stopped = fixture();
    stopped.config.spec.rollout.on_failure = OnFailure::Hold;
    stopped.pods = pod("1");
    stopped.step();
    stopped.write_text("2");
    stopped.now += 60;
    stopped.step();
    stopped.pods = pod_with("1", ReportState::Failed(Reason::CheckRefused.explained("app says no")));
    stopped.now += 1;
    stopped.step();
    let (_, reason, message) = stopped.ready();
    assert_eq!(reason, "Failed");
    assert!(
        message.contains("correct the text, or make another version current") && !message.contains("spec.version"),
        "{message}"
    );
}

#[test]
fn a_release_of_a_text_names_its_managers_unless_a_user_requested_it() {
    let mut fixture = fixture();
    fixture.write_text_by("2", "helm");
    fixture.now += 60;
    let released = fixture.step().status.releases;
    let helm = ["helm".to_owned()];
    assert_eq!(released.last().unwrap().requester(), ReleaseRequester::Managers(&helm));
    assert_eq!(released.last().unwrap().requested_by, None, "nobody has verified it");
    // The text of the current version is no release.
    fixture.write_text_by("1", "kubectl-edit");
    fixture.now += 60;
    fixture.write_text("3");
    assert_eq!(fixture.step().status.releases.last().unwrap().requester(), ReleaseRequester::Unknown);
    fixture.now += 60;
    fixture.requesters.retry = Some(Requester::new("alice", at(fixture.now).0));
    fixture.write_text_by("2", "helm");
    fixture.now += 60;
    assert_eq!(fixture.step().status.releases.last().unwrap().requester(), ReleaseRequester::User("alice"));
    fixture.config.spec.version = Some("1".to_owned());
    assert_eq!(fixture.step().status.releases.last().unwrap().requester(), ReleaseRequester::User("alice"));
}
