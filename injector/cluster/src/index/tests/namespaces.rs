//! The knowledge about each namespace: complete, doubted, or forbidden.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;

const LONG: Duration = Duration::from_hours(1);

/// Returns an index that expects all kinds, with these namespaces and the healths of their watches.
fn watched(namespaces: &[&str]) -> (Index, Vec<Vec<WatchHealth>>) {
    let index = Index::default();
    index.expect(&WatchedKind::ALL);
    let health = WatchHealth::new("namespaces");
    index.add_health(health.clone());
    index.set_enabled(namespaces.iter().map(|name| (*name).to_owned()).collect());
    health.note_answer();
    health.confirm(Instant::now());
    let begin = |namespace: &&str| {
        WatchedKind::ALL.map(|kind| index.add_health_of(namespace, since(&index, namespace), kind)).to_vec()
    };
    let healths = namespaces.iter().map(begin).collect();
    (index, healths)
}

fn list(index: &Index, namespace: &str, healths: &[WatchHealth]) {
    for (kind, health) in WatchedKind::ALL.into_iter().zip(healths) {
        health.set_forbidden(false);
        index.complete_list(&WatchScope::Namespace(namespace.to_owned()), kind, Instant::now(), &HashSet::new());
        health.note_answer();
        health.confirm(Instant::now());
    }
}

/// Has the API server refuse everything in the namespace.
fn forbid(index: &Index, namespace: &str, healths: &[WatchHealth]) -> usize {
    healths.iter().for_each(WatchHealth::doubt);
    for health in healths {
        health.set_forbidden(true);
    }
    WatchedKind::ALL.into_iter().filter(|kind| index.note_refusals(namespace, *kind, 3)).count()
}

#[test]
fn a_namespace_without_rights_holds_only_its_own_and_is_reported_once() {
    let (index, healths) = watched(&["a", "b"]);
    list(&index, "a", &healths[0]);
    assert!(!index.is_synced() && index.silent_watch(LONG).is_some_and(|watch| watch.age.is_none()));
    assert_eq!(forbid(&index, "b", &healths[1]), 1);
    assert_eq!(forbid(&index, "b", &healths[1]), 0, "once");
    assert!(index.is_synced() && index.silent_watch(LONG).is_none(), "the replica is ready");
    assert!(index.is_complete("a") && index.doubted_watch("a").is_none() && index.silent_watch_in("a", LONG).is_none());
    assert!(
        !index.is_complete("b") && index.doubted_watch("b").is_some() && index.silent_watch_in("b", LONG).is_some()
    );
    assert_eq!(index.count_namespaces(), NamespaceCounts { complete: 1, incomplete: 0, forbidden: 1 });
    assert!(index.watch_ages().iter().all(|watch| watch.age.is_some()), "{:?}", index.watch_ages());
    // The rights are bound.
    list(&index, "b", &healths[1]);
    assert!(index.is_complete("b") && index.doubted_watch("b").is_none() && index.may_read_secrets("b"));
    assert_eq!(index.count_namespaces(), NamespaceCounts { complete: 2, incomplete: 0, forbidden: 0 });
    // The rights are taken away: the known state stays, and nothing moves.
    assert_eq!(forbid(&index, "b", &healths[1]), 1);
    assert!(index.doubted_watch("b").is_some() && index.doubted_watch("a").is_none() && !index.may_read_secrets("b"));
}

#[test]
fn a_namespace_whose_lists_fail_again_and_again_holds_only_its_own() {
    let (index, healths) = watched(&["a", "b"]);
    let fail = |namespace: usize, times| {
        healths[namespace][0].doubt();
        healths[namespace][0].note_failures(times);
    };
    fail(0, 100);
    fail(1, 100);
    assert!(!index.is_synced(), "nothing can be read: that is not the fault of a namespace");
    list(&index, "a", &healths[0]);
    fail(1, 3);
    assert!(!index.is_synced(), "this may pass");
    assert!(index.silent_watch(LONG).is_some());
    fail(1, 100);
    assert!(index.is_synced() && index.silent_watch(LONG).is_none());
    assert!(
        !index.is_complete("b") && index.doubted_watch("b").is_some() && index.silent_watch_in("b", LONG).is_some()
    );
    assert!(index.is_complete("a") && index.doubted_watch("a").is_none());
    list(&index, "b", &healths[1]);
    assert!(index.is_complete("b") && index.doubted_watch("b").is_none());
}

#[tokio::test]
async fn a_namespace_that_is_not_confirmed_costs_others_no_time() {
    let (index, healths) = watched(&["a", "b"]);
    list(&index, "a", &healths[0]);
    list(&index, "b", &healths[1]);
    assert!(index.doubted_watch("a").is_none());
    let until = Instant::now();
    index.lock().healths.iter().for_each(|health| health.confirm(until));
    assert_eq!(index.confirm(until, LONG).await, Ok(()));
    assert!(index.doubted_watch("a").is_some() && index.doubted_watch("b").is_some(), "each waits for its own");
    list(&index, "a", &healths[0]);
    assert!(index.doubted_watch("a").is_none() && index.doubted_watch("b").is_some());
}

