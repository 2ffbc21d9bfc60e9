//! The gate before sealing: a version that breaks a rule of `spec.validation` is never sealed, and a sealed version is
//! never checked again.

use nudge_api::{ConfigState, InvalidVersion, VersionedConfigStatus};

use super::decide::Decision;
use super::decide_tests::Fixture;
use crate::versions::{RuleVerdict, RulesState};

impl Fixture {
    /// Checks versions against the rules, as the controller does.
    fn judge(&mut self, rules: &str, message: Option<&str>) -> VersionedConfigStatus {
        let Decision { unjudged, .. } = self.step();
        for one in unjudged {
            let message = message.map(str::to_owned);
            self.verdicts.insert(one.version, RuleVerdict { content: one.content, rules: rules.to_owned(), message });
        }
        self.step().status
    }
}

#[test]
fn a_version_waits_for_its_verdict_and_is_sealed_with_the_rules() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.rules = RulesState::NotReady(None);
    let waits = fixture.step();
    assert_eq!((waits.unjudged.len(), waits.status.versions.len()), (1, 0));
    assert_eq!(fixture.ready().1, "VersionIncomplete");
    fixture.rules = RulesState::Ready("r1");
    let (content, rules) = (waits.unjudged[0].content.clone(), "r1".to_owned());
    fixture.verdicts.insert("1".to_owned(), RuleVerdict { content, rules, message: None });
    let sealed = fixture.step();
    assert_eq!((sealed.status.state(), sealed.status.versions.len()), (ConfigState::Current, 1));
    assert_eq!(sealed.events[0].explanation.message, "version 1 is complete, and follows spec.validation (rules r1)");
}

#[test]
fn what_breaks_a_rule_is_never_sealed_and_says_why() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    fixture.rules = RulesState::Ready("r1");
    fixture.add("2");
    fixture.config.spec.version = Some("2".to_owned());
    let refused = fixture.judge("r1", Some("key a: must be JSON"));
    assert_eq!((refused.versions.len(), refused.current_version.as_deref()), (1, Some("1")));
    let InvalidVersion { version, message, rules, .. } = &refused.invalid[0];
    assert_eq!((version.as_str(), message.as_str(), rules.as_str()), ("2", "key a: must be JSON", "r1"));
    let (_, reason, message) = fixture.ready();
    assert_eq!(reason, "Invalid");
    assert_eq!(
        message,
        "version 2 breaks a rule of spec.validation: key a: must be JSON; create another version, or change the rules"
    );
    // The record is enough for the next leader.
    fixture.verdicts.clear();
    assert_eq!(fixture.step().unjudged, []);
    // With other rules it is judged again.
    fixture.rules = RulesState::Ready("r2");
    let passed = fixture.judge("r2", None);
    assert_eq!((passed.invalid.len(), passed.versions.len()), (0, 2));
    assert_eq!(fixture.step().status.current_version.as_deref(), Some("2"));
}

#[test]
fn what_is_sealed_is_never_judged_again() {
    let mut fixture = Fixture::new(Some("1")).with("1").with("2");
    fixture.step();
    fixture.config.spec.version = Some("2".to_owned());
    fixture.step();
    for rules in [RulesState::NotReady(Some("a schema is missing")), RulesState::Ready("r9")] {
        fixture.rules = rules;
        for back in ["1", "2"] {
            fixture.config.spec.version = Some(back.to_owned());
            let moved = fixture.step();
            assert_eq!((moved.unjudged.len(), moved.status.current_version.as_deref()), (0, Some(back)));
        }
    }
}

#[test]
fn rules_that_can_not_be_used_hold_new_versions() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    fixture.rules = RulesState::NotReady(Some("ConfigMap schema is missing"));
    fixture.add("2");
    fixture.config.spec.version = Some("2".to_owned());
    let held = fixture.step();
    assert_eq!((held.status.current_version.as_deref(), held.status.versions.len()), (Some("1"), 1));
    assert_eq!(fixture.ready().2, "version 2 can't be judged by spec.validation: ConfigMap schema is missing");
}

#[test]
fn what_nobody_requests_is_a_conflict() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    fixture.rules = RulesState::Ready("r1");
    fixture.add("2");
    let refused = fixture.judge("r1", Some("key a: must be JSON"));
    assert_eq!(fixture.ready().0, "True");
    let conflict = refused.conditions.iter().find(|condition| condition.type_ == "Conflict").unwrap();
    assert!(conflict.message.starts_with("version 2 breaks a rule of spec.validation: key a"), "{}", conflict.message);
}
