//! Cases of [`decide`], from the objects to the status.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, ConfigState, Hold, PartKind, Reason, RolloutFailure, RolloutStage, VersionedConfig,
    VersionedConfigSpec, condition, set_condition,
};
use nudge_protocol::{ConfigName, VersionName};

use super::decide::{Decision, Observed, decide};
use crate::governance::Approvals;
use crate::governance::{Policies, sealed_digest};
use crate::identity::Identity;
use crate::keys::PartMeta;
use crate::keys::PodUid;
use crate::pods::{PodPhase, PodState, Readiness, UpdateMode};
use crate::pods::{Report, ReportState};
use crate::requester::Requesters;
use crate::rollout::{Evidence, Now, PublishAttempt, Restarts, SteadyTime, Subjects, version_to_publish};
use crate::versions::{FactsByUid, Judging, RulesState, Verdicts, facts, part, seals};

pub(super) fn at(second: i64) -> Time {
    Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
}

/// A config, its versions and the clock.
pub(super) struct Fixture {
    pub(super) config: VersionedConfig,
    pub(super) parts: Vec<Arc<PartMeta>>,
    pub(super) facts: FactsByUid,
    pub(super) pods: Vec<Arc<PodState>>,
    evidence: Evidence,
    pub(super) rules: RulesState<'static>,
    pub(super) verdicts: Verdicts,
    pub(super) approvals: Approvals,
    pub(super) requesters: Requesters,
    pub(super) now: i64,
}

impl Fixture {
    pub(super) fn new(current: Option<&str>) -> Self {
        let spec = VersionedConfigSpec { version: current.map(str::to_owned), ..VersionedConfigSpec::default() };
        let mut config = VersionedConfig::new("shop", spec);
        config.metadata.uid = Some("uid".to_owned());
        config.metadata.generation = Some(1);
        let (parts, facts, pods, evidence) = (Vec::new(), FactsByUid::new(), Vec::new(), Evidence::default());
        let (rules, verdicts) = (RulesState::None, Verdicts::new());
        let (approvals, requesters) = (Approvals::default(), Requesters::default());
        Self { config, parts, facts, pods, evidence, rules, verdicts, approvals, requesters, now: 1 }
    }

    pub(super) fn with(mut self, version: &str) -> Self {
        self.add(version);
        self
    }

    pub(super) fn add(&mut self, version: &str) {
        let part = Arc::new(part(PartKind::ConfigMap, &format!("shop-{version}"), version));
        self.facts.insert(part.uid.clone(), facts(&part, version));
        self.parts.push(part);
    }

    /// A version that the webhook did not mark.
    fn add_unmarked(&mut self, version: &str) {
        self.add(version);
        let uid = &self.parts[self.parts.len() - 1].uid;
        self.facts.get_mut(uid).unwrap().marked = false;
    }

    /// Decides once.
    fn decide(&self) -> (Decision, Evidence) {
        let published = self.config.status.as_ref().and_then(version_to_publish).map(PublishAttempt::settled);
        let observed = Observed {
            config: &self.config,
            parts: &self.parts,
            facts: &self.facts,
            secrets_known: true,
            left_out: &[],
            pods: &Subjects::of(&self.pods, "shop", Identity::of(&self.config), &BTreeSet::new()),
            neighbours: &HashMap::new(),
            measured: None,
            waiting_for: None,
            judging: Judging { rules: self.rules, verdicts: &self.verdicts },
            seals: &seals(),
            requesters: &self.requesters,
            policies: &Policies::default(),
            approvals: &self.approvals,
            publish_attempt: published.as_ref(),
            restart: &Restarts::Done,
            report_wait: 0,
            hub_away: None,
            now: Now { time: &at(self.now), steady: SteadyTime(self.now * 1000) },
        };
        decide(&observed, &self.evidence)
    }

    /// Decides once, and keeps the decided status.
    pub(super) fn look(&mut self) {
        let (decision, evidence) = self.decide();
        (self.config.status, self.evidence) = (Some(decision.status), evidence);
    }