#[test]
fn a_namespace_that_is_enabled_later_is_held_on_its_own() {
    let (index, healths) = watched(&["a"]);
    list(&index, "a", &healths[0]);
    assert!(index.is_synced());
    index.set_enabled(["a".to_owned(), "b".to_owned()].into());
    assert!(index.is_synced() && index.silent_watch(LONG).is_none());
    assert!(index.doubted_watch("b").is_some() && index.doubted_watch("a").is_none());
    // Not even a list helps that began before.
    let before = Instant::now().checked_sub(LONG).unwrap();
    let all = |began| {
        for kind in WatchedKind::ALL {
            index.complete_list(&WatchScope::Cluster, kind, began, &HashSet::new());
        }
    };
    all(before);
    assert!(!index.is_complete("b"));
    all(Instant::now());
    assert!(index.is_complete("b") && index.last_blind("b").unwrap().elapsed() < LONG, "nothing was seen before");
}

#[test]
fn secrets_that_may_not_be_read_hold_nothing() {
    let (index, healths) = watched(&["a"]);
    for (kind, health) in WatchedKind::ALL.into_iter().zip(&healths[0]) {
        if kind == WatchedKind::Secrets {
            health.doubt();
            health.set_forbidden(true);
            assert!(!index.note_refusals("a", kind, 2));
        } else {
            index.complete_list(&WatchScope::Namespace("a".to_owned()), kind, Instant::now(), &HashSet::new());
            health.note_answer();
            health.confirm(Instant::now());
        }
    }
    assert!(index.is_complete("a") && index.doubted_watch("a").is_none() && !index.may_read_secrets("a"));
    assert!(index.is_synced() && index.silent_watch(LONG).is_none() && index.silent_watch_in("a", LONG).is_none());
}

#[test]
fn approvals_that_may_not_be_read_hold_nothing_but_versions_that_need_them() {
    let (index, healths) = watched(&["a"]);
    let (scope, shop) = (WatchScope::Namespace("a".to_owned()), ConfigKey::parse("a", "shop").unwrap());
    let list = |kind: WatchedKind, health: &WatchHealth| {
        health.set_forbidden(false);
        index.complete_list(&scope, kind, Instant::now(), &HashSet::new());
        health.note_answer();
        health.confirm(Instant::now());
    };
    let approvals = WatchedKind::ALL.iter().position(|kind| *kind == WatchedKind::Approvals).unwrap();
    for (at, kind) in WatchedKind::ALL.into_iter().enumerate().filter(|(at, _)| *at != approvals) {
        list(kind, &healths[0][at]);
    }
    assert!(!index.is_complete("a"));
    healths[0][approvals].doubt();
    healths[0][approvals].set_forbidden(true);
    index.note_refused_approvals(&scope);
    assert!(index.is_complete("a") && index.doubted_watch("a").is_none() && index.forbidden_kind("a").is_none());
    assert!(index.is_synced() && index.silent_watch(LONG).is_none() && index.silent_watch_in("a", LONG).is_none());
    // A denial may be among them.
    assert!(index.approvals(&shop).unwrap_err().contains("can't read VersionApprovals"));
    list(WatchedKind::Approvals, &healths[0][approvals]);
    assert_eq!(index.approvals(&shop), Ok(Vec::new()));
}

#[tokio::test]
async fn one_silent_namespace_is_no_fault_of_the_replica_and_all_are() {
    let (index, healths) = watched(&["a", "b"]);
    list(&index, "a", &healths[0]);
    list(&index, "b", &healths[1]);
    assert!(index.is_synced());
    let age = Duration::from_millis(300);
    tokio::time::sleep(age * 2).await;
    index.lock().healths.iter().for_each(WatchHealth::note_answer);
    healths[0].iter().for_each(WatchHealth::note_answer);
    assert!(index.silent_watch_in("a", age).is_none() && index.silent_watch_in("b", age).is_some());
    assert!(index.silent_watch(age).is_none(), "a replica without b is better than none");
    tokio::time::sleep(age * 2).await;
    index.lock().healths.iter().for_each(WatchHealth::note_answer);
    assert!(index.silent_watch(age).is_some());
}

#[test]
fn what_is_no_longer_enabled_is_forgotten_in_one_step_and_counts_as_deleted_nowhere() {
    let index = enabled();
    index.put_config(config("u", "1"));
    index.put_pod(pod("u", &["shop"]));
    let mut woken = index.pod(&PodKey::new("ns", "web")).unwrap().subscribe();
    let (events, gone) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (seen, pods) = (Arc::clone(&events), Arc::clone(&gone));
    index.listen(move |event| seen.lock().unwrap().push(format!("{event:?}")));
    index.on_pod_gone(move |_| _ = pods.fetch_add(1, Ordering::Relaxed));
    woken.borrow_and_update();
    index.set_enabled([].into());
    assert!(woken.has_changed().is_err() || woken.has_changed().unwrap());
    assert!(index.configs().is_empty() && index.pods().is_empty() && index.subscribed_configs().is_empty());
    let events = events.lock().unwrap();
    assert!(events.len() == 1 && events[0].starts_with("Config("), "{events:?}");
    assert_eq!(gone.load(Ordering::Relaxed), 0);
}
