//! Properties of every injected pod.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use nudge_protocol::pod as names;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::resources::QosClass;
use super::tests::{facts, pod, try_with};
use super::user_pod::{LISTS, items, strip};
use super::{Features, InjectionFacts};

fn resources() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({"limits": {"cpu": "1", "memory": "64Mi"}}),
        json!({"limits": {"cpu": "1", "memory": "64Mi"}}),
        json!({"limits": {"cpu": "1"}, "requests": {"memory": "64Mi"}}),
        json!({"requests": {"cpu": "100m"}}),
    ])
}

fn variable() -> impl Strategy<Value = Value> {
    let names = ["A", "URL", "MY_CONFIG_ENDPOINT", "MY_CONFIG_TOKEN", "MY_CONFIG_CONTAINER"];
    (select(names.to_vec()), select(vec!["1", "$(MY_CONFIG_ENDPOINT)/x", "https://mine"]))
        .prop_map(|(name, value)| json!({"name": name, "value": value}))
}

/// A container without its name.
fn container() -> impl Strategy<Value = Value> {
    let parts = (
        option::of(vec(variable(), 0..3)),
        option::of(select(vec![json!([]), json!([{"name": "own", "mountPath": "/own"}])])),
        resources(),
        option::of(select(vec![0, 7, 1000])),
        option::of(select(vec![json!([]), json!([{"containerPort": 8080}])])),
    );
    parts.prop_map(|(env, mounts, resources, uid, ports)| {
        let mut container = json!({"image": "app", "resources": resources, "unknown": {"field": 1}});
        for (field, value) in [("env", env.map(Value::from)), ("volumeMounts", mounts), ("ports", ports)] {
            if let Some(value) = value {
                container[field] = value;
            }
        }
        if let Some(uid) = uid {
            container["securityContext"] = json!({"runAsUser": uid});
        }
        container
    })
}

fn annotations() -> impl Strategy<Value = Value> {
    let some = |name: &'static str, values: &[&'static str]| {
        option::of(select(values.to_vec())).prop_map(move |value| value.map(|value| (name, value)))
    };
    let all = (
        some("notify", &["none", "SIGHUP", "webhook"]),
        some("notify.c0", &["none", "SIGUSR1", "webhook"]),
        some("agent-port", &["9002", "1024"]),
        some("mount-path", &["/etc/shop", "/srv"]),
        some("containers", &["c0"]),
        some("agent-run-as-user", &["7", "2000"]),
        some("agent-cpu", &["7m", "0.1"]),
        some("agent-memory", &["64Mi", "100M"]),
        some("ack", &["fetched"]),
        some("configs", &["shop,web"]),
    );
    all.prop_map(|(a, b, c, d, e, f, g, h, i, j)| {
        [a, b, c, d, e, f, g, h, i, j]
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect()
    })
}

fn any_pod() -> impl Strategy<Value = Value> {
    let init = vec((container(), any::<bool>()), 0..3);
    let parts =
        (annotations(), vec(container(), 1..4), option::of(init), any::<bool>(), option::of(select(vec![0, 1000])));
    parts.prop_map(|(annotations, containers, init, secrets, uid)| {
        let mut pod = pod(&annotations);
        let named = |prefix: &str, all: Vec<Value>| -> Vec<Value> {
            all.into_iter()
                .enumerate()
                .map(|(at, mut one)| {
                    one["name"] = json!(format!("{prefix}{at}"));
                    one
                })
                .collect()
        };
        pod["spec"]["containers"] = named("c", containers).into();
        if let Some(init) = init {
            let init = init.into_iter().map(|(mut container, sidecar)| {
                if sidecar {
                    container["restartPolicy"] = json!("Always");
                }
                container
            });
            pod["spec"]["initContainers"] = named("i", init.collect()).into();
        }
        pod["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
        pod["spec"]["future"] = json!({"field": [1]});
        if secrets {
            pod["spec"]["imagePullSecrets"] = json!([{"name": "mine"}]);
            pod["metadata"]["labels"] = json!({"app": "web"});
        }
        if let Some(uid) = uid {
            pod["spec"]["securityContext"] = json!({"runAsUser": uid});
        }
        pod
    })
}

fn any_facts() -> impl Strategy<Value = InjectionFacts> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(sidecars, files, ipv6)| InjectionFacts {
        features: Features { native_sidecars: sidecars, env_files: sidecars && files, ipv6, ..Features::default() },
        ..facts()
    })
}

