//! Who may change or delete a config, as its webhook decides it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{PartKind, PartStatus, VersionedConfig};
use nudge_core::derived_keys::NoteKey;
use nudge_core::requester::Requesters;
use nudge_tests::log;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::configs::{MutateConfigs, ValidateConfigs};
use super::webhook::{Webhook as _, WebhookError};
use crate::fixtures::{FakeLookups, ahead, request, sealed};
use crate::lookups::{AttendedKind, LookupError};
use crate::review::ReviewRequest;
use crate::verdict::AdmissionVerdict;

fn config(version: &str) -> Value {
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team"},
        "spec": {"version": version}, "status": {}
    })
}

async fn reviewed(lookups: FakeLookups, request: &ReviewRequest) -> (AdmissionVerdict, Vec<String>) {
    let lookups = Arc::new(lookups);
    let verdict = ValidateConfigs::new(Arc::clone(&lookups)).review(request).await.unwrap();
    let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
    (verdict, asked)
}

#[tokio::test]
async fn the_user_of_the_request_is_noted() {
    let key = Arc::new(NoteKey::new(b"key"));
    let webhook = MutateConfigs { key: Arc::clone(&key) };
    let reviewed = async |operation: &str, old: Option<&Value>, new: Option<&Value>| {
        webhook.review(&request("VersionedConfig", operation, old, new)).await.unwrap()
    };
    let AdmissionVerdict::Allow { patch: Some(patch), warnings } =
        reviewed("UPDATE", Some(&config("1")), Some(&config("2"))).await
    else {
        panic!("no patch")
    };
    let mut stored = config("2");
    json_patch::patch(&mut stored, &patch).unwrap();
    let known = Requesters::of(&serde_json::from_value(stored.clone()).unwrap(), &key).current.unwrap();
    assert_eq!((known.user.as_str(), warnings.len()), ("eve", 0));
    let now = Timestamp::now().as_second();
    assert!((now - 60..=now).contains(&known.at.0.as_second()), "{known:?}");
    // The object is written back as it was read.
    assert_eq!(reviewed("UPDATE", Some(&stored), Some(&stored)).await, AdmissionVerdict::allow());
    assert_eq!(reviewed("DELETE", Some(&stored), None).await, AdmissionVerdict::allow());
    let mut odd = request("VersionedConfig", "UPDATE", Some(&stored), Some(&stored));
    odd.old_object = None;
    assert!(matches!(webhook.review(&odd).await, Err(WebhookError::Review(_))));
    let pod = request("Pod", "CREATE", None, Some(&stored));
    assert!(matches!(webhook.review(&pod).await, Err(WebhookError::Review(_))));
}

#[tokio::test]
async fn a_change_needs_the_right_to_update_the_config_map() {
    let chosen = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&config("2")));
    let (verdict, asked) = reviewed(FakeLookups::default(), &chosen).await;
    let AdmissionVerdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
    assert_eq!(
        denial.message,
        "VersionedConfig shop: user \"eve\" may not change its spec, because that decides what ConfigMap shop holds; this needs the right \
         to update ConfigMap shop in namespace team"
    );
    assert_eq!(asked, ["may eve update ConfigMap shop in team"]);
    let allowed = || FakeLookups { may_update: true, ..FakeLookups::default() };
    let (verdict, _) = reviewed(allowed(), &chosen).await;
    assert!(matches!(verdict, AdmissionVerdict::Allow { warnings, .. } if warnings.len() == 1));
    let same = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&config("1")));
    assert_eq!(
        reviewed(FakeLookups::default(), &same).await,
        (AdmissionVerdict::allow(), vec!["config team/shop".to_owned()])
    );
    let mut bare = config("1");
    bare["spec"] = json!({});
    let made = request("VersionedConfig", "CREATE", None, Some(&bare));
    assert!(reviewed(FakeLookups::default(), &made).await.0.is_denied());
    assert_eq!(reviewed(allowed(), &made).await.0, AdmissionVerdict::allow());
}

