//! Which state of a config replaces which.

use nudge_api::VersionedConfigStatus;

use super::*;

/// Returns the version of the config that is known.
fn version(index: &Index) -> Option<String> {
    index.config(&config_key("shop")).unwrap().metadata.resource_version.clone()
}

#[test]
fn an_older_state_does_not_replace_a_newer_one() {
    let index = enabled();
    index.put_config(config("a", "10"));
    index.put_config(config("a", "9"));
    assert_eq!(version(&index).as_deref(), Some("10"));
    index.put_config(config("b", "9"));
    assert_eq!(version(&index).as_deref(), Some("9"), "another uid is another config");
}

#[test]
fn the_answer_to_a_write_adds_no_config() {
    let (index, key) = (enabled(), config_key("shop"));
    index.put_written_config(config("a", "1"));
    assert!(index.config(&key).is_none());
    index.put_config(config("a", "5"));
    index.put_written_config(config("a", "7"));
    index.put_config(config("a", "6"));
    assert_eq!(version(&index).as_deref(), Some("7"));
    index.put_config_from(StateOrigin::List, config("a", "2"));
    assert_eq!(version(&index).as_deref(), Some("2"), "a list is right, even after a restore");
}

#[test]
fn a_consistent_read_brings_what_the_watch_has_not_and_adds_and_removes_nothing() {
    let (index, key) = (enabled(), config_key("shop"));
    let read = |found: Option<VersionedConfig>| index.put_read_config(&key, found);
    assert!(read(None), "there is none, as is known here");
    assert!(!read(Some(config("a", "5"))), "it may be gone again");
    assert!(index.config(&key).is_none());
    index.put_config(config("a", "5"));
    assert!(read(Some(config("a", "5"))) && read(Some(config("a", "7"))));
    assert_eq!(version(&index).as_deref(), Some("7"));
    assert!(read(Some(config("a", "6"))), "the watch was quicker");
    assert!(!read(Some(config("b", "9"))) && !read(None), "only the watch knows which one came last");
    assert_eq!(version(&index).as_deref(), Some("7"));
}

#[test]
fn evidence_wakes_no_pod_and_a_step_does() {
    let index = enabled();
    index.put_pod(pod("u", &["shop"]));
    let changed = |version: &str, change: fn(&mut VersionedConfigStatus)| {
        let mut config = config("a", version);
        let mut status = VersionedConfigStatus::default();
        change(&mut status);
        config.status = Some(status);
        let woken = index.pod(&PodKey::new("ns", "web")).unwrap().subscribe();
        index.put_config(config);
        woken.has_changed().unwrap()
    };
    assert!(changed("1", |status| status.internal.revision = 1));
    assert!(!changed("2", |status| (status.internal.revision, status.rollout.step) = (1, 7)));
    assert!(changed("3", |status| (status.internal.revision, status.rollout.step) = (2, 7)));
}
