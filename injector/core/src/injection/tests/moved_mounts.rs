//! Mounts of a config's objects, which move to volumes that the agent keeps.

use nudge_protocol::volumes::{self, KeptVolume, ObjectKind};

use super::*;

/// Facts with a config `web` that has the ConfigMap and the Secret of its name.
fn facts_of_web() -> InjectionFacts {
    let mut facts = facts();
    let web = ResolvedConfig {
        version: Some("1.0.0".to_owned()),
        objects: vec![PartKind::ConfigMap, PartKind::Secret],
        serves_secrets: true,
        keys: 10,
        bytes: 1000,
        ..ResolvedConfig::default()
    };
    facts.configs.insert(ConfigName::new("web").unwrap(), web);
    facts
}

/// A pod of a ReplicaSet whose container `app` has these mounts of these volumes.
fn pod_of(volumes: &Value, mounts: &Value) -> Value {
    let app = json!({"name": "app", "image": "app", "volumeMounts": mounts});
    let mut pod = with_spec(&json!({"configs": "web"}), &json!({"containers": [app], "volumes": volumes}));
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": true}]);
    pod
}

fn config_map() -> Value {
    json!({"name": "conf", "configMap": {"name": "web"}})
}

fn secret() -> Value {
    json!({"name": "keys", "secret": {"secretName": "web"}})
}

fn mount(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path})
}

/// Returns the pod with the agent, after a check that another injection changes nothing.
fn moved(pod: &Value, facts: &InjectionFacts) -> Value {
    let (injected, _) = try_with(pod, facts).unwrap();
    assert_eq!(try_with(&injected, facts).unwrap().0, injected, "a second run changes nothing");
    injected
}

/// The mounts of the container `app`, without Nudge's own.
fn mounts_of(pod: &Value) -> Vec<Value> {
    let app =
        pod["spec"]["containers"].as_array().unwrap().iter().find(|container| container["name"] == "app").unwrap();
    let mounts = app["volumeMounts"].as_array().unwrap().iter();
    mounts.filter(|mount| mount["name"] != "nudge-share").cloned().collect()
}

fn kept(pod: &Value) -> Vec<KeptVolume> {
    match variable(&pod["spec"]["initContainers"][0], "NUDGE_VOLUMES") {
        Value::Null => Vec::new(),
        text => volumes::read(text.as_str().unwrap()).unwrap(),
    }
}

fn modes(pod: &Value) -> Vec<u32> {
    kept(pod).iter().flat_map(|kept| &kept.sources).map(|source| source.mode).collect()
}

#[test]
fn a_mount_moves_and_its_volume_stays() {
    let volumes = json!([config_map(), {"name": "other", "configMap": {"name": "other"}}]);
    let pod = pod_of(&volumes, &json!([mount("other", "/o"), mount("conf", "/etc/web")]));
    let injected = moved(&pod, &facts_of_web());
    let expected = json!({"name": "nudge-files-1", "mountPath": "/etc/web", "readOnly": true});
    assert_eq!(mounts_of(&injected), [mount("other", "/o"), expected]);
    let volumes = injected["spec"]["volumes"].as_array().unwrap();
    assert_eq!(volumes[..2], [config_map(), json!({"name": "other", "configMap": {"name": "other"}})]);
    let empty = json!({"name": "nudge-files-1", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}});
    assert!(volumes.contains(&empty), "{volumes:?}");
    let agent = &injected["spec"]["initContainers"][0];
    let folder = json!({"name": "nudge-files-1", "mountPath": "/run/nudge/volumes/1"});
    assert!(agent["volumeMounts"].as_array().unwrap().contains(&folder));
    let kept = kept(&injected);
    assert_eq!((kept.len(), &*kept[0].volume, &*kept[0].folder), (1, "conf", "/run/nudge/volumes/1"));
    let source = &kept[0].sources[0];
    assert_eq!((source.config.as_str(), source.kind, source.mode), ("web", ObjectKind::ConfigMap, 0o644));
    assert!(source.items.is_empty() && !source.optional);
}