    /// Decides until nothing changes.
    pub(super) fn step(&mut self) -> Decision {
        let mut events = Vec::new();
        loop {
            self.now += 1;
            let (decision, evidence) = self.decide();
            self.evidence = evidence;
            events.extend(decision.events.clone());
            if self.config.status.as_ref() == Some(&decision.status) {
                return Decision { events, ..decision };
            }
            self.config.status = Some(decision.status.clone());
        }
    }

    pub(super) fn ready(&self) -> (String, String, String) {
        let status = self.config.status.as_ref().unwrap();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        (ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }
}

#[test]
fn the_first_version_becomes_current_and_stays_current() {
    let mut fixture = Fixture::new(None);
    fixture.step();
    assert_eq!(fixture.ready().1, "VersionMissing");
    fixture.add("1");
    let status = fixture.step().status;
    assert_eq!((status.current_version.as_deref(), status.state()), (Some("1"), ConfigState::Current));
    fixture.add("0");
    let status = fixture.step().status;
    assert_eq!((status.desired_version.as_deref(), status.current_version.as_deref()), (Some("1"), Some("1")));
}

#[test]
fn nothing_moves_to_a_version_that_does_not_exist() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    let first = fixture.step().status;
    fixture.config.spec.version = Some("2".to_owned());
    let waiting = fixture.step().status;
    assert_eq!((waiting.state(), waiting.current_version.as_deref()), (ConfigState::Waiting, Some("1")));
    assert_eq!((waiting.desired_version.as_deref(), waiting.target_version), (Some("2"), None));
    assert_eq!(waiting.internal.revision, first.internal.revision);
    assert_eq!(fixture.ready().2, "version 2 does not exist; create it, or set spec.version to one of: 1");
    fixture.add("2");
    let moved = fixture.step().status;
    assert_eq!((moved.current_version.as_deref(), moved.previous_version.as_deref()), (Some("2"), Some("1")));
    assert!(moved.internal.revision > first.internal.revision);
    assert_eq!(fixture.ready().0, "True");
}

#[test]
fn a_version_without_consent_does_not_become_current_by_itself() {
    let mut fixture = Fixture::new(None);
    fixture.add_unmarked("6");
    let waiting = fixture.step();
    assert_eq!((&waiting.status.current_version, waiting.status.state()), (&None, ConfigState::Waiting));
    assert_eq!(fixture.ready().1, "VersionNotAuthorized");
    assert!(fixture.ready().2.ends_with("must run kubectl nudge use shop 6"), "{}", fixture.ready().2);
    assert!(
        waiting.events.iter().any(|event| event.warning && event.explanation.reason == Reason::VersionNotAuthorized)
    );
    // A change of anything else is no consent.
    fixture.config.metadata.generation = Some(2);
    fixture.config.spec.rollout.bake_seconds = 1;
    assert_eq!(fixture.step().status.current_version, None);
    fixture.config.spec.rollout.bake_seconds = 60;
    fixture.add("7");
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("7"), "the first with consent");
    fixture.config.spec.version = Some("6".to_owned());
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("6"), "consent");
    fixture.config.spec.version = None;
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("6"), "and it stays");
}

#[test]
fn a_version_that_was_named_before_it_was_created_must_be_named_again() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    fixture.config.spec.version = Some("2".to_owned());
    fixture.step();
    fixture.add_unmarked("2");
    let held = fixture.step().status;
    assert_eq!((held.current_version.as_deref(), held.state()), (Some("1"), ConfigState::Waiting));
    assert_eq!(fixture.ready().1, "VersionNotAuthorized");
    fixture.config.metadata.generation = Some(2);
    fixture.config.spec.rollout.bake_seconds = 1;
    assert_eq!(fixture.step().status.target_version, None, "a change of anything else is no consent");
    fixture.config.spec.rollout.bake_seconds = 60;
    fixture.config.spec.version = Some("1".to_owned());
    assert_eq!(fixture.step().status.state(), ConfigState::Current);
    fixture.config.spec.version = Some("2".to_owned());
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("2"));
}

