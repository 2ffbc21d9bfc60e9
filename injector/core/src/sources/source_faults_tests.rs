//! Sources with a spec that breaks a rule that its schema can't express, and that no webhook has seen. Such sources
//! make no version, and report why.

use nudge_api::{ConditionType, find_condition};
use serde_json::{Value, json};

use super::source_faults::source_faults;
use super::test_scene::running;

/// Returns specs that each break a rule, with a part of the message.
fn broken() -> Vec<(Value, &'static str)> {
    let git = |change: Value| {
        let mut git = json!({"url": "https://git.example.com/shop"});
        git.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"from": {"git": git}})
    };
    let oci = |change: Value| {
        let mut oci = json!({"url": "oci://registry.example.com/shop"});
        oci.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"from": {"oci": oci}})
    };
    let vault = |address: &str| {
        let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
        json!({"from": {"vault": {"address": address, "auth": auth, "kv": {"path": "shop"}}}})
    };
    let live = json!({"git": {"url": "https://git.example.com/shop"}});
    vec![
        (json!({"from": {}}), "spec.from: it must name exactly one of git, oci and vault"),
        (
            json!({"from": {"git": live["git"], "oci": {"url": "oci://registry.example.com/shop", "tag": "1"}}}),
            "spec.from: it must name exactly one of",
        ),
        (json!({"from": {"configMap": {"name": "a"}}}), "list its kind in spec.objects of the config"),
        (json!({"from": live, "configName": "a".repeat(64)}), "spec.configName: config \"aaa"),
        (
            json!({"from": live, "configName": format!("{}.{}", "a".repeat(32), "b".repeat(32))}),
            "give it a shorter name",
        ),
        (git(json!({"url": "https://git.example.com"})), "spec.from.git.url: its path must name a repository"),
        (git(json!({"url": "https://2130706433/shop"})), "spec.from.git.url: it names no host"),
        (git(json!({"path": "../secrets"})), "spec.from.git: path must be relative, such as config/prod"),
        (git(json!({"ref": {}})), "spec.from.git.ref: it must have exactly one of branch, tag, semver and commit"),
        (git(json!({"ref": {"branch": "a", "tag": "b"}})), "spec.from.git.ref: it must have exactly one of"),
        (
            git(json!({"ref": {"branch": "--upload-pack=id"}})),
            "spec.from.git.ref: branch is not a name that git accepts",
        ),
        (git(json!({"ref": {"tag": "a..b"}})), "spec.from.git.ref: tag is not a name that git accepts"),
        (git(json!({"ref": {"semver": "newest"}})), "spec.from.git.ref: semver must be a range of versions"),
        (git(json!({"ref": {"commit": "g".repeat(40)}})), "spec.from.git.ref: commit must be the whole id of a commit"),
        (
            oci(json!({"url": "oci://registry.example.com/Shop", "tag": "1"})),
            "spec.from.oci.url: it must name a repository",
        ),
        (oci(json!({"url": "oci://a:0/shop", "tag": "1"})), "spec.from.oci.url: its port is not between 1 and 65535"),
        (oci(json!({})), "spec.from.oci: it must have exactly one of tag, semver and digest"),
        (oci(json!({"tag": "1", "semver": "1"})), "spec.from.oci: it must have exactly one of tag, semver and digest"),
        (oci(json!({"tag": "-a"})), "spec.from.oci: \"-a\" is not a tag"),
        (oci(json!({"semver": "latest"})), "spec.from.oci: \"latest\" is not a range of versions"),
        (oci(json!({"digest": "x".repeat(71)})), "is not a digest"),
        (vault("https://vault:0"), "spec.from.vault.address: its port is not between 1 and 65535"),
        (vault("https:///v1"), "spec.from.vault.address: it names no host"),
    ]
}

#[test]
fn a_source_that_can_not_be_read_makes_nothing_and_says_why() {
    for (spec, said) in broken() {
        let mut scene = running();
        let made = scene.source.status.as_ref().unwrap().version.clone();
        let good = std::mem::replace(&mut scene.source.spec, serde_json::from_value(spec.clone()).unwrap());
        let faults = source_faults("shop", &scene.source.spec);
        assert_eq!(faults.len(), 1, "{spec}: {faults:?}");
        assert!(faults[0].message.contains(said), "{spec}: {}", faults[0].message);
        scene.changes("b");
        scene.passes(100_000);
        scene.is(false, "InvalidSpec");
        let ready = find_condition(&scene.source.status.as_ref().unwrap().conditions, ConditionType::Ready).unwrap();
        assert_eq!((&ready.message, scene.stalled()), (&faults[0].message, true), "{spec}");
        assert_eq!(scene.source.status.as_ref().unwrap().version, made, "the last version stays");
        assert_eq!(scene.activated(), ["src-a"], "{spec}");
        // The config's version returns all the same: the source has no part in it.
        scene.source.spec = good;
        scene.passes(100_000);
        scene.rollout_ends(true);
        scene.is(true, "Activated");
    }
}

#[test]
fn what_can_be_read_has_no_fault() {
    let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
    for from in [
        json!({"git": {"url": "git@git.example.com:shop", "path": "config/prod"}}),
        json!({"git": {"url": "https://git.example.com/shop", "ref": {"semver": ">=1.2, <2"}}}),
        json!({"oci": {"url": "oci+http://registry.tools.svc:5000/shop", "digest": format!("sha256:{}", "a".repeat(64))}}),
        json!({"vault": {"address": "https://vault:8200", "auth": auth, "kv": {"path": "shop"}}}),
    ] {
        let spec = serde_json::from_value(json!({"from": from})).unwrap();
        assert_eq!(source_faults("shop", &spec), [], "{from}");
        assert_eq!(source_faults("", &spec), [], "its name is still to be generated");
    }
}

#[test]
fn a_suspended_source_is_suspended() {
    let mut scene = running();
    scene.source.spec = serde_json::from_value(json!({"from": {}, "suspend": true})).unwrap();
    scene.settle();
    scene.is(false, "Suspended");
}