fn injected(pod: &Value, facts: &InjectionFacts) -> Value {
    try_with(pod, facts).unwrap().0
}

fn each_container(pod: &mut Value, mut edit: impl FnMut(&mut Value)) {
    for list in LISTS {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            edit(container);
        }
    }
}

/// The pod with the API server's defaults.
fn defaulted(mut pod: Value) -> Value {
    each_container(&mut pod, |container| {
        container["terminationMessagePath"] = json!("/dev/termination-log");
        container["imagePullPolicy"] = json!("IfNotPresent");
        if container.get("terminationMessagePolicy").is_none() {
            container["terminationMessagePolicy"] = json!("File");
        }
        for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port["protocol"] = json!("TCP");
        }
        if let Some(limits) = container["resources"].get("limits").cloned() {
            for (resource, limit) in limits.as_object().unwrap() {
                let requests = &mut container["resources"]["requests"];
                if requests[resource].is_null() {
                    requests[resource] = limit.clone();
                }
            }
        }
    });
    for volume in pod["spec"]["volumes"].as_array_mut().unwrap() {
        if let Some(projected) = volume.get_mut("projected") {
            projected["defaultMode"] = json!(420);
        }
    }
    pod["spec"]["restartPolicy"] = json!("Always");
    pod["spec"]["dnsPolicy"] = json!("ClusterFirst");
    pod
}

/// The pod after other injectors: they add to every container, and put containers and volumes first.
fn injected_by_others(mut pod: Value) -> Value {
    each_container(&mut pod, |container| {
        for (list, element) in [
            ("env", json!({"name": "TRACE", "value": "1"})),
            ("volumeMounts", json!({"name": "trace", "mountPath": "/trace"})),
        ] {
            match container.get_mut(list).and_then(Value::as_array_mut) {
                Some(elements) => elements.insert(0, element),
                None => container[list] = json!([element]),
            }
        }
    });
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.insert(0, json!({"name": "trace", "emptyDir": {}}));
    placed(&mut pod, "initContainers", "istio-init", true);
    placed(&mut pod, "containers", "istio-proxy", true);
    pod
}

fn placed(pod: &mut Value, list: &str, name: &str, front: bool) {
    if pod["spec"][list].is_null() {
        pod["spec"][list] = json!([]);
    }
    let containers = pod["spec"][list].as_array_mut().unwrap();
    let at = if front { 0 } else { containers.len() };
    containers.insert(at, json!({"name": name, "image": "mesh"}));
}

/// Returns the pod without empty lists and without the additions of injection to the pod itself.
fn bare(mut pod: Value, before: &Value) -> Value {
    strip(&mut pod).unwrap();
    let spec = pod["spec"].as_object_mut().unwrap();
    if before["spec"].get("shareProcessNamespace").is_none() {
        spec.remove("shareProcessNamespace");
    }
    if let Some(secrets) = spec.get_mut("imagePullSecrets").and_then(Value::as_array_mut) {
        secrets.retain(|secret| secret["name"] != "pull");
    }
    if let Some(labels) = pod["metadata"].get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove("nudge.dev/agent");
    }
    if let Some(annotations) = pod["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("nudge.dev/warnings");
        annotations.remove("nudge.dev/birth-labels");
        annotations.remove("backup.velero.io/backup-volumes-excludes");
    }
    without_empty(&mut pod);
    pod
}

fn without_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_empty);
            fields.retain(|_, field| !matches!(field, Value::Null) && *field != json!([]) && *field != json!({}));
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_empty),
        _ => {}
    }
}

fn qos_class(pod: &Value) -> QosClass {
    let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).unwrap();
    QosClass::of(&spec)
}

fn agents(pod: &Value) -> Vec<(&'static str, usize)> {
    let of = |list| {
        items(&pod["spec"], list)
            .filter(|(_, one)| one["name"] == names::AGENT_CONTAINER)
            .map(move |(at, _)| (list, at))
    };
    LISTS.into_iter().flat_map(of).collect()
}