#[tokio::test]
async fn who_may_not_import_neither_sets_nor_removes_the_annotation() {
    let mut importing = config("1");
    importing["metadata"]["annotations"] = json!({"nudge.dev/importing": ""});
    let may = |may_import| FakeLookups { may_update: true, may_override: true, may_import, ..FakeLookups::default() };
    for (operation, old, new) in [
        ("CREATE", None, &importing),
        ("UPDATE", Some(&config("1")), &importing),
        ("UPDATE", Some(&importing), &config("1")),
        ("UPDATE", Some(&importing), &config("2")),
    ] {
        let changed = request("VersionedConfig", operation, old, Some(new));
        let (verdict, asked) = reviewed(may(false), &changed).await;
        let AdmissionVerdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert!(denial.message.contains("needs the right to import VersionedConfig shop"), "{}", denial.message);
        assert_eq!(asked, ["may eve import VersionedConfig shop in team"]);
        assert!(!reviewed(may(true), &changed).await.0.is_denied(), "{operation}");
    }
    let kept = request("VersionedConfig", "UPDATE", Some(&importing), Some(&importing));
    assert_eq!(reviewed(may(false), &kept).await.0, AdmissionVerdict::allow());
}

#[tokio::test]
async fn an_analysis_sends_no_secret_that_the_user_may_not_get() {
    let with = |address: &str, most: &str| {
        let prometheus =
            json!({"address": address, "query": "up{pod=~\"{{pods}}\"}", "secretRef": {"name": "metrics"}});
        let mut config = config("1");
        config["spec"]["rollout"] =
            json!({"analysis": [{"name": "errors", "max": "1", "maxRatio": most, "prometheus": prometheus}]});
        config
    };
    let may = |may_read| FakeLookups { may_update: true, may_override: true, may_read, ..FakeLookups::default() };
    let one = with("http://prometheus:9090", "2");
    for (old, new) in [(&config("1"), &one), (&one, &with("http://evil.example.com", "2"))] {
        let changed = request("VersionedConfig", "UPDATE", Some(old), Some(new));
        let (verdict, asked) = reviewed(may(vec![]), &changed).await;
        let AdmissionVerdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert!(denial.message.contains("needs the right to get Secret metrics"), "{}", denial.message);
        assert_eq!(asked.last().map(String::as_str), Some("may eve get Secret metrics in team"));
        assert!(!reviewed(may(vec!["metrics"]), &changed).await.0.is_denied());
    }
    // Where nobody asks such queries, that is said.
    let changed = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&one));
    let lookups = FakeLookups { unattended: vec![AttendedKind::Analyses], ..may(vec!["metrics"]) };
    let AdmissionVerdict::Allow { warnings, .. } = reviewed(lookups, &changed).await.0 else { panic!("denied") };
    assert!(warnings.iter().any(|it| it.contains("the component analysis is not installed")), "{warnings:?}");
    // Who changes something else is not asked.
    let mut baked = one.clone();
    baked["spec"]["rollout"]["bakeSeconds"] = json!(1);
    let changed = request("VersionedConfig", "UPDATE", Some(&one), Some(&baked));
    assert!(!reviewed(may(vec![]), &changed).await.0.is_denied());
    let odd = request("VersionedConfig", "UPDATE", Some(&one), Some(&with("http://prometheus:9090", "0.5")));
    assert!(reviewed(may(vec!["metrics"]), &odd).await.0.is_denied());
}

#[tokio::test(start_paused = true)]
async fn all_rights_are_asked_about_at_the_same_time() {
    let analysis = |secret: &str| {
        let prometheus = json!({"address": "http://prometheus:9090", "query": "up{pod=~\"{{pods}}\"}", "secretRef": {"name": secret}});
        json!({"name": secret, "max": "1", "maxRatio": "2", "prometheus": prometheus})
    };
    let mut changed = config("2");
    changed["spec"]["rollout"] = json!({"analysis": [analysis("metrics"), analysis("more")]});
    changed["spec"]["validation"] = json!([{"name": "a", "key": "a", "format": "json"}]);
    let lookups = FakeLookups {
        slow: Duration::from_millis(1500),
        may_update: true,
        may_override: true,
        may_get: vec![PartKind::ConfigMap, PartKind::Secret],
        may_read: vec!["metrics", "more"],
        secrets: true,
        unattended: vec![AttendedKind::Analyses],
        ..FakeLookups::default()
    };
    let (change, began) = (request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&changed)), Instant::now());
    let AdmissionVerdict::Allow { warnings, .. } = reviewed(lookups, &change).await.0 else { panic!("denied") };
    assert!(warnings.iter().any(|it| it.contains("the component analysis is not installed")), "{warnings:?}");
    assert!(began.elapsed() < Duration::from_secs(2), "the webhook has 3 s: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_change_of_a_config_that_publishes_a_secret_needs_the_right_to_update_that_too() {
    let mut both = [config("1"), config("2")];
    for config in &mut both {
        config["spec"]["objects"] = json!(["ConfigMap", "Secret"]);
    }
    let may = |may_update_secret| FakeLookups { may_update: true, may_update_secret, ..FakeLookups::default() };
    for (old, new) in [(&both[0], &both[1]), (&config("1"), &both[0]), (&both[0], &config("1"))] {
        let change = request("VersionedConfig", "UPDATE", Some(old), Some(new));
        let (verdict, asked) = reviewed(may(false), &change).await;
        let AdmissionVerdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            denial.message,
            "VersionedConfig shop: user \"eve\" may not change its spec, because that decides what Secret shop holds; this needs the \
             right to update Secret shop in namespace team"
        );
        assert_eq!(asked, ["may eve update ConfigMap shop in team", "may eve update Secret shop in team"]);
        assert!(!reviewed(may(true), &change).await.0.is_denied());
    }
}

