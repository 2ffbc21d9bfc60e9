//! How containers take versions: the table, and that it is complete.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use nudge_api::PartKind;
use nudge_protocol::ConfigName;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;
use crate::injection::tests::{facts, try_with};
use crate::injection::{InjectionFacts, ResolvedConfig};

/// The facts of an installation in which `shop` and `keys` are configs with a ConfigMap and a Secret.
fn owning_facts() -> InjectionFacts {
    let config = || ResolvedConfig {
        version: Some("1.0.0".to_owned()),
        keys: 1,
        bytes: 1,
        objects: vec![PartKind::ConfigMap, PartKind::Secret],
        serves_secrets: true,
        ..ResolvedConfig::default()
    };
    let mut facts = facts();
    facts.features.restart_in_place = true;
    facts.configs = ["shop", "keys"].map(|name| (ConfigName::new(name).unwrap(), config())).into();
    facts
}

/// A pod of a workload with these containers, which opts in.
fn pod(annotations: &Value, init: &Value, containers: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "web-", "labels": {"nudge.dev/inject": "true"}, "annotations": {},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true}]},
        "spec": {"initContainers": init, "containers": containers, "securityContext": {"runAsUser": 5}, "volumes": [
            {"name": "shop", "configMap": {"name": "shop"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "both", "projected": {"sources": [{"configMap": {"name": "shop"}}, {"secret": {"name": "keys"}}]}},
            {"name": "mixed", "projected": {"sources": [{"configMap": {"name": "shop"}}, {"configMap": {"name": "foreign"}}]}},
            {"name": "start", "configMap": {"name": "shop"}},
            {"name": "work", "emptyDir": {}}]},
    });
    for (name, value) in annotations.as_object().unwrap() {
        pod["metadata"]["annotations"][format!("nudge.dev/{name}")] = value.clone();
    }
    pod
}

fn stored(pod: &Value) -> Pod {
    serde_json::from_value(try_with(pod, &owning_facts()).unwrap().0).unwrap()
}

fn read_pod(pod: &Pod) -> PodReads {
    PodReads::of(&pod.metadata, pod.spec.as_ref().unwrap())
}

/// Returns how containers take versions, as text: `app shop: SIGHUP`.
fn lines(pod: &Value) -> Vec<String> {
    let reads = read_pod(&stored(pod));
    let uptakes = reads.uptakes(|_, _| true);
    uptakes.iter().map(|one| format!("{} {}: {}", one.container, one.config.as_str(), one.uptake)).collect()
}

fn mounts(volumes: &[&str]) -> Value {
    let mount = |name: &&str| {
        let (volume, part) = name.split_once('/').unwrap_or((name, ""));
        json!({"name": volume, "mountPath": format!("/etc/{volume}{}", part.trim_matches(['.', '/'])), "subPath": part})
    };
    json!({"name": "app", "image": "app", "volumeMounts": volumes.iter().map(mount).collect::<Vec<_>>()})
}