#[test]
fn one_unmarked_part_is_enough() {
    let mut fixture = Fixture::new(None).with("1").with("2");
    for (index, name) in ["1", "2"].iter().enumerate() {
        let mut part = (*fixture.parts[index]).clone();
        (part.version, part.part, part.parts) = ("1".to_owned(), Some((*name).to_owned()), Some("2".to_owned()));
        fixture.parts[index] = Arc::new(part);
    }
    let uid = fixture.parts[1].uid.clone();
    fixture.facts.get_mut(&uid).unwrap().marked = false;
    assert_eq!(fixture.step().status.current_version, None);
    assert_eq!(fixture.ready().1, "VersionNotAuthorized");
}

#[test]
fn anybody_may_create_the_current_version_again() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    let (parts, facts) = (std::mem::take(&mut fixture.parts), fixture.facts.clone());
    assert_eq!(fixture.step().status.internal.retired.len(), 1);
    (fixture.parts, fixture.facts) = (parts, facts);
    fixture.facts.values_mut().for_each(|facts| facts.marked = false);
    assert_eq!(fixture.step().status.state(), ConfigState::Current);
}

#[test]
fn both_orders_of_creation_end_the_same() {
    let mut one = Fixture::new(Some("1"));
    one.step();
    one.add("1");
    one.step();
    let mut two = Fixture::new(None).with("1");
    two.step();
    two.config.spec.version = Some("1".to_owned());
    two.step();
    let [one, two] = [one, two].map(|fixture| fixture.config.status.unwrap());
    assert_eq!((one.state(), one.current_version), (two.state(), two.current_version));
}

#[test]
fn a_status_that_was_lost_does_not_count_from_the_start() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    let first = fixture.step().status.internal.revision;
    fixture.config.status = None;
    assert!(fixture.step().status.internal.revision > first);
}

#[test]
fn a_config_gets_its_identity_with_its_first_status_and_keeps_it() {
    let mut fixture = Fixture::new(None);
    let identity = fixture.step().status.internal.identity.unwrap();
    assert_eq!((identity.len(), Identity::of(&fixture.config).to_string()), (32, identity.clone()));
    fixture.config.metadata.uid = Some("restored".to_owned());
    fixture.add("1");
    assert_eq!(fixture.step().status.internal.identity, Some(identity.clone()), "restored with its status");
    fixture.config.status = None;
    assert_ne!(fixture.step().status.internal.identity, Some(identity), "another config");
}

#[test]
fn an_invalid_version_is_stalled_with_one_event() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    let uid = fixture.parts[0].uid.clone();
    fixture.facts.get_mut(&uid).unwrap().immutable = false;
    assert_eq!(fixture.step().events.len(), 1);
    assert_eq!(fixture.ready().1, "VersionInvalid");
    assert!(fixture.config.status.as_ref().unwrap().conditions.iter().any(|condition| condition.type_ == "Stalled"));
    assert!(fixture.step().events.is_empty());
}

#[test]
fn a_move_on_hold_is_made_after_it() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.version = Some("2".to_owned());
    fixture.config.spec.rollout.hold = Some(Hold { reason: "audit".to_owned(), ..Hold::default() });
    let held = fixture.step().status;
    assert_eq!((held.current_version.as_deref(), held.target_version.as_deref()), (Some("1"), Some("2")));
    assert_eq!(fixture.ready().1, "OnHold");
    fixture.config.spec.rollout.hold = None;
    let moved = fixture.step().status;
    assert_eq!((moved.current_version.as_deref(), moved.target_version), (Some("2"), None));
}

