//! Policies: which policies apply to a namespace. While they are unknown, nothing counts as allowed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nudge_api::{RolloutPolicy, RolloutPolicyStatus};
use nudge_core::governance::{MAX_POLICIES, Policies, PolicyReach};
use serde_json::json;

use super::{config, enabled};
use crate::index::{Index, IndexEvent, ReadFault};
use crate::watch_health::WatchHealth;

fn policy(name: &str, team: &str) -> Arc<RolloutPolicy> {
    let spec = json!({"namespaceSelector": {"matchLabels": {"team": team}}});
    let policy =
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": spec});
    Arc::new(serde_json::from_value(policy).unwrap())
}

/// Returns an index that expects policies, and the health of their watch.
fn expecting() -> (Index, WatchHealth) {
    let (index, health) = (enabled(), WatchHealth::new("rolloutpolicies"));
    label(&index, "a");
    index.expect_policies(health.clone());
    health.doubt();
    (index, health)
}

fn label(index: &Index, team: &str) {
    let labels = BTreeMap::from([("team".to_owned(), team.to_owned())]);
    index.set_labelled([("ns".to_owned(), Arc::new(labels))].into());
}

/// One list of these, which the API server confirms.
fn list(index: &Index, health: &WatchHealth, names: &[(&str, &str)]) {
    index.begin_policy_list();
    for (name, team) in names {
        index.add_listed_policy((*name).to_owned(), Ok(policy(name, team)));
    }
    index.complete_policy_list();
    health.confirm(Instant::now());
}

/// Returns the names of those that hold, or why that is not known.
fn known(index: &Index) -> Result<String, String> {
    match index.policies("ns") {
        Policies::Known(all) => {
            Ok(all.iter().filter_map(|one| one.metadata.name.clone()).collect::<Vec<_>>().join(" "))
        }
        Policies::Unknown(why) => Err(why),
    }
}

#[test]
fn who_expects_none_has_none() {
    assert_eq!(known(&enabled()), Ok(String::new()));
    assert!(!enabled().has_doubted_policies());
}

#[test]
fn those_hold_whose_selector_takes_the_labels() {
    let (index, health) = expecting();
    list(&index, &health, &[("one", "a"), ("two", "b"), ("three", "a")]);
    assert_eq!(known(&index).as_deref(), Ok("one three"));
    label(&index, "b");
    assert_eq!(known(&index).as_deref(), Ok("two"));
    index.put_policy("two".to_owned(), Ok(policy("two", "c")));
    assert_eq!(known(&index).as_deref(), Ok(""));
    index.put_policy("four".to_owned(), Ok(policy("four", "b")));
    index.remove_policy("two");
    assert_eq!(known(&index).as_deref(), Ok("four"));
    list(&index, &health, &[]);
    assert_eq!(known(&index).as_deref(), Ok(""));
}

#[test]
fn before_they_are_listed_and_while_that_is_in_doubt_they_are_not_known() {
    let (index, health) = expecting();
    assert!(index.has_doubted_policies() && known(&index).unwrap_err().contains("have not been read yet"));
    list(&index, &health, &[("one", "a")]);
    assert!(!index.has_doubted_policies() && known(&index).is_ok());
    health.doubt();
    assert!(index.has_doubted_policies() && known(&index).is_err());
    // The failure lasts: it is reported, and no config waits for it in silence.
    index.note_policy_failures(ReadFault::Other, 2);
    assert!(index.has_doubted_policies());
    index.note_policy_failures(ReadFault::Other, 3);
    assert!(!index.has_doubted_policies());
    assert!(known(&index).unwrap_err().contains("can't read RolloutPolicies at the moment"));
    // The watch continues from its last position.
    health.confirm(Instant::now());
    assert_eq!(known(&index).as_deref(), Ok("one"));
    health.doubt();
    assert!(index.has_doubted_policies(), "it is a new doubt");
    index.note_policy_failures(ReadFault::Forbidden, 3);
    assert!(known(&index).unwrap_err().contains("has no right to read RolloutPolicies"));
    list(&index, &health, &[("two", "a")]);
    assert_eq!(known(&index).as_deref(), Ok("two"));
}