#[test]
fn each_row_of_the_table() {
    let from = json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]});
    let of_key = json!({"name": "app", "image": "app", "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}]});
    let plain = json!({"name": "app", "image": "app"});
    let only_shop = |way: &str| vec![format!("app shop: {way}")];
    for (annotations, app, expected) in [
        (json!({"notify": "SIGHUP"}), mounts(&["shop"]), only_shop("SIGHUP")),
        (json!({"webhook.app": "http://localhost/"}), mounts(&["shop"]), only_shop("webhook")),
        (json!({"notify": "in-place"}), mounts(&["shop"]), only_shop("a restart in place")),
        (json!({}), mounts(&["shop"]), only_shop("its files, which it watches")),
        (json!({"configs": "shop", "mount-path": "/srv"}), plain.clone(), only_shop("its files, which it watches")),
        (json!({"configs": "shop"}), plain.clone(), only_shop("the agent's endpoint")),
        (json!({"configs": "shop", "notify": "SIGUSR1"}), plain, only_shop("SIGUSR1")),
        (
            json!({"notify": "SIGHUP"}),
            from.clone(),
            only_shop("a restart, because it reads the ConfigMap by variables"),
        ),
        (json!({}), from.clone(), only_shop("a restart, because it reads the ConfigMap by variables")),
        (
            json!({"configs": "keys"}),
            of_key,
            vec!["app keys: a restart, because it reads the Secret by variables".to_owned()],
        ),
        (json!({"notify": "SIGHUP"}), mounts(&["shop/a"]), only_shop("a restart, because it reads a file by subPath")),
        (json!({"notify": "SIGHUP"}), mounts(&["shop/."]), only_shop("SIGHUP")),
        (json!({}), mounts(&["shop/./"]), only_shop("its files, which it watches")),
        (json!({"notify": "in-place"}), mounts(&["shop/a"]), only_shop("a restart in place")),
        (
            json!({"configs": "shop"}),
            mounts(&["mixed"]),
            only_shop("a restart, because it reads the ConfigMap by a mount that did not move"),
        ),
        (
            json!({"configs": "shop"}),
            mounts(&["mixed/a"]),
            only_shop("a restart, because it reads the ConfigMap by subPath"),
        ),
        (json!({"notify": "rollout"}), mounts(&["shop"]), only_shop("a restart, because its pod has notify: rollout")),
        (json!({"notify": "none"}), mounts(&["shop"]), only_shop("itself (notify: none)")),
        (json!({"notify.app": "none"}), from, only_shop("itself (notify: none)")),
        (
            json!({"notify": "SIGHUP"}),
            mounts(&["both"]),
            vec!["app keys: SIGHUP".to_owned(), "app shop: SIGHUP".to_owned()],
        ),
    ] {
        let pod = pod(&annotations, &json!([]), &json!([app]));
        assert_eq!(lines(&pod), expected, "{annotations} {app}");
    }
}

#[test]
fn what_further_containers_read_counts_together() {
    let configs: Vec<String> = (0..32).map(|number| format!("c{number}")).collect();
    let container = |number: usize| {
        let names = match number {
            0 => &configs[..],
            9 => &configs[7..8],
            _ => &[],
        };
        let from: Vec<Value> = names.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
        json!({"name": format!("app-{number}"), "image": "app", "envFrom": from})
    };
    let pod = |count: usize| {
        let containers: Vec<Value> = (0..count).map(container).collect();
        json!({
            "metadata": {"labels": {"nudge.dev/inject": "true"},
                "annotations": {"nudge.dev/notify": "SIGHUP", "nudge.dev/notify.app-9": "SIGUSR1"}},
            "spec": {"containers": containers},
        })
    };
    let read = |count: usize| read_pod(&serde_json::from_value(pod(count)).unwrap());
    assert_eq!(read(8).containers().len(), 256);
    let reads = read(40);
    assert_eq!(reads.containers().len(), 256 + 32);
    let ways = |config: &str| {
        let uptakes = reads.uptakes_of(config, |_| true);
        uptakes.map(|uptake| (uptake.container.to_owned(), uptake.uptake.to_string())).last().unwrap()
    };
    let by_variables = "a restart, because it reads the ConfigMap by variables";
    assert_eq!(ways("c7"), ("app-8".to_owned(), by_variables.to_owned()));
    assert_eq!(ways("c8"), ("app-8".to_owned(), "the agent's endpoint".to_owned()), "they are notified in two ways");
    assert_eq!(reads.fixed_reads("c7", |_| true).count(), 2);
}

#[test]
fn what_only_init_containers_mount_takes_a_restart() {
    let renders = |volume: &str| {
        let mut init = mounts(&[volume, "work"]);
        init["name"] = json!("render");
        init
    };
    let of = |annotations: Value, init: Value, app: &[&str]| {
        lines(&pod(&annotations, &json!([init]), &json!([mounts(app)])))
    };
    let rendered = "render shop: a restart, because it reads files that only init containers mount";
    assert_eq!(of(json!({"notify": "SIGHUP"}), renders("start"), &["work"]), [rendered, "app shop: SIGHUP"]);
    // The container that runs mounts the volume, too, and is notified.
    assert_eq!(of(json!({"notify": "SIGHUP"}), renders("shop"), &["shop"]), ["app shop: SIGHUP"]);
    assert_eq!(of(json!({"notify": "in-place"}), renders("start"), &["work"])[0], "render shop: a restart in place");
    let alone = of(json!({"notify": "SIGHUP", "notify.render": "none"}), renders("start"), &["shop"]);
    assert_eq!(alone, ["render shop: itself (notify: none)", "app shop: SIGHUP"]);
    let mut sidecar = renders("start");
    sidecar["restartPolicy"] = json!("Always");
    let watches = ["render shop: its files, which it watches", "app shop: the agent's endpoint"];
    assert_eq!(of(json!({}), sidecar, &["work"]), watches);
    let by_variables = json!({"name": "render", "image": "a", "envFrom": [{"configMapRef": {"name": "shop"}}]});
    let variables = "render shop: a restart, because it reads the ConfigMap by variables";
    assert_eq!(of(json!({}), by_variables, &["shop"])[0], variables);
}

#[test]
fn an_object_that_is_not_the_configs_is_no_version() {
    let app = json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]});
    let reads = read_pod(&stored(&pod(&json!({"notify": "SIGHUP"}), &json!([]), &json!([app]))));
    let uptakes = |owned: Option<PartKind>| reads.uptakes(|_, kind| owned == Some(kind)).remove(0).uptake;
    let restart = Uptake::Restart(RestartCause::Reads(ReadPath::Variables(PartKind::ConfigMap)));
    assert_eq!(uptakes(Some(PartKind::ConfigMap)), restart);
    for owned in [None, Some(PartKind::Secret)] {
        assert!(matches!(uptakes(owned), Uptake::Notified(_)), "{owned:?}");
    }
}

