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
        going: false,
    }
}

#[test]
fn a_new_list_removes_what_it_does_not_hold_in_its_scope() {
    let world = World::default();
    let key = |namespace: &str| ConfigKey::new(namespace, "shop");
    world.set_enabled(["a".to_owned(), "b".to_owned()].into());
    world.put_part(key("a"), part(PartKind::ConfigMap, "one"));
    world.put_part(key("a"), part(PartKind::Secret, "two"));
    world.put_part(key("b"), part(PartKind::Secret, "three"));
    world.see_secrets("a", vec![(key("a"), part(PartKind::Secret, "four"))]);
    assert!(world.parts_and_secrets(&key("a")).1 && !world.secrets_allowed("b"));
    let names = |namespace| world.parts(&key(namespace)).iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    assert_eq!(names("a"), ["one", "four"]);
    assert_eq!(names("b"), ["three"]);
    world.replace_parts(PartKind::ConfigMap, Vec::new());
    assert_eq!(names("a"), ["four"]);
    world.unsee_secrets("a");
    assert!(names("a").is_empty() && !world.secrets_allowed("a"));
    world.see_secrets("c", vec![(key("c"), part(PartKind::Secret, "five"))]);
    assert!(names("c").is_empty(), "it is not enabled");
}

#[test]
fn a_relabelled_object_belongs_to_one_config() {
    let world = World::default();
    let (old, new) = (ConfigKey::new("a", "old"), ConfigKey::new("a", "new"));
    world.put_part(old.clone(), part(PartKind::ConfigMap, "one"));
    world.put_part(new.clone(), part(PartKind::ConfigMap, "one"));
    assert!(world.parts(&old).is_empty() && world.parts(&new).len() == 1);
    world.remove_part(PartKind::ConfigMap, "a", "one");
    assert!(world.parts(&new).is_empty());
}
