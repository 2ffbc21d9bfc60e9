//! The gate of approvals, from the objects to the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Approval, ApprovalDecision, ConfigState, GateStatus, Hold, Override, PartKind, Reason};

use super::decide_tests::Fixture;
use crate::governance::{Right, UserDecision, sealed_digest};
use crate::requester::Requester;

impl Fixture {
    /// Creates a config that needs approvals. Alice has made all of its versions.
    fn guarded(current: Option<&str>, required: u32) -> Self {
        let mut fixture = Self::new(current);
        fixture.config.spec.rollout.approval = Some(Approval { required, ..Approval::default() });
        fixture.asked_by(Some("dora"));
        fixture
    }

    fn asked_by(&mut self, user: Option<&str>) {
        self.requesters.current = user.map(|user| Requester::new(user, Timestamp::from_second(1).unwrap()));
    }

    fn wants(&mut self, version: &str) {
        self.config.spec.version = Some(version.to_owned());
        self.config.metadata.generation = self.config.metadata.generation.map(|it| it + 1);
    }

    /// The user has approved the version as it is sealed.
    fn approve(&mut self, user: &str, version: &str) {
        let status = self.config.status.as_ref().unwrap();
        self.approvals.decisions.push(UserDecision {
            version: version.to_owned(),
            digest: sealed_digest(status.version(version).unwrap()),
            user: user.to_owned(),
            decision: ApprovalDecision::Approve,
            reason: "read it".to_owned(),
            at: Time(Timestamp::from_second(7).unwrap()),
            right: Right::Granted,
        });
    }
}

#[test]
fn the_first_version_of_a_config_waits_too_and_its_approvals_are_recorded() {
    let mut fixture = Fixture::guarded(None, 2).with("1");
    fixture.asked_by(None);
    let waits = fixture.step().status;
    assert_eq!((waits.current_version, fixture.ready().1.as_str()), (None, "AwaitingApproval"));
    fixture.approve("bob", "1");
    fixture.approve("alice", "1");
    assert_eq!(fixture.step().status.current_version, None, "alice has made it");
    fixture.approve("carol", "1");
    let status = fixture.step().status;
    assert_eq!(status.current_version.as_deref(), Some("1"));
    let users: Vec<&str> = status.releases[0].approvals.iter().map(|one| one.user.as_str()).collect();
    assert_eq!(users, ["bob", "carol"]);
}

#[test]
fn a_version_waits_and_what_runs_or_ran_before_does_not() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    assert_eq!(fixture.step().status.state(), ConfigState::Current);
    fixture.config.spec.rollout.approval = Some(Approval::default());
    fixture.asked_by(Some("dora"));
    fixture.wants("2");
    let waits = fixture.step().status;
    assert_eq!((waits.current_version.as_deref(), waits.target_version.as_deref()), (Some("1"), Some("2")));
    assert_eq!(fixture.ready().1, "AwaitingApproval");
    // Who activates it does not approve it.
    fixture.approve("dora", "2");
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("1"));
    fixture.approve("bob", "2");
    for _ in 0..4 {
        fixture.now += 100;
        fixture.step();
    }
    let status = fixture.step().status;
    assert_eq!(status.current_version.as_deref(), Some("2"));
    let last = status.releases.last().unwrap();
    assert_eq!((last.approvals.len(), last.approvals[0].user.as_str()), (1, "bob"));
    // Back, although approvals are withdrawn.
    fixture.approvals.decisions.clear();
    fixture.wants("1");
    fixture.now += 100;
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("1"));
    // Pods have left the version, so it has to be approved again.
    fixture.wants("2");
    fixture.step();
    assert_eq!(fixture.ready().1, "AwaitingApproval");
}

#[test]
fn an_override_waits_for_nobody_and_only_for_its_version() {
    // The last one has expired.
    for (named, until, current) in [("2", 10_000, "2"), ("3", 10_000, "1"), ("2", 1, "1")] {
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.step();
        fixture.config.spec.rollout.approval = Some(Approval::default());
        let until_time = Time(Timestamp::from_second(until).unwrap());
        let overridden = Override { version: named.to_owned(), reason: "outage".to_owned(), until_time };
        fixture.config.spec.rollout.overridden = Some(overridden);
        fixture.wants("2");
        for _ in 0..5 {
            fixture.now += 100;
            fixture.step();
        }
        let status = fixture.step().status;
        assert_eq!(status.current_version.as_deref(), Some(current), "an override of {named} until {until}");
    }
}

#[test]
fn parts_are_read_again_to_know_who_made_them() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.rollout.approval = Some(Approval::default());
    fixture.asked_by(Some("dora"));
    fixture.facts.clear();
    fixture.wants("2");
    let decision = fixture.step();
    assert_eq!(decision.unread, [(PartKind::ConfigMap, "shop-2".to_owned())]);
    assert_eq!(fixture.ready().1, "AwaitingApproval");
    // If authors may approve, the authors are not looked up.
    fixture.config.spec.rollout.approval = Some(Approval { not_author: false, ..Approval::default() });
    assert_eq!(fixture.step().unread, []);
}

#[test]
fn two_users_approve_a_text_whoever_created_its_objects() {
    for author in [Some("the control plane"), None] {
        let mut fixture = Fixture::new(None).with("1").with("2");
        fixture.config.spec.objects = vec![PartKind::ConfigMap];
        fixture.write_text("1");
        fixture.step();
        fixture.config.spec.rollout.approval = Some(Approval::default());
        // No webhook has seen who created an object.
        fixture.facts.values_mut().for_each(|facts| facts.author = author.map(str::to_owned));
        fixture.write_text("2");
        fixture.now += 60;
        fixture.step();
        fixture.approve("bob", "2");
        fixture.step();
        let (_, reason, message) = fixture.ready();
        assert_eq!(reason, "AwaitingApproval", "{author:?}");
        assert!(message.contains("has 1 of 2 approvals") && message.contains("kubectl nudge approve"), "{message}");
        fixture.approve("carol", "2");
        assert_eq!(fixture.step().status.current_version.as_deref(), Some("2"), "{author:?}");
    }
}

#[test]
fn an_approval_of_what_was_there_before_does_not_count() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.rollout.approval = Some(Approval::default());
    fixture.asked_by(Some("dora"));
    fixture.approve("bob", "2");
    fixture.approvals.decisions[0].digest = "sha256:other".to_owned();
    fixture.wants("2");
    fixture.step();
    assert_eq!(fixture.ready().1, "AwaitingApproval");
}

#[test]
fn the_status_says_what_withholds_it_and_until_when() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.rollout.approval = Some(Approval::default());
    fixture.asked_by(Some("dora"));
    fixture.wants("2");
    let is = |reason, until_time| Some(GateStatus { reason, until_time });
    assert_eq!(fixture.step().status.rollout.gate, is(Reason::AwaitingApproval, None));
    fixture.config.spec.rollout.approval = None;
    let at = |text: &str| Time(text.parse::<Timestamp>().unwrap());
    fixture.config.spec.rollout.hold =
        Some(Hold { until_time: Some(at("2100-01-01T00:00:00.25Z")), reason: "audit".to_owned(), protected: false });
    assert_eq!(fixture.step().status.rollout.gate, is(Reason::OnHold, Some(at("2100-01-01T00:00:01Z"))));
    fixture.wants("9");
    assert_eq!(fixture.step().status.rollout.gate, None, "there is no such version");
    fixture.wants("2");
    fixture.config.spec.rollout.hold = None;
    assert_eq!(fixture.step().status.rollout.gate, None);
}