#[tokio::test]
async fn steps_that_no_pod_can_match_are_refused_whatever_the_user_may() {
    for name in ["shop", ""] {
        let mut made = config("1");
        made["metadata"]["name"] = json!(name);
        made["spec"]["rollout"] = json!({"steps": [{"pods": 1, "selector": {"matchLabels": {"a b": "c"}}}]});
        let made = request("VersionedConfig", "CREATE", None, Some(&made));
        let lookups = FakeLookups { may_update: true, ..FakeLookups::default() };
        let (verdict, asked) = reviewed(lookups, &made).await;
        assert!(verdict.is_denied() && asked.is_empty(), "{name}: {verdict:?}");
    }
}

#[tokio::test]
async fn who_assigns_a_version_to_all_pods_at_once_and_why_is_in_the_audit_trail() {
    let until = ahead(3);
    let now = |reason: &str| {
        let mut config = config("1");
        config["spec"]["rollout"]["override"] = json!({"version": "1", "reason": reason, "untilTime": until});
        config
    };
    for (old, new, lines) in [
        (config("1"), now("a key leaked"), 1),
        (now("a key leaked"), now("a key leaked"), 0),
        (now("a key leaked"), now("another"), 1),
        (now("a key leaked"), config("1"), 0),
    ] {
        log::listen();
        let change = request("VersionedConfig", "UPDATE", Some(&old), Some(&new));
        let lookups = FakeLookups { may_update: true, may_override: true, ..FakeLookups::default() };
        assert!(!reviewed(lookups, &change).await.0.is_denied());
        let found = log::lines("version chosen for all pods at once");
        assert_eq!(found.len(), lines, "{found:?}");
        let reason = new["spec"]["rollout"]["override"]["reason"].as_str().unwrap_or_default();
        assert!(found.iter().all(|line| line.contains(reason)), "{found:?}");
    }
}

fn guarded(version: &str, rollout: Value) -> Value {
    let mut config = config(version);
    config["spec"]["rollout"] = rollout;
    config
}

#[tokio::test]
async fn what_weakens_guards_needs_the_right_to_override_them() {
    let two = || json!({"approval": {"required": 2}});
    let at_once = json!({"override": {"version": "1", "reason": "a key leaked", "untilTime": ahead(3)}});
    let refused = |old: Option<&Value>, new: &Value| {
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let change = request("VersionedConfig", operation, old, Some(new));
        async move {
            let lookups = FakeLookups { may_update: true, ..FakeLookups::default() };
            let (verdict, asked) = reviewed(lookups, &change).await;
            let may = FakeLookups { may_update: true, may_override: true, ..FakeLookups::default() };
            assert!(!reviewed(may, &change).await.0.is_denied());
            let asked = asked.iter().any(|question| question == "may eve override VersionedConfig shop in team");
            let AdmissionVerdict::Deny(denial) = verdict else { return (None, asked) };
            (Some(denial.message), asked)
        }
    };
    // In the same patch that activates, and alone.
    for version in ["1", "2"] {
        let (denied, _) = refused(Some(&guarded("1", two())), &config(version)).await;
        assert_eq!(
            denied.unwrap(),
            "VersionedConfig shop: user \"eve\" may not change its spec, because that removes spec.rollout.approval; this needs the \
             right to override VersionedConfig shop in namespace team"
        );
    }
    let (denied, _) = refused(None, &guarded("1", at_once.clone())).await;
    assert!(
        denied.unwrap().contains("may not set spec.rollout.override, because that version then waits for no step,")
    );
    let mut both = two();
    both["override"] = at_once["override"].clone();
    let left = guarded("2", both.clone());
    for (old, new, is_denied) in [
        (config("1"), guarded("1", at_once.clone()), true),
        (left.clone(), guarded("1", both.clone()), true),
        (left.clone(), guarded("1", two()), false),
        (guarded("1", both.clone()), left.clone(), false),
        (config("1"), guarded("2", two()), false),
        (guarded("1", two()), guarded("2", two()), false),
    ] {
        let (denied, asked) = refused(Some(&old), &new).await;
        assert_eq!((denied.is_some(), asked), (is_denied, is_denied), "{old} {new}");
    }
}

