//! To which config parts belong, and which can be seen.

use super::*;

fn part(kind: PartKind, name: &str) -> PartMeta {
    PartMeta {
        kind,
        name: name.to_owned(),
        uid: name.to_owned(),
        resource_version: String::new(),
        version: "1".to_owned(),
        part: None,
        parts: None,
        prune: false,
        created: 0,
        terminating: false,
    }
}

#[test]
fn a_new_list_removes_what_it_does_not_hold_in_its_scope() {
    let index = Index::default();
    let key = |namespace: &str| ConfigKey::parse(namespace, "shop").unwrap();
    index.set_enabled(["a".to_owned(), "b".to_owned()].into());
    index.put_part(key("a"), part(PartKind::ConfigMap, "one"));
    index.put_part(key("a"), part(PartKind::Secret, "two"));
    index.put_part(key("b"), part(PartKind::Secret, "three"));
    index.set_secrets("a", vec![(key("a"), part(PartKind::Secret, "four"))]);
    assert!(index.parts_and_secrets(&key("a")).1 && !index.secrets_allowed("b"));
    let names = |namespace| index.parts(&key(namespace)).iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    assert_eq!(names("a"), ["one", "four"]);
    assert_eq!(names("b"), ["three"]);
    index.replace_parts(PartKind::ConfigMap, Vec::new());
    assert_eq!(names("a"), ["four"]);
    index.forget_secrets("a");
    assert!(names("a").is_empty() && !index.secrets_allowed("a"));
    index.set_secrets("c", vec![(key("c"), part(PartKind::Secret, "five"))]);
    assert!(names("c").is_empty(), "it is not enabled");
}

#[test]
fn a_relabelled_object_belongs_to_one_config() {
    let index = Index::default();
    let (old, new) = (ConfigKey::parse("a", "old").unwrap(), ConfigKey::parse("a", "new").unwrap());
    index.put_part(old.clone(), part(PartKind::ConfigMap, "one"));
    index.put_part(new.clone(), part(PartKind::ConfigMap, "one"));
    assert!(index.parts(&old).is_empty() && index.parts(&new).len() == 1);
    index.remove_part(&ObjectKey::new(PartKind::ConfigMap, "a", "one"));
    assert!(index.parts(&new).is_empty());
}