#[test]
fn what_failed_stays_failed_while_pods_can_not_be_moved_to_it() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.version = Some("2".to_owned());
    let digest = sealed_digest(fixture.config.status.as_ref().unwrap().version("2").unwrap());
    let status = fixture.config.status.as_mut().unwrap();
    let (version, reason, message) = ("2".to_owned(), Reason::PodNotReady, "it crashed".to_owned());
    status.rollout.failure =
        Some(RolloutFailure { version, digest, retry_time: None, reason, message, overridden: None });
    assert_eq!(fixture.step().status.state(), ConfigState::Failed);
    // The version's object is away for a while.
    let part = fixture.parts.pop().unwrap();
    let away = fixture.step().status;
    assert_eq!((away.state(), away.rollout.failure.is_some()), (ConfigState::Waiting, true));
    fixture.parts.push(part);
    fixture.config.metadata.generation = Some(2);
    let back = fixture.step().status;
    assert_eq!((back.state(), back.current_version.as_deref()), (ConfigState::Failed, Some("1")));
    fixture.config.spec.version = Some("1".to_owned());
    assert_eq!(fixture.step().status.rollout.failure, None);
    fixture.config.spec.version = Some("2".to_owned());
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("2"));
}

#[test]
fn a_config_without_objects_is_not_said_to_be_published() {
    for (objects, expected) in [
        (vec![], ("Restarting", "Nudge looks for workloads to restart")),
        (vec![PartKind::ConfigMap], ("Publishing", "version 2 is being published")),
        (vec![PartKind::Secret], ("Publishing", "version 2 is being published")),
    ] {
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.config.spec.objects = objects;
        fixture.step();
        fixture.config.spec.version = Some("2".to_owned());
        // Nobody has tried to publish version 2 yet. Without pods, only the publication is left to wait for.
        fixture.config.status = Some(fixture.decide().0.status);
        let (_, reason, message) = fixture.ready();
        assert_eq!((reason.as_str(), message.as_str()), expected);
        let status = fixture.step().status;
        assert_eq!((status.current_version.as_deref(), status.state()), (Some("2"), ConfigState::Current));
    }
}

#[test]
fn every_condition_is_about_the_observed_spec() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    let published = condition(ConditionType::Published, true, Reason::Published, "m".to_owned(), Some(1), &at(1));
    set_condition(&mut fixture.config.status.as_mut().unwrap().conditions, published);
    fixture.config.metadata.generation = Some(2);
    let status = fixture.step().status;
    assert!(status.conditions.len() > 1);
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(2)), "{status:?}");
    let published = status.conditions.iter().find(|condition| condition.type_ == "Published").unwrap();
    assert_eq!(published.last_transition_time, at(1), "only a client that waits for a generation sees a difference");
}

#[test]
fn deciding_twice_changes_nothing() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    let first = fixture.step();
    assert_eq!(first.events.len(), 4);
    let second = fixture.step();
    assert_eq!((second.status, second.events.len()), (first.status, 0));
}

#[test]
fn a_current_version_that_is_gone_is_kept() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    fixture.parts.clear();
    let status = fixture.step().status;
    assert_eq!((status.current_version.as_deref(), status.state()), (Some("1"), ConfigState::Waiting));
    assert_eq!(fixture.ready().1, "VersionMissing");
    fixture.add("1");
    assert_eq!(fixture.step().status.state(), ConfigState::Current);
}

