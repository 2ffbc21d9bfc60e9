//! Service accounts: which are there, and whom their end concerns.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;

/// Returns an index with the accounts `app` and `other`, a pod of each, and the uids of accounts that are gone.
fn with_two() -> (Index, Arc<Mutex<Vec<String>>>) {
    let (index, gone) = (enabled(), Arc::new(Mutex::new(Vec::new())));
    for (account, uid) in [("app", "a"), ("other", "o")] {
        index.put_account("ns", account, uid);
        let (name, service_account) = (account.to_owned(), account.to_owned());
        index.put_pod(PodState { name, service_account, ..pod(uid, &["shop"]) });
    }
    let heard = Arc::clone(&gone);
    index.on_account_gone(move |uid| heard.lock().unwrap().push(uid.to_owned()));
    (index, gone)
}

#[test]
fn one_that_is_removed_or_replaced_is_gone_and_its_pods_alone_are_woken() {
    let replace = |index: &Index| index.put_account("ns", "app", "b");
    let remove = |index: &Index| index.remove_account("ns", "app");
    let list = |index: &Index| {
        let seen = HashSet::from([("ns".to_owned(), "other".to_owned())]);
        index.complete_list(&WatchScope::Namespace("ns".to_owned()), WatchedKind::Accounts, Instant::now(), &seen);
    };
    let ends: [&dyn Fn(&Index); 3] = [&replace, &remove, &list];
    for (number, end) in ends.into_iter().enumerate() {
        let (index, gone) = with_two();
        let woken = ["app", "other"].map(|name| index.pod(&PodKey::new("ns", name)).unwrap().subscribe());
        // The same account again, and an account that does not exist: nothing happens.
        index.put_account("ns", "app", "a");
        index.remove_account("ns", "nobody");
        index.put_account("elsewhere", "app", "c");
        assert!(woken.iter().all(|woken| !woken.has_changed().unwrap()));
        assert!(index.has_account("ns", "app", "a") && !index.has_account("elsewhere", "app", "c"));
        end(&index);
        assert!(!index.has_account("ns", "app", "a") && index.has_account("ns", "other", "o"), "{number}");
        assert_eq!(index.has_account("ns", "app", "b"), number == 0);
        assert_eq!(*gone.lock().unwrap(), ["a"]);
        assert_eq!(woken.map(|woken| woken.has_changed().unwrap()), [true, false]);
    }
}

#[test]
fn a_new_one_wakes_those_who_wait_for_it() {
    let index = enabled();
    let mut added = index.additions();
    added.mark_unchanged();
    index.put_account("ns", "app", "a");
    assert!(added.has_changed().unwrap());
}

#[test]
fn a_namespace_that_is_no_longer_enabled_ends_none_and_says_none() {
    let (index, gone) = with_two();
    index.set_enabled([].into());
    assert!(!index.has_account("ns", "app", "a") && gone.lock().unwrap().is_empty());
}

#[test]
fn those_beyond_the_bound_are_counted() {
    let (index, most) = (enabled(), WatchedKind::Accounts.max_objects());
    (0..=most).for_each(|number| index.put_account("ns", &format!("a{number}"), "u"));
    let left_out = index.count_left_out().into_iter().find(|(kind, _)| *kind == WatchedKind::Accounts);
    assert_eq!(left_out, Some((WatchedKind::Accounts, 1)));
    index.put_account("ns", "a0", "another");
    assert!(index.has_account("ns", "a0", "another") && !index.has_account("ns", &format!("a{most}"), "u"));
}
