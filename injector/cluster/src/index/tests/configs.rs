//! Which state of a config replaces which.

use super::*;

/// The version of the config that is known.
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
    index.replace_config(config("a", "2"));
    assert_eq!(version(&index).as_deref(), Some("2"), "a list is right, even after a restore");
}
