//! To which config parts belong, and which can be seen.

use std::time::Instant;

use super::*;

pub(super) fn part(kind: PartKind, name: &str) -> PartMeta {
    PartMeta {
        kind,
        name: name.to_owned(),
        uid: name.to_owned(),
        resource_version: String::new(),
        version: "1".to_owned(),
        part: None,
        parts: None,
        prune: false,
        keep: None,
        created: 0,
        terminating: false,
    }
}

#[test]
fn a_new_list_removes_what_it_does_not_hold_in_its_scope() {
    let index = Index::default();
    let key = |namespace: &str| ConfigKey::parse(namespace, "shop").unwrap();
    let list = |scope: WatchScope, kind, names: &[(&str, &str)]| {
        let seen = names.iter().map(|(state, name)| ((*state).to_owned(), (*name).to_owned())).collect();
        index.complete_list(&scope, kind, Instant::now(), &seen);
    };
    let of = |namespace: &str| WatchScope::Namespace(namespace.to_owned());
    index.set_enabled(["a".to_owned(), "b".to_owned()].into());
    for namespace in ["a", "b"] {
        index.put_part(key(namespace), part(PartKind::ConfigMap, "one"));
        index.put_part(key(namespace), part(PartKind::Secret, "two"));
    }
    let names = |namespace| index.parts(&key(namespace)).iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    assert_eq!(names("a"), ["one"], "Secrets are shown when all are known");
    list(of("a"), WatchedKind::Secrets, &[("a", "two")]);
    assert!(index.visible_parts(&key("a")).secrets && !index.may_read_secrets("b"));
    assert_eq!((names("a").join(" "), names("b").join(" ")), ("one two".to_owned(), "one".to_owned()));
    list(of("a"), WatchedKind::ConfigMaps, &[("b", "one")]);
    assert_eq!((names("a").join(" "), names("b").join(" ")), ("two".to_owned(), "one".to_owned()));
    list(WatchScope::Cluster, WatchedKind::ConfigMaps, &[]);
    assert!(names("b").is_empty());
    index.forget_secrets("a");
    assert!(names("a").is_empty() && !index.may_read_secrets("a"));
    index.put_part(key("c"), part(PartKind::Secret, "five"));
    list(of("c"), WatchedKind::Secrets, &[("c", "five")]);
    assert!(names("c").is_empty() && !index.may_read_secrets("c"), "it is not enabled");
}

#[test]
fn a_relabelled_object_belongs_to_one_config() {
    let index = Index::default();
    index.set_enabled(["a".to_owned()].into());
    let (old, new) = (ConfigKey::parse("a", "old").unwrap(), ConfigKey::parse("a", "new").unwrap());
    index.put_part(old.clone(), part(PartKind::ConfigMap, "one"));
    index.put_part(new.clone(), part(PartKind::ConfigMap, "one"));
    assert!(index.parts(&old).is_empty() && index.parts(&new).len() == 1);
    index.remove_part(&ObjectKey::new(PartKind::ConfigMap, "a", "one"));
    assert!(index.parts(&new).is_empty());
}