#[test]
fn mounts_stay_if_a_limit_range_leaves_the_agent_too_little_memory() {
    let mut pod = pod_of(&json!([config_map()]), &json!([mount("conf", "/etc/web")]));
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "10m", "memory": "10Mi"}});
    let mut facts = facts_of_web();
    for (max, volume) in [("36Mi", "nudge-files-1"), ("35Mi", "conf")] {
        facts.limits = serde_json::from_value(json!([{"type": "Container", "max": {"memory": max}}])).unwrap();
        let (injected, warnings) = try_with(&pod, &facts).unwrap();
        assert_eq!(mounts_of(&injected)[0]["name"], volume, "{max}");
        let stays = warnings.iter().any(|warning| warning.contains("leaves the agent too little memory"));
        assert_eq!(stays, volume == "conf", "{warnings:?}");
    }
    facts.limits = serde_json::from_value(json!([{"type": "Container", "max": {"memory": "31Mi"}}])).unwrap();
    let refused = try_with(&pod, &facts).unwrap_err();
    assert!(refused.contains("Nudge's agent has 32Mi"), "{refused}");
}

#[test]
fn a_mount_comes_back_when_its_container_is_left_out() {
    let pod = pod_of(&json!([config_map()]), &json!([mount("conf", "/etc/web")]));
    let mut injected = moved(&pod, &facts_of_web());
    injected["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "side", "image": "side"}));
    injected["metadata"]["annotations"]["nudge.dev/containers"] = json!("side");
    let again = moved(&injected, &facts_of_web());
    assert_eq!(mounts_of(&again)[0]["name"], "conf");
    assert_eq!(kept(&again), []);
    let volumes = again["spec"]["volumes"].as_array().unwrap();
    assert!(!volumes.iter().any(|volume| volume["name"] == "nudge-files-1"));
}

#[test]
fn items_modes_parts_and_places_below_stay_what_they_are() {
    let items = json!([{"key": "a", "path": "conf.d/a", "mode": 0o440}, {"key": "b", "path": "b"}]);
    let volumes = json!([
        {"name": "conf", "configMap": {"name": "web", "items": items, "defaultMode": 0o644, "optional": true}},
        {"name": "cache", "emptyDir": {}},
    ]);
    let part = json!({"name": "conf", "mountPath": "/etc/b", "subPath": "b"});
    let mounts = json!([mount("conf", "/etc/web"), part, mount("cache", "/etc/web/cache/deep")]);
    let mut pod = pod_of(&volumes, &mounts);
    pod["spec"]["securityContext"] = json!({"runAsUser": 7});
    let injected = moved(&pod, &facts_of_web());
    assert_eq!(
        mounts_of(&injected)[1],
        json!({"name": "nudge-files-1", "mountPath": "/etc/b", "subPath": "b", "readOnly": true})
    );
    let kept = kept(&injected);
    assert_eq!(kept[0].mountpoints, ["cache/deep"]);
    let source = &kept[0].sources[0];
    assert!(source.optional);
    let items: Vec<_> = source.items.iter().map(|item| (item.key.as_str(), &*item.path, item.mode)).collect();
    // What not everybody may read is the container's user's alone.
    assert_eq!((items, source.mode), (vec![("a", "conf.d/a", Some(0o400)), ("b", "b", None)], 0o644));
    assert_eq!(injected["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 7);
}

#[test]
fn files_that_not_everybody_may_read_belong_to_their_reader_or_the_group() {
    let user = |uid: i64| json!({"runAsUser": uid});
    let pod = |context: &Value, pod_context: &Value| {
        let mut pod = pod_of(&json!([secret()]), &json!([mount("keys", "/keys")]));
        pod["spec"]["containers"][0]["securityContext"] = context.clone();
        pod["spec"]["securityContext"] = pod_context.clone();
        pod
    };
    let none = json!({});
    let agent_user = |pod: &Value| pod["spec"]["initContainers"][0]["securityContext"]["runAsUser"].clone();
    for (context, pod_context, mode, agent) in [
        (user(1000), none.clone(), Some(0o600), 1000),
        (user(0), none.clone(), Some(0o644), 65532),
        (none.clone(), json!({"fsGroup": 5}), Some(0o644), 65532),
        (user(1000), json!({"fsGroup": 5}), Some(0o600), 1000),
        (none.clone(), none.clone(), None, 65532),
        (json!({"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}), none.clone(), None, 65532),
        (
            json!({"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}}),
            none.clone(),
            Some(0o644),
            65532,
        ),
    ] {
        let injected = moved(&pod(&context, &pod_context), &facts_of_web());
        assert_eq!(modes(&injected), Vec::from_iter(mode), "{context} {pod_context}");
        assert_eq!(agent_user(&injected), agent, "{context} {pod_context}");
    }
    // The agent that signals one user can't write another one's files.
    let mut several = pod(&user(1000), &none);
    several["metadata"]["annotations"]["nudge.dev/notify.other"] = json!("SIGHUP");
    let other = json!({"name": "other", "image": "other", "securityContext": {"runAsUser": 2000}});
    several["spec"]["containers"].as_array_mut().unwrap().push(other);
    assert_eq!(kept(&moved(&several, &facts_of_web())), []);
    several["spec"]["securityContext"] = json!({"fsGroup": 5});
    assert_eq!(modes(&moved(&several, &facts_of_web())), [0o644]);
    // Such a file was for its owner alone, and is another user's now.
    let warnings = |pod: &Value| try_with(pod, &facts_of_web()).unwrap().1.join("\n");
    let warns = |pod: &Value| warnings(pod).contains("volume keys belong to the agent's user");
    assert!(!warns(&several), "{}", warnings(&several));
    several["spec"]["volumes"][0]["secret"]["defaultMode"] = json!(0o400);
    assert!(warns(&several), "{}", warnings(&several));
    let mut alone = pod(&user(1000), &json!({"fsGroup": 5}));
    alone["spec"]["volumes"][0]["secret"]["defaultMode"] = json!(0o400);
    assert!(!warns(&alone), "{}", warnings(&alone));
}

#[test]
fn what_can_not_move_stays_and_a_container_that_is_notified_is_warned_of_why() {
    let notified = |mut pod: Value| {
        pod["metadata"]["annotations"]["nudge.dev/notify"] = json!("webhook");
        pod
    };
    let plain = |volume: Value| pod_of(&json!([volume]), &json!([mount("conf", "/etc/web")]));
    let mixed = json!({"name": "conf", "projected": {"sources": [{"configMap": {"name": "web"}}, {"configMap": {"name": "other"}}]}});
    let bad = json!({"name": "conf", "configMap": {"name": "web", "items": [{"key": "nudge.x", "path": "x"}]}});
    let outside = json!({"name": "conf", "configMap": {"name": "web", "items": [{"key": "x", "path": "../x"}]}});
    let mut bare = plain(config_map());
    bare["metadata"]["ownerReferences"] = json!([]);
    let mut old = facts_of_web();
    old.features.native_sidecars = false;
    let mut foreign = facts_of_web();
    foreign.configs.get_mut(&ConfigName::new("web").unwrap()).unwrap().objects = Vec::new();
    for (pod, facts, why) in [
        (plain(mixed), facts_of_web(), "(the volume has more than objects of the pod's configs)"),
        (plain(bad), facts_of_web(), "(one of its items has a key or path that Nudge does not take)"),
        (plain(outside), facts_of_web(), "(one of its items has a key or path that Nudge does not take)"),
        (bare, facts_of_web(), "(no workload owns this pod)"),
        (plain(config_map()), old, "(this cluster has no native sidecars (Kubernetes 1.29))"),
        (
            plain(config_map()),
            foreign,
            "reads the ConfigMap by a mount that did not move, which is not in its spec.objects",
        ),
    ] {
        let (injected, warnings) = try_with(&notified(pod), &facts).unwrap();
        assert_eq!(mounts_of(&injected), [mount("conf", "/etc/web")]);
        assert!(warnings.join("\n").contains(why), "{why}: {warnings:?}");
    }
    let (_, warnings) = try_with(&notified(plain(config_map())), &facts_of_web()).unwrap();
    assert_eq!(warnings, [""; 0], "files of a moved mount are in place before the notification");
}

#[test]
fn projected_objects_of_configs_move_together() {
    let sources = json!([{"configMap": {"name": "web"}}, {"secret": {"name": "web", "optional": true}}]);
    let volumes = json!([{"name": "all", "projected": {"sources": sources, "defaultMode": 0o640}}]);
    let mut pod = pod_of(&volumes, &json!([mount("all", "/etc/web")]));
    pod["spec"]["securityContext"] = json!({"runAsUser": 9});
    let kept = kept(&moved(&pod, &facts_of_web()));
    let sources: Vec<_> = kept[0].sources.iter().map(|source| (source.kind, source.optional, source.mode)).collect();
    assert_eq!(sources, [(ObjectKind::ConfigMap, false, 0o600), (ObjectKind::Secret, true, 0o600)]);
}

#[test]
fn a_config_whose_secret_alone_is_mounted_is_one_of_the_pods() {
    let mut pod = pod_of(&json!([secret()]), &json!([mount("keys", "/keys")]));
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    pod["spec"]["securityContext"] = json!({"runAsUser": 9});
    let injected = moved(&pod, &facts_of_web());
    assert_eq!(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS"), "web");
    assert_eq!(modes(&injected), [0o600]);
    let mut without = facts_of_web();
    without.configs.get_mut(&ConfigName::new("web").unwrap()).unwrap().objects = vec![PartKind::ConfigMap];
    assert!(try_with(&pod, &without).unwrap_err().contains("no container of this pod uses a ConfigMap that exists"));
}

#[test]
fn folders_of_nudges_own_mounts_below_a_moved_one_are_made() {
    let mut pod = pod_of(&json!([config_map()]), &json!([mount("conf", "/srv/web")]));
    pod["metadata"]["annotations"]["nudge.dev/mount-path"] = json!("/srv/web/live");
    assert_eq!(kept(&moved(&pod, &facts_of_web()))[0].mountpoints, ["live"]);
}

#[test]
fn a_setting_that_would_be_too_long_for_a_variable_leaves_mounts_as_they_are() {
    let items: Vec<Value> =
        (0..3000).map(|at| json!({"key": format!("key-{at}"), "path": format!("folder/path-{at}")})).collect();
    let large = json!({"name": "large", "configMap": {"name": "web", "items": items}});
    let pod = pod_of(&json!([large, config_map()]), &json!([mount("large", "/l"), mount("conf", "/c")]));
    let injected = moved(&pod, &facts_of_web());
    assert_eq!(mounts_of(&injected)[0], mount("large", "/l"));
    assert_eq!(kept(&injected).len(), 1);
}

#[test]
fn a_container_is_warned_of_a_secret_whose_mount_stays() {
    let mut pod = pod_of(&json!([secret()]), &json!([mount("keys", "/keys")]));
    pod["metadata"]["annotations"]["nudge.dev/notify"] = json!("webhook");
    let (_, warnings) = try_with(&pod, &facts_of_web()).unwrap();
    let expected = "only by a restart: it reads the Secret by a mount that did not move (not every container";
    assert!(warnings.join("\n").contains(expected), "{warnings:?}");
}

#[test]
fn a_secret_that_the_hub_may_not_serve_stays_with_a_warning_and_names_no_config() {
    let mut facts = facts_of_web();
    facts.configs.get_mut(&ConfigName::new("web").unwrap()).unwrap().serves_secrets = false;
    let mut pod = pod_of(&json!([secret()]), &json!([mount("keys", "/keys")]));
    pod["metadata"]["annotations"]["nudge.dev/notify"] = json!("webhook");
    let (injected, warnings) = try_with(&pod, &facts).unwrap();
    assert_eq!(mounts_of(&injected), [mount("keys", "/keys")]);
    assert!(warnings.join("\n").contains("(Nudge may not read Secrets in this namespace)"), "{warnings:?}");
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    assert!(try_with(&pod, &facts).unwrap_err().contains("no container of this pod uses a ConfigMap that exists"));
}

#[test]
fn the_room_of_volumes_is_added_to_the_agents_memory() {
    let mut pod = pod_of(&json!([config_map(), secret()]), &json!([mount("conf", "/c"), mount("keys", "/k")]));
    pod["spec"]["securityContext"] = json!({"runAsUser": 9});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    let memory = |facts: &InjectionFacts| {
        moved(&pod, facts)["spec"]["initContainers"][0]["resources"]["limits"]["memory"].clone()
    };
    assert_eq!(memory(&facts_of_web()), "40Mi");
    let mut unresolved = facts_of_web();
    unresolved.configs.get_mut(&ConfigName::new("web").unwrap()).unwrap().version = None;
    assert_eq!(memory(&unresolved), "64Mi");
}

#[test]
fn a_volume_that_does_not_move_decides_nothing_about_the_agents_user() {
    let items: Vec<Value> =
        (0..3000).map(|at| json!({"key": format!("key-{at}"), "path": format!("folder/path-{at}")})).collect();
    let large = json!({"name": "large", "secret": {"secretName": "web", "items": items}});
    let mut pod = pod_of(&json!([large]), &json!([mount("large", "/l")]));
    pod["spec"]["securityContext"] = json!({"runAsUser": 9});
    let injected = moved(&pod, &facts_of_web());
    assert_eq!(injected["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 65532);
}