#[tokio::test]
async fn a_config_with_guards_is_deleted_by_who_may_override_them() {
    let mut object = guarded("1", json!({"approval": {}}));
    object["metadata"]["uid"] = json!("u");
    let deletion = request("VersionedConfig", "DELETE", Some(&object), None);
    let stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
    let lookups = || FakeLookups { config: Some(stored.clone()), ..FakeLookups::default() };
    let AdmissionVerdict::Deny(denial) = reviewed(lookups(), &deletion).await.0 else { panic!("it passed") };
    assert_eq!(
        denial.message,
        "VersionedConfig shop: user \"eve\" may not delete it, because that removes its guards (approval); this needs the right to \
         override VersionedConfig shop in namespace team"
    );
    let may = FakeLookups { may_override: true, ..lookups() };
    assert_eq!(reviewed(may, &deletion).await.0, AdmissionVerdict::allow());
    let terminating = FakeLookups { terminating: true, ..lookups() };
    assert_eq!(reviewed(terminating, &deletion).await.0, AdmissionVerdict::allow());
    let AdmissionVerdict::Deny(denial) = reviewed(FakeLookups { reviews_fail: true, ..lookups() }, &deletion).await.0
    else {
        panic!("it passed")
    };
    assert_eq!(denial.reason.status().0, 503);
}

#[tokio::test]
async fn what_deletes_versions_needs_the_right_to_delete_their_kinds() {
    let mut lower = config("1");
    lower["spec"]["historyLimit"] = json!(3);
    let lowered = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&lower));
    let may = |secrets, kinds: &[PartKind]| FakeLookups {
        may_update: true,
        may_delete: kinds.to_vec(),
        secrets,
        ..FakeLookups::default()
    };
    let (verdict, asked) = reviewed(may(false, &[]), &lowered).await;
    let AdmissionVerdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
    assert_eq!(
        denial.message,
        "VersionedConfig shop: user \"eve\" may not lower its historyLimit, because that deletes its versions; this needs the \
         right to delete ConfigMaps in namespace team"
    );
    assert_eq!(asked, ["may eve update ConfigMap shop in team", "may eve delete ConfigMaps in team"]);
    assert!(!reviewed(may(false, &[PartKind::ConfigMap]), &lowered).await.0.is_denied());
    assert!(reviewed(may(true, &[PartKind::ConfigMap]), &lowered).await.0.is_denied());
    assert!(!reviewed(may(true, &[PartKind::ConfigMap, PartKind::Secret]), &lowered).await.0.is_denied());
    // Nor can it be had by a config that is created.
    let made = request("VersionedConfig", "CREATE", None, Some(&lower));
    assert!(reviewed(may(false, &[]), &made).await.0.is_denied());
    let usual = request("VersionedConfig", "CREATE", None, Some(&config("1")));
    assert!(!reviewed(may(true, &[]), &usual).await.0.is_denied());
}

/// The deletion of the config with that uid, and the stored config whose versions have parts of these kinds.
fn deletion(kinds: &[PartKind]) -> (ReviewRequest, VersionedConfig) {
    let mut object = config("1");
    object["metadata"]["uid"] = json!("u");
    let mut stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
    let mut version = sealed("1", &["a", "b"]);
    version.parts = kinds.iter().zip(&version.parts).map(|(&kind, part)| PartStatus { kind, ..part.clone() }).collect();
    stored.status.get_or_insert_default().versions = vec![version];
    (request("VersionedConfig", "DELETE", Some(&object), None), stored)
}