proptest! {
    #[test]
    fn what_the_user_wrote_is_kept(pod in any_pod(), facts in any_facts()) {
        let injected = injected(&pod, &facts);
        let mut original = pod.clone();
        without_empty(&mut original);
        prop_assert_eq!(bare(injected.clone(), &pod), original);
        serde_json::from_value::<Pod>(injected).unwrap();
    }

    #[test]
    fn the_agent_is_there_once_and_first(pod in any_pod(), facts in any_facts()) {
        let list = if facts.features.native_sidecars { "initContainers" } else { "containers" };
        let injected = injected(&pod, &facts);
        prop_assert_eq!(agents(&injected), [(list, 0)]);
    }

    #[test]
    fn a_second_injection_changes_nothing(pod in any_pod(), facts in any_facts()) {
        let once = injected(&pod, &facts);
        prop_assert_eq!(&injected(&once, &facts), &once);
        let stored = defaulted(once);
        prop_assert_eq!(&injected(&stored, &facts), &stored);
    }

    #[test]
    fn other_injectors_before_and_after_make_no_difference(pod in any_pod(), facts in any_facts()) {
        let list = if facts.features.native_sidecars { "initContainers" } else { "containers" };
        let later = injected_by_others(injected(&pod, &facts));
        let settled = injected(&later, &facts);
        prop_assert_eq!(agents(&settled), [(list, 0)]);
        prop_assert_eq!(&injected(&settled, &facts), &settled);
        // The additions of the other injectors stay, and so do the user's fields.
        prop_assert_eq!(bare(settled, &pod), bare(injected(&injected_by_others(pod.clone()), &facts), &pod));
    }

    #[test]
    fn the_position_of_foreign_containers_makes_no_difference(pod in any_pod(), facts in any_facts(), front in any::<bool>()) {
        let with = |front| {
            let mut pod = pod.clone();
            placed(&mut pod, "containers", "istio-proxy", front);
            placed(&mut pod, "initContainers", "istio-init", !front);
            let mut injected = injected(&pod, &facts);
            for list in LISTS {
                injected["spec"][list].as_array_mut().unwrap().retain(|one| {
                    let foreign = one["name"] == "istio-proxy" || one["name"] == "istio-init";
                    assert!(!foreign || one.as_object().unwrap().len() == 2, "it got something");
                    !foreign
                });
            }
            injected
        };
        prop_assert_eq!(with(front), with(!front));
    }

    #[test]
    fn the_qos_class_stays(pod in any_pod(), facts in any_facts()) {
        let injected = injected(&pod, &facts);
        let asked = ["agent-cpu", "agent-memory"].iter().any(|name| pod["metadata"]["annotations"].get(format!("nudge.dev/{name}")).is_some());
        let before = qos_class(&pod);
        let expected = if asked && before == QosClass::BestEffort { QosClass::Burstable } else { before };
        prop_assert_eq!(qos_class(&injected), expected);
        prop_assert_eq!(qos_class(&defaulted(injected)), expected);
    }

    #[test]
    fn the_agent_has_only_the_privileges_it_needs(pod in any_pod(), facts in any_facts()) {
        let injected = injected(&pod, &facts);
        let (list, at) = agents(&injected)[0];
        let agent = &injected["spec"][list][at];
        let context = &agent["securityContext"];
        prop_assert!(context["runAsUser"].as_i64().unwrap() > 0 && context["runAsNonRoot"] == true);
        prop_assert!(context["allowPrivilegeEscalation"] == false && context["readOnlyRootFilesystem"] == true);
        let notify = items(agent, "env").find(|(_, variable)| variable["name"] == "NUDGE_NOTIFY");
        let signals = notify.is_some_and(|(_, variable)| variable["value"].as_str().unwrap().contains("SIG"));
        prop_assert_eq!(injected["spec"]["shareProcessNamespace"] == true, signals);
        let unprivileged = context["capabilities"] == json!({"drop": ["ALL"]});
        prop_assert!(signals || unprivileged);
    }

    #[test]
    fn no_pod_makes_it_panic(path in select(vec!["/spec", "/spec/containers", "/spec/containers/0", "/spec/volumes/0", "/metadata", "/metadata/annotations", "/spec/containers/0/env", "/spec/initContainers"]), odd in select(vec![json!(null), json!("x"), json!(1), json!([]), json!([1]), json!({}), json!({"name": 1})])) {
        let mut pod = pod(&json!({"notify": "SIGHUP"}));
        pod["spec"]["volumes"] = json!([{"name": "own"}]);
        if let Some(value) = pod.pointer_mut(path) {
            *value = odd;
        }
        let _ = try_with(&pod, &facts());
    }
}
