//! The objects kept of a namespace are bounded. A full namespace affects no other namespace.

use std::collections::HashSet;
use std::time::Instant;

use nudge_protocol::labels;

use super::parts::part;
use super::*;

fn named(namespace: &str, name: &str) -> VersionedConfig {
    let mut config = config("u", "1");
    (config.metadata.namespace, config.metadata.name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    config
}

fn left_out(index: &Index, kind: WatchedKind) -> usize {
    index.count_left_out().into_iter().find(|(other, _)| *other == kind).unwrap().1
}

#[test]
fn configs_beyond_the_bound_are_counted_and_have_their_turn_when_there_is_room() {
    let (index, most) = (enabled(), WatchedKind::Configs.max_objects());
    index.set_enabled(["ns".to_owned(), "other".to_owned()].into());
    let health = index.add_health_of("ns", since(&index, "ns"), WatchedKind::Configs);
    for number in 0..most + 5 {
        index.put_config(named("ns", &format!("c{number}")));
    }
    index.put_config(named("other", "c"));
    assert_eq!((index.configs().len(), left_out(&index, WatchedKind::Configs)), (most + 1, 5));
    assert!(index.is_left_out(&config_key(&format!("c{most}"))) && !index.is_left_out(&config_key("c0")));
    // One that is known changes as before.
    let mut changed = named("ns", "c0");
    changed.metadata.resource_version = Some("2".to_owned());
    index.put_config(changed);
    assert_eq!(index.config(&config_key("c0")).unwrap().metadata.resource_version.as_deref(), Some("2"));
    assert!(!health.needs_relist());
    index.remove_config(&config_key("c0"));
    assert!(health.needs_relist(), "a list finds one that was left out");
    let all: Vec<String> = (1..most + 3).map(|number| format!("c{number}")).collect();
    for name in &all {
        index.put_config_from(StateOrigin::List, named("ns", name));
    }
    let seen: HashSet<_> = all.iter().map(|name| ("ns".to_owned(), name.clone())).collect();
    index.complete_list(&WatchScope::Namespace("ns".to_owned()), WatchedKind::Configs, Instant::now(), &seen);
    assert_eq!((index.configs().len(), left_out(&index, WatchedKind::Configs)), (most + 1, 2));
    index.set_enabled(["other".to_owned()].into());
    assert_eq!((index.configs().len(), left_out(&index, WatchedKind::Configs)), (1, 0));
}

#[test]
fn large_configs_are_bounded_together_and_one_that_grows_stays_as_it_was() {
    let index = enabled();
    let large = |name: &str, version: &str, bytes: usize| {
        let mut config = named("ns", name);
        config.metadata.resource_version = Some(version.to_owned());
        config.spec.version = Some("x".repeat(bytes));
        config
    };
    let mib = 1024 * 1024;
    (0..70).for_each(|number| index.put_config(large(&format!("c{number}"), "1", mib)));
    assert_eq!((index.configs().len(), left_out(&index, WatchedKind::Configs)), (63, 7));
    index.put_config(large("c0", "2", 3 * mib));
    let version = |name: &str| index.config(&config_key(name)).unwrap().metadata.resource_version.clone();
    assert_eq!(version("c0").as_deref(), Some("1"));
    let health = index.add_health_of("ns", since(&index, "ns"), WatchedKind::Configs);
    // The answer to an own write is the truth.
    index.put_written_config(large("c1", "2", 2 * mib));
    assert!(version("c1").as_deref() == Some("2") && !health.needs_relist());
    index.put_config(large("c0", "3", 10));
    assert!(health.needs_relist(), "there is room for one that was left out");
    index.put_config(large("c1", "3", 10));
    index.put_config(large("c69", "1", mib));
    assert_eq!((version("c0").as_deref(), index.configs().len()), (Some("3"), 64));
}

#[test]
fn what_users_write_into_the_metadata_of_a_config_is_not_kept() {
    let (index, mut config) = (enabled(), config("u", "1"));
    let text = || Some([("a".to_owned(), "b".repeat(1000))].into());
    (config.metadata.annotations, config.metadata.labels) = (text(), text());
    config.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    index.put_config(config);
    let meta = index.config(&config_key("shop")).unwrap().metadata.clone();
    assert!(meta.annotations.is_none() && meta.labels.is_none() && meta.finalizers.is_none());
    // Nudge's notes there are as long as possible.
    let mut config = super::config("u", "2");
    let long = "b".repeat(334);
    let notes = [(labels::REQUESTED_BY, &long[..333]), (labels::OVERRIDDEN_BY, &long), (labels::FORCE_DELETE, "true")];
    config.metadata.annotations = Some(notes.map(|(label, note)| (label.to_owned(), note.to_owned())).into());
    index.put_config(config);
    let kept = index.config(&config_key("shop")).unwrap().metadata.annotations.clone().unwrap_or_default();
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(labels::REQUESTED_BY.to_owned(), long[..333].to_owned())]);
    let mut config = super::config("u", "3");
    config.metadata.annotations = Some([(labels::IMPORTING.to_owned(), "b".repeat(1000))].into());
    index.put_config(config);
    let kept = index.config(&config_key("shop")).unwrap().metadata.annotations.clone().unwrap_or_default();
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(labels::IMPORTING.to_owned(), String::new())]);
}

#[test]
fn parts_and_pods_beyond_the_bounds_are_counted() {
    let index = enabled();
    let most = WatchedKind::ConfigMaps.max_objects();
    for number in 0..most + 3 {
        index.put_part(config_key("shop"), part(PartKind::ConfigMap, &format!("p{number}")));
    }
    index.put_part(config_key("shop"), part(PartKind::Secret, "p0"));
    assert_eq!((left_out(&index, WatchedKind::ConfigMaps), left_out(&index, WatchedKind::Secrets)), (3, 0));
    assert_eq!(index.parts(&config_key("shop")).len(), most);
    assert_eq!(
        index.visible_parts(&config_key("other")).left_out,
        [PartKind::ConfigMap],
        "what is missing may be one of them"
    );
    index.remove_part(&ObjectKey::new(PartKind::ConfigMap, "ns", format!("p{most}")));
    assert_eq!(left_out(&index, WatchedKind::ConfigMaps), 2);
    let most = WatchedKind::Pods.max_objects();
    for number in 0..=most {
        index.put_pod(PodState { name: format!("web-{number}"), ..pod("u", &["shop"]) });
    }
    assert_eq!((index.pods().len(), left_out(&index, WatchedKind::Pods)), (most, 1));
    assert!(index.pod(&PodKey::new("ns", "web-0")).is_some());
    assert!(index.users(&config_key("other")).is_none(), "one that is left out may use it");
    index.remove_pod(&PodKey::new("ns", format!("web-{most}")));
    assert!(index.users(&config_key("other")).is_some_and(|pods| pods.is_empty()));
}