#[test]
fn a_template_shows_what_it_can() {
    let app = mounts(&["shop", "start/a", "mixed"]);
    let template: Pod = serde_json::from_value(pod(&json!({"notify": "SIGHUP"}), &json!([]), &json!([app]))).unwrap();
    let reads = read_pod(&template);
    let paths = |config: &str| {
        let of_config = reads.containers().iter().find(|reads| reads.config.as_str() == config);
        of_config.map(|reads| reads.paths.to_vec()).unwrap_or_default()
    };
    assert_eq!(paths("shop"), [ReadPath::KeptFiles, ReadPath::ObjectPart(PartKind::ConfigMap)]);
    assert_eq!(paths("foreign"), [ReadPath::KeptFiles]);
}

/// One thing that a container of the property test reads.
fn any_read() -> impl Strategy<Value = &'static str> {
    select(vec!["shop", "shop/a", "keys", "both", "mixed", "start", "start/b", "env", "envFrom", "nothing"])
}

fn any_container() -> impl Strategy<Value = Value> {
    vec(any_read(), 0..4).prop_map(|reads| {
        let distinct: BTreeSet<&str> = reads.into_iter().collect();
        let volumes: Vec<&str> =
            distinct.iter().copied().filter(|read| !["env", "envFrom", "nothing"].contains(read)).collect();
        let mut container = mounts(&volumes);
        if distinct.contains("env") {
            container["env"] = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": "a"}}}]);
        }
        if distinct.contains("envFrom") {
            container["envFrom"] = json!([{"secretRef": {"name": "keys"}}]);
        }
        container
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every container and config has exactly one way, and none that claims more than the container can see.
    #[test]
    fn every_container_takes_every_config_in_exactly_one_way(
        containers in vec(any_container(), 1..3),
        init in vec((any_container(), any::<bool>()), 0..3),
        notify in select(vec!["", "none", "SIGHUP", "webhook", "in-place", "rollout"]),
        of_first in select(vec!["", "none", "SIGUSR1", "in-place", "rollout"]),
    ) {
        let mut annotations = json!({"configs": "shop,keys"});
        for (name, value) in [("notify", notify), ("notify.c0", of_first)] {
            if !value.is_empty() {
                annotations[name] = json!(value);
            }
        }
        let named = |prefix: &str, at: usize, mut container: Value| {
            container["name"] = json!(format!("{prefix}{at}"));
            container
        };
        let containers: Vec<Value> =
            containers.into_iter().enumerate().map(|(at, container)| named("c", at, container)).collect();
        let init = init.into_iter().enumerate().map(|(at, (container, is_sidecar))| {
            let mut container = named("i", at, container);
            if is_sidecar {
                container["restartPolicy"] = json!("Always");
            }
            container
        });
        let pod = pod(&annotations, &init.collect(), &json!(containers));
        let result = try_with(&pod, &owning_facts());
        prop_assume!(result.is_ok());
        let (injected, warnings) = result.unwrap();
        let injected: Pod = serde_json::from_value(injected).unwrap();
        let reads = read_pod(&injected);
        let uptakes = reads.uptakes(|_, _| true);
        let user: Pod = serde_json::from_value(pod).unwrap();
        let spec = user.spec.unwrap();
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        for container in all {
            let is_main = container.name.starts_with('c');
            let runs = is_main || container.restart_policy.is_some();
            let mounted: Vec<&str> =
                container.volume_mounts.iter().flatten().map(|mount| mount.name.as_str()).collect();
            for config in ["shop", "keys"] {
                let ways: Vec<Uptake> = uptakes
                    .iter()
                    .filter(|one| one.container == container.name && one.config.as_str() == config)
                    .map(|one| one.uptake)
                    .collect();
                prop_assert!(ways.len() <= 1, "{ways:?}");
                prop_assert!(!runs || ways.len() == 1, "{} takes {config} in no way", container.name);
                let Some(way) = ways.first().copied() else { continue };
                let left_alone = if is_main && container.name == "c0" && !of_first.is_empty() {
                    of_first == "none"
                } else {
                    notify == "none"
                };
                prop_assert_eq!(way == Uptake::Itself, left_alone);
                let has_variables = match config {
                    "shop" => container.env.is_some(),
                    _ => container.env_from.is_some(),
                };
                let has_part = container.volume_mounts.iter().flatten().any(|mount| {
                    config == "shop" && mount.sub_path.as_deref().is_some_and(|part| !part.is_empty())
                });
                let is_fixed = has_variables || has_part || (config == "shop" && mounted.contains(&"mixed"));
                let is_live = matches!(way, Uptake::Notified(_) | Uptake::WatchesFiles | Uptake::Asks);
                let is_in_place = way == Uptake::Notified(nudge_protocol::Notify::InPlace);
                prop_assert!(!(is_fixed && is_live && !is_in_place), "{} {config}: {way}", container.name);
                prop_assert!(!(has_variables && is_live), "{} {config}: {way}", container.name);
                // Admission says of no others what the leader reads from the stored pod.
                let is_warned = warnings.iter().any(|warning| {
                    warning.starts_with(&format!("container {} takes config {config} only", container.name))
                });
                let is_by_restart = matches!(way, Uptake::Restart(RestartCause::Reads(_)));
                prop_assert!(!is_warned || is_by_restart, "{way} {warnings:?}");
                let has_unmoved_mount = matches!(way, Uptake::Restart(RestartCause::Reads(ReadPath::ObjectFiles(_))));
                prop_assert!(is_warned || !has_unmoved_mount, "{way} {warnings:?}");
            }
        }
    }
}