#[test]
fn a_cluster_without_the_kind_has_no_policies_until_it_has() {
    let (index, health) = expecting();
    index.note_policy_failures(ReadFault::Missing, 2);
    assert!(known(&index).is_err(), "a server that starts does not know it yet");
    index.note_policy_failures(ReadFault::Missing, 3);
    assert_eq!((known(&index).as_deref(), index.has_doubted_policies()), (Ok(""), false));
    index.note_policy_failures(ReadFault::Forbidden, 3);
    assert!(known(&index).is_err(), "now it is there, and can't be read");
    index.note_policy_failures(ReadFault::Missing, 3);
    index.begin_policy_list();
    assert!(known(&index).is_ok(), "a list that has begun says nothing yet");
    list(&index, &health, &[("one", "a")]);
    assert_eq!(known(&index).as_deref(), Ok("one"));
}

#[test]
fn one_too_many_and_one_that_is_not_understood_hold_everything() {
    let (index, health) = expecting();
    let names: Vec<String> = (0..=MAX_POLICIES).map(|number| format!("p{number:02}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "b")).collect();
    list(&index, &health, &all[..MAX_POLICIES]);
    assert!(known(&index).is_ok());
    index.put_policy("more".to_owned(), Ok(policy("more", "b")));
    assert_eq!(known(&index), Err("there are more than 64 RolloutPolicies; delete some".to_owned()));
    index.remove_policy("p00");
    assert!(health.needs_relist(), "there may be room for it");
    list(&index, &health, &all);
    assert!(known(&index).is_err());
    list(&index, &health, &all[1..]);
    assert!(known(&index).is_ok());
    index.remove_policy("p01");
    index.note_unparsed_policy("odd".to_owned(), "unknown variant `Someday`".to_owned());
    assert!(known(&index).unwrap_err().starts_with("this release of Nudge can't read RolloutPolicy odd: unknown"));
    index.put_policy("odd".to_owned(), Ok(policy("odd", "a")));
    assert_eq!(known(&index).as_deref(), Ok("odd"));
}

#[test]
fn a_change_wakes_the_configs() {
    let (index, health) = expecting();
    index.put_config(config("u", "1"));
    let woken = Arc::new(Mutex::new(0));
    let count = Arc::clone(&woken);
    index.listen(move |event| {
        if matches!(event, IndexEvent::Config(_)) {
            *count.lock().unwrap() += 1;
        }
    });
    let wakes = |expected: u32, what: &str| assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), expected, "{what}");
    list(&index, &health, &[("one", "a")]);
    wakes(1, "a list");
    index.put_policy("one".to_owned(), Ok(policy("one", "b")));
    wakes(1, "a change");
    let mut noted = (*policy("one", "b")).clone();
    noted.status = Some(RolloutPolicyStatus { namespaces: 1, ..RolloutPolicyStatus::default() });
    index.put_policy("one".to_owned(), Ok(Arc::new(noted)));
    wakes(0, "its status");
    label(&index, "b");
    wakes(1, "other labels");
    label(&index, "b");
    wakes(0, "the same labels");
    index.note_policy_failures(ReadFault::Forbidden, 3);
    wakes(1, "they can't be read");
    index.note_policy_failures(ReadFault::Forbidden, 4);
    wakes(0, "that is known");
    index.remove_policy("one");
    wakes(1, "it is gone");
}

#[test]
fn what_a_policy_is_about_is_counted() {
    let (index, health) = expecting();
    let reach = |index: &Index| -> Vec<(u32, u32)> {
        index
            .policies_with_reach()
            .iter()
            .map(|(_, PolicyReach { namespaces, configs })| (*namespaces, *configs))
            .collect()
    };
    assert_eq!(reach(&index), [], "they are not known yet");
    list(&index, &health, &[("one", "a"), ("two", "b")]);
    assert_eq!(reach(&index), [(1, 0), (0, 0)]);
    index.put_config(config("u", "1"));
    assert_eq!(reach(&index), [(1, 1), (0, 0)]);
    label(&index, "b");
    assert_eq!(reach(&index), [(0, 0), (1, 1)]);
    health.doubt();
    assert_eq!(reach(&index), [], "some may be others by now");
}