#[tokio::test]
async fn a_config_goes_only_with_what_the_user_may_delete() {
    use PartKind::{ConfigMap, Secret};
    // A part that is not sealed yet goes with it, too.
    let (unsealed, config) = deletion(&[ConfigMap]);
    let may = |part_kinds: &[PartKind]| FakeLookups {
        config: Some(config.clone()),
        may_delete: vec![ConfigMap],
        part_kinds: part_kinds.to_vec(),
        ..FakeLookups::default()
    };
    assert!(!reviewed(may(&[ConfigMap]), &unsealed).await.0.is_denied());
    assert!(reviewed(may(&[ConfigMap, Secret]), &unsealed).await.0.is_denied());
    let (deletion, stored) = deletion(&[ConfigMap, Secret]);
    let may = |kinds: &[PartKind]| FakeLookups {
        config: Some(stored.clone()),
        may_delete: kinds.to_vec(),
        ..FakeLookups::default()
    };
    let (verdict, asked) = reviewed(may(&[ConfigMap]), &deletion).await;
    let AdmissionVerdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
    assert_eq!(
        denial.message,
        "VersionedConfig shop: user \"eve\" may not delete it, because that deletes its versions; this needs the right to delete \
         Secrets in namespace team"
    );
    assert_eq!(
        asked,
        [
            "config team/shop",
            "subscribers team/shop",
            "may eve delete ConfigMaps in team",
            "may eve delete Secrets in team",
            "terminating team"
        ]
    );
    assert!(reviewed(may(&[Secret]), &deletion).await.0.is_denied());
    assert_eq!(reviewed(may(&[ConfigMap, Secret]), &deletion).await.0, AdmissionVerdict::allow());
    // With its namespace it goes, and Nudge deletes nothing.
    let terminating = FakeLookups { terminating: true, ..may(&[]) };
    assert_eq!(reviewed(terminating, &deletion).await.0, AdmissionVerdict::allow());
    // A request that can't be decided is refused: `Ignore` would let it pass.
    let away = FakeLookups { reviews_fail: true, ..may(&[ConfigMap, Secret]) };
    let AdmissionVerdict::Deny(denial) = reviewed(away, &deletion).await.0 else { panic!("it passed") };
    assert_eq!(denial.reason.status().0, 503);
    let down = FakeLookups { fails: true, ..may(&[ConfigMap, Secret]) };
    let AdmissionVerdict::Deny(denial) = reviewed(down, &deletion).await.0 else { panic!("it passed") };
    assert_eq!(denial.reason.status().0, 503);
    let often = Arc::new(FakeLookups { too_many: true, ..may(&[]) });
    let error = ValidateConfigs::new(often).review(&deletion).await.unwrap_err();
    assert!(matches!(error, WebhookError::Lookup(LookupError::TooMany { .. })));
}

#[tokio::test]
async fn a_deletion_under_way_and_one_of_the_namespace_controller_pass() {
    let (mut deletion, mut stored) = deletion(&[PartKind::Secret]);
    stored.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    let there = || FakeLookups { config: Some(stored.clone()), ..FakeLookups::default() };
    assert_eq!(reviewed(there(), &deletion).await.0, AdmissionVerdict::allow());
    stored.metadata.deletion_timestamp = None;
    let there = FakeLookups { config: Some(stored.clone()), ..FakeLookups::default() };
    deletion.user_info.username = Some("system:serviceaccount:kube-system:namespace-controller".into());
    assert_eq!(reviewed(there, &deletion).await, (AdmissionVerdict::allow(), Vec::new()));
}

#[tokio::test]
async fn a_config_with_pods_stays_unless_its_namespace_is_terminating() {
    let mut object = config("1");
    object["metadata"]["uid"] = json!("u");
    let deletion = request("VersionedConfig", "DELETE", Some(&object), None);
    let stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
    let there = |subscribers| FakeLookups { config: Some(stored.clone()), subscribers, ..FakeLookups::default() };
    assert!(reviewed(there(1), &deletion).await.0.is_denied());
    let terminating = FakeLookups { terminating: true, ..there(1) };
    assert_eq!(reviewed(terminating, &deletion).await.0, AdmissionVerdict::allow());
    assert_eq!(reviewed(there(0), &deletion).await.0, AdmissionVerdict::allow());
    for uid in [Value::Null, json!(""), json!("v")] {
        object["metadata"]["uid"] = uid;
        let guess = request("VersionedConfig", "DELETE", Some(&object), None);
        assert_eq!(reviewed(there(1), &guess).await, reviewed(FakeLookups::default(), &guess).await);
    }
}