#[test]
fn pods_that_take_versions_by_restarts_are_counted_and_not_moved() {
    let pod = |uid: &str, runs: &str| {
        let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new(runs).ok())];
        let report = Some(Report { versions, state: ReportState::Acknowledged, reasons: Vec::new(), at: None });
        let workload = Some("Deployment/web".into());
        Arc::new(PodState {
            uid: PodUid::new(uid).unwrap(),
            workload,
            update_mode: UpdateMode::ByRestart,
            readiness: Readiness::Ready,
            report,
            ..PodState::default()
        })
    };
    let pods = [pod("a", "1"), pod("b", "2")];
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.version = Some("2".to_owned());
    let decide_with = |fixture: &Fixture, restart: &Restarts| {
        decide(
            &Observed {
                config: &fixture.config,
                parts: &fixture.parts,
                facts: &fixture.facts,
                secrets_known: true,
                left_out: &[],
                pods: &Subjects::of(&pods, "shop", Identity::of(&fixture.config), &BTreeSet::new()),
                neighbours: &HashMap::new(),
                measured: None,
                waiting_for: None,
                judging: Judging::NONE,
                seals: &seals(),
                requesters: &Requesters::default(),
                policies: &Policies::default(),
                approvals: &Approvals::default(),
                publish_attempt: Some(&PublishAttempt::settled("2")),
                restart,
                report_wait: 0,
                hub_away: None,
                now: Now { time: &at(50), steady: SteadyTime(50_000) },
            },
            &Evidence::default(),
        )
        .0
        .status
    };
    let held = decide_with(&fixture, &Restarts::Blocked("Deployment/web was not restarted".to_owned()));
    assert_eq!(held.rollout.stage, Some(nudge_api::RolloutStage::Restarting), "no batch and no bake moves them");
    assert_eq!(held.current_version.as_deref(), Some("1"));
    assert_eq!((held.pods.total, held.pods.on_target), (2, 1), "{:?}", held.pods);
    let reasons: Vec<&str> = held.conditions.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(reasons, ["NotRestarted", "NotRestarted"], "Ready and Stalled: {:?}", held.conditions);
    fixture.config.status = Some(held);
    assert_eq!(decide_with(&fixture, &Restarts::Done).current_version.as_deref(), Some("2"));
}

#[test]
fn what_is_found_bad_stays_bad_once_more_contents_are_read() {
    let pod = |runs: &str, failed: bool| {
        let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new(runs).ok())];
        let why = Reason::NoHandler.explained("it has none");
        let state = if failed { ReportState::Failed(why) } else { ReportState::Acknowledged };
        vec![Arc::new(PodState {
            uid: PodUid::new("a").unwrap(),
            readiness: Readiness::Ready,
            containers_ready: true,
            phase: PodPhase::Running,
            report: Some(Report { versions, state, reasons: Vec::new(), at: None }),
            ..PodState::default()
        })]
    };
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.pods = pod("1", false);
    fixture.step();
    fixture.config.spec.version = Some("2".to_owned());
    fixture.step();
    fixture.pods = pod("2", true);
    fixture.add("3");
    let read = std::mem::take(&mut fixture.facts);
    let bad = |fixture: &Fixture| {
        let (decision, _) = fixture.decide();
        (decision.status.rollout.stage, decision.unread.len())
    };
    assert_eq!(bad(&fixture), (Some(RolloutStage::RollingBack), 1));
    fixture.facts = read;
    assert_eq!(bad(&fixture), (Some(RolloutStage::RollingBack), 0));
}

#[test]
fn a_part_that_may_have_been_left_out_is_not_gone() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    let status = fixture.config.status.clone().unwrap();
    let parts = std::mem::take(&mut fixture.parts);
    let versions = |left_out: &[PartKind]| {
        let config = &fixture.config;
        let (decision, _) = decide(
            &Observed {
                config,
                parts: &[],
                facts: &fixture.facts,
                secrets_known: true,
                left_out,
                pods: &Subjects::default(),
                neighbours: &HashMap::new(),
                measured: None,
                waiting_for: None,
                judging: Judging::NONE,
                seals: &seals(),
                requesters: &Requesters::default(),
                policies: &Policies::default(),
                approvals: &Approvals::default(),
                publish_attempt: Some(&PublishAttempt::settled("1")),
                restart: &Restarts::Done,
                report_wait: 0,
                hub_away: None,
                now: Now { time: &at(50), steady: SteadyTime(50_000) },
            },
            &Evidence::default(),
        );
        let status = decision.status;
        (
            status.versions.iter().map(|it| (it.version.clone(), it.state)).collect::<Vec<_>>(),
            status.internal.retired.len(),
        )
    };
    let before: Vec<_> = status.versions.iter().map(|it| (it.version.clone(), it.state)).collect();
    assert_eq!((parts.len(), before.len()), (2, 2));
    assert_eq!(versions(&[PartKind::ConfigMap]), (before, 0));
    assert_ne!(versions(&[PartKind::Secret]).1, 0, "ConfigMaps are all known, so they are gone");
}
