//! The same rules as far as the API server checks them by itself: without any webhook, as with the injector down.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::{PartKind, VersionApproval, VersionedConfig, VersionedConfigSpec};
use nudge_core::versions::{PartPlace, made_by};
use nudge_tests::cluster::options::CONTROLLERS;
use nudge_tests::cluster::{Cluster, Options, TestNamespace};
use nudge_tests::eventually;
use nudge_tests::policies::Recorder;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::configs::allow_devs;
use crate::guarded_cluster::{
    MISNUMBERED, SOON, all_guards, at_once, config, create, decisive_changes, deleting_changes, install_crd, key,
    may_not_delete, may_not_override, number, open_guards, part, sealed, strict_changes, weakening_changes,
    with_secret,
};
use crate::guards::all_but_override;

macro_rules! policy {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../deploy/components/admission-policies/",
            $name,
            ".yaml"
        ))
    };
}
const POLICIES: [&str; 8] = [
    policy!("approvals"),
    policy!("versions-made"),
    policy!("versions-marked"),
    policy!("versions-unchanged"),
    policy!("versions-kept"),
    policy!("configs-deleted"),
    policy!("configs-guarded"),
    policy!("configs"),
];

/// Records the server's answers, if the environment requests that.
static RECORDER: OnceCell<Recorder> = OnceCell::const_new();

/// The message of a refusal by a policy.
#[track_caller]
fn message<T: std::fmt::Debug>(policy: &str, result: Result<T, kube::Error>) -> String {
    let error = result.expect_err("this is to be refused");
    let kube::Error::Api(status) = &error else { panic!("{error}") };
    let mark = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: ");
    let (_, message) = status.message.split_once(&mark).unwrap_or_else(|| panic!("{status:?}"));
    if let Some(recorder) = RECORDER.get() {
        recorder.denied(policy, message);
    }
    message.to_owned()
}

fn immutable(name: &str) -> Value {
    let mut object = part(name);
    object["immutable"] = json!(true);
    object
}

async fn made(space: &TestNamespace, object: Value) -> Result<ConfigMap, kube::Error> {
    let object = serde_json::from_value(object).expect("a ConfigMap");
    space.api::<ConfigMap>().create(&PostParams::default(), &object).await
}

#[tokio::test]
async fn the_policies_say_the_same_as_the_webhooks() -> Result<()> {
    let Some(shared) = Cluster::shared().await? else { return Ok(()) };
    if !shared.has(30, "a ValidatingAdmissionPolicy") {
        return Ok(());
    }
    // This controller checks the types of expressions, and is unknown to older servers.
    let controllers = [&CONTROLLERS[..], &["validatingadmissionpolicy-status-controller"]].concat();
    let Some(cluster) = Cluster::start(&Options::default().controllers(&controllers)).await? else { return Ok(()) };
    let admin = cluster.admin().await?;
    install_crd(&admin).await?;
    for document in POLICIES {
        for document in serde_saphyr::from_multiple::<Value>(document)? {
            match document["kind"].as_str() {
                Some("ValidatingAdmissionPolicy") => create::<ValidatingAdmissionPolicy>(&admin, document).await?,
                _ => create::<ValidatingAdmissionPolicyBinding>(&admin, document).await?,
            }
        }
    }
    let policies = Api::<ValidatingAdmissionPolicy>::all(admin.clone());
    for name in ["made", "marked", "unchanged", "kept"]
        .map(|it| format!("nudge-versions-{it}"))
        .iter()
        .map(String::as_str)
        .chain(["nudge-approvals", "nudge-configs", "nudge-configs-deleted", "nudge-configs-guarded"])
    {
        let checked = async || policies.get(name).await.ok()?.status?.type_checking;
        let checked = eventually(SOON, "the types are checked", checked).await?;
        assert_eq!(checked.expression_warnings, None, "{name}");
    }
    let space = cluster.space_with("policies", &[("nudge.dev/enabled", "true")]).await?;
    // The policy that was created last: it is in force no earlier than the other policies.
    let mut probe = VersionedConfig::new("probe", VersionedConfigSpec::default());
    probe.spec.version = Some("current".to_owned());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually(SOON, "the policies are in force", async || space.api().create(&dry, &probe).await.err()).await?;

    let resources =
        [("", "configmaps"), ("", "secrets"), ("nudge.dev", "versionedconfigs"), ("nudge.dev", "versionapprovals")];
    let recorder = RECORDER.get_or_try_init(|| Recorder::start("policies", &admin, &resources)).await?;
    versions_made(&space).await?;
    versions_unchanged(&space).await?;
    versions_kept(&space).await?;
    versions_marked(&cluster, &space).await?;
    configs(&cluster, &space).await?;
    configs_guarded(&cluster).await?;
    approvals(&cluster).await?;
    let elsewhere = cluster.space("elsewhere").await?;
    made(&elsewhere, part("a")).await?;
    let own = space.api::<ConfigMap>().get("a").await?;
    let status = json!({"currentVersion": "1.0.1", "versions": [sealed("1.0.1", &[&own])]});
    config(&space, "terminating", json!({}), status).await?;
    // From before the namespace was enabled: not immutable, and so never a version.
    let enabled = Patch::Merge(json!({"metadata": {"labels": {"nudge.dev/enabled": "true"}}}));
    Api::<Namespace>::all(admin.clone()).patch(&elsewhere.name, &PatchParams::default(), &enabled).await?;
    let noted = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    let patched = async || elsewhere.api::<ConfigMap>().patch("a", &PatchParams::default(), &noted).await.err();
    let refused = eventually(SOON, "the namespace counts as enabled", patched).await?;
    assert_eq!(
        message("nudge-versions-unchanged", Err::<(), _>(refused)),
        "ConfigMap a, part of version 1.0.1 of config shop, must stay immutable, because a version is never changed; set immutable: true"
    );
    recorder.write()?;
    space.delete(SOON * 2).await
}

async fn versions_made(space: &TestNamespace) -> Result<()> {
    const POLICY: &str = "nudge-versions-made";
    assert_eq!(
        message(POLICY, made(space, part("a")).await),
        "ConfigMap a, part of version 1.0.1 of config shop, must be immutable; set immutable: true"
    );
    let mut object = immutable("a");
    object["metadata"]["labels"]["nudge.dev/version"] = json!("current");
    assert_eq!(
        message(POLICY, made(space, object).await),
        "ConfigMap a can't be a version: 'current' stands for the version that is current; choose another name in its label \
         nudge.dev/version"
    );
    let mut object = immutable("a");
    object["metadata"]["labels"] = json!({"nudge.dev/config": "shop"});
    assert_eq!(
        message(POLICY, made(space, object).await),
        "ConfigMap a can't be a version: label nudge.dev/version is missing; add it"
    );
    for (label, annotation, expected) in MISNUMBERED {
        let mut object = immutable("a");
        number(&mut object, label, annotation);
        assert_eq!(message(POLICY, made(space, object).await), format!("ConfigMap a can't be a version: {expected}"));
    }
    let mut object = immutable("a");
    object["metadata"]["labels"]["nudge.dev/config"] = json!("Shop");
    assert_eq!(
        message(POLICY, made(space, object).await),
        "ConfigMap a can't be a version: label nudge.dev/config must be the name of a config; correct it"
    );
    let mut object = immutable("a");
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"}]);
    assert_eq!(
        message(POLICY, made(space, object).await),
        "ConfigMap a, part of version 1.0.1 of config shop, has an owner, and a version must have none because it would be \
         deleted together with it; remove metadata.ownerReferences"
    );
    let mut object = immutable("a");
    object["data"]["nudge.configs"] = json!("1");
    assert_eq!(
        message(POLICY, made(space, object).await),
        "ConfigMap a, part of version 1.0.1 of config shop, can't be a version: keys that begin with 'nudge.' are reserved for Nudge; \
         rename them"
    );
    let mut object = immutable("a");
    object["type"] = json!("kubernetes.io/service-account-token");
    object["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
    object["data"] = json!({});
    let secret: Secret = serde_json::from_value(object)?;
    assert_eq!(
        message(POLICY, space.api().create(&PostParams::default(), &secret).await),
        "Secret a, part of version 1.0.1 of config shop, is of type kubernetes.io/service-account-token, which the cluster itself fills \
         in and changes; use the type Opaque"
    );
    for note in ["1 x bob", "1 x y admin", "admin", " admin", "1 x admin ", "1  admin"] {
        let mut object = immutable("a");
        object["metadata"]["annotations"] = json!({"nudge.dev/made-by": note});
        assert_eq!(
            message(POLICY, made(space, object).await),
            "ConfigMap a, part of version 1.0.1 of config shop, must not say that another user has created it; take its annotation \
             nudge.dev/made-by out",
            "{note}"
        );
    }
    let mut own = immutable("own");
    let (meta, content) = (ObjectMeta::deserialize(&own["metadata"])?, BTreeMap::<String, String>::new());
    let place = PartPlace { kind: PartKind::ConfigMap, namespace: &space.name };
    let note = made_by(&key(), place, &meta, &content, "admin", Timestamp::now());
    own["metadata"]["annotations"] = json!({"nudge.dev/made-by": note.context("it has a name")?});
    made(space, own).await.context("as the webhook leaves it")?;
    made(space, immutable("a")).await?;
    made(space, json!({"metadata": {"name": "plain"}, "data": {"lives": "3"}})).await?;
    Ok(())
}

async fn versions_unchanged(space: &TestNamespace) -> Result<()> {
    const POLICY: &str = "nudge-versions-unchanged";
    let merged = async |name: &str, change: Value| {
        space.api::<ConfigMap>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await
    };
    merged("a", json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})).await?;
    let title = "ConfigMap a, part of version 1.0.1 of config shop,";
    for change in
        [json!({"nudge.dev/version": "2"}), json!({"nudge.dev/config": null}), json!({"nudge.dev/prune": "true"})]
    {
        assert_eq!(
            message(POLICY, merged("a", json!({"metadata": {"labels": change}})).await),
            format!(
                "{title} can't be changed, and so neither can its labels nudge.dev/...; create another version, or delete this \
                     one"
            )
        );
    }
    assert_eq!(
        message(POLICY, merged("a", json!({"metadata": {"annotations": {"nudge.dev/parts": "2"}}})).await),
        format!(
            "{title} can't be changed, and so neither can its annotations nudge.dev/...; create another version, or delete \
                 this one"
        )
    );
    let labels = json!({"metadata": {"labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1"}}});
    assert_eq!(
        message(POLICY, merged("plain", labels).await),
        "ConfigMap plain already exists and can't become a version by being labelled; create a new object with the labels \
         nudge.dev/config and nudge.dev/version"
    );
    Ok(())
}

async fn versions_kept(space: &TestNamespace) -> Result<()> {
    const POLICY: &str = "nudge-versions-kept";
    config(space, "other", json!({}), json!({"currentVersion": "1.0.1"})).await?;
    config(space, "shop", json!({}), json!({"observedGeneration": 1})).await?;
    let config_maps = space.api::<ConfigMap>();
    let deleted = async || config_maps.delete("a", &DeleteParams::default()).await.map(drop);
    let title = "ConfigMap a, part of version 1.0.1 of config shop, can't be deleted, because";
    let configs = space.api::<VersionedConfig>();
    let roles = [
        (json!({"currentVersion": "1.0.1"}), "the version is current; make another version current first"),
        (
            json!({"currentVersion": "2", "targetVersion": "1.0.1"}),
            "pods are being moved to the version; make another version current first",
        ),
        (
            json!({"targetVersion": null, "previousVersion": "1.0.1"}),
            "it is the version before the current one, to which pods would return; delete it when another version has become current, or \
             delete its VersionedConfig",
        ),
    ];
    for (mut status, because) in roles {
        let own = config_maps.get("a").await?;
        status["versions"] = json!([sealed("1.0.1", &[&own])]);
        let patch = Patch::Merge(json!({"status": status}));
        configs.patch_status("shop", &PatchParams::default(), &patch).await?;
        let expected = format!("{title} {because}");
        // The API server's own view of the configs follows a moment later; until it knows one there is no refusal
        // either.
        eventually(SOON, because, async || {
            if let Err(kube::Error::Api(status)) = deleted().await {
                return status.message.ends_with(&expected).then_some(());
            }
            // Another object of the name is not the one that was sealed.
            let own = made(space, immutable("a")).await.ok()?;
            let patch = Patch::Merge(json!({"status": {"versions": [sealed("1.0.1", &[&own])]}}));
            let _ = configs.patch_status("shop", &PatchParams::default(), &patch).await;
            None
        })
        .await?;
    }
    assert!(message(POLICY, deleted().await).starts_with(title));
    let patch = Patch::Merge(json!({"status": {"previousVersion": null}}));
    configs.patch_status("shop", &PatchParams::default(), &patch).await?;
    eventually(SOON, "the version may go", async || deleted().await.ok()).await?;
    configs.delete("shop", &DeleteParams::default()).await?;
    made(space, immutable("a")).await?;
    Ok(())
}

async fn versions_marked(cluster: &Cluster, space: &TestNamespace) -> Result<()> {
    const POLICY: &str = "nudge-versions-marked";
    let elsewhere = cluster.space("marked").await?;
    for space in [space, &elsewhere] {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["hers", "late"], "verbs": ["patch", "update"]}]);
        allow_devs(space, "parts", rules).await?;
        let jane =
            TestNamespace { client: cluster.client(&cluster.user("jane", &["devs"])).await?, name: space.name.clone() };
        eventually(SOON, "the role holds", async || made(&jane, immutable("hers")).await.ok()).await?;
        let mark = json!({"nudge.dev/may-activate": "x"});
        let refusal = |name: &str| {
            format!(
                "ConfigMap {name}: user \"jane\" may not set its annotation nudge.dev/may-activate, because that decides what ConfigMap shop \
                 holds; take the annotation out"
            )
        };
        let mut marked = immutable("other");
        marked["metadata"]["annotations"] = mark.clone();
        assert_eq!(message(POLICY, made(&jane, marked.clone()).await), refusal("other"));
        let patch = Patch::Merge(json!({"metadata": {"annotations": mark}}));
        let set = jane.api::<ConfigMap>().patch("hers", &PatchParams::default(), &patch).await;
        let kube::Error::Api(status) = set.unwrap_err() else { panic!("no answer") };
        assert!(status.message.contains("may-activate") || status.message.contains("can't be changed"), "{status:?}");
        // A user who may update the ConfigMap may also copy a mark: it is not valid on another part.
        made(space, marked).await.context("an admin may")?;
        space.api::<ConfigMap>().delete("other", &DeleteParams::default()).await?;
    }
    // The right to mark is not checked before the object has a label, so it counts as new with each label.
    let jane =
        TestNamespace { client: cluster.client(&cluster.user("jane", &["devs"])).await?, name: elsewhere.name.clone() };
    let mut late = immutable("late");
    late["metadata"]["labels"] = json!({});
    late["metadata"]["annotations"] = json!({"nudge.dev/may-activate": "x"});
    made(&jane, late).await?;
    let labelled = async |by: &TestNamespace, config: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"nudge.dev/config": config}}}));
        by.api::<ConfigMap>().patch("late", &PatchParams::default(), &patch).await
    };
    for config in ["shop", "keys"] {
        assert_eq!(
            message(POLICY, labelled(&jane, config).await),
            format!(
                "ConfigMap late: user \"jane\" may not set its annotation nudge.dev/may-activate, because that decides what ConfigMap {config} \
                 holds; take the annotation out"
            )
        );
        labelled(&elsewhere, config).await.context("an admin may")?;
        labelled(&jane, config).await.context("it stays as it is")?;
    }
    Ok(())
}

async fn configs(cluster: &Cluster, space: &TestNamespace) -> Result<()> {
    const POLICY: &str = "nudge-configs";
    allow_devs(
        space,
        "configs",
        json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]}]),
    )
    .await?;
    let jane = cluster.client(&cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    let create = async |name: &str, version: Value| {
        let config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
            "spec": {"version": version}
        });
        configs.create(&PostParams::default(), &serde_json::from_value(config).expect("a config")).await
    };
    eventually(SOON, "the role holds", async || configs.list(&ListParams::default()).await.ok()).await?;
    let admin = space.api::<VersionedConfig>();
    config(space, "first", json!({}), json!({"currentVersion": "1"})).await?;
    // A policy is at work a moment after it was accepted, each at its own time.
    let refused = eventually(SOON, "the policy is at work", async || {
        let made = create("shop", json!("1")).await;
        if made.is_ok() {
            let _ = configs.delete("shop", &DeleteParams::default()).await;
            return None;
        }
        Some(made)
    });
    let refusal = |name: &str, what: &str| {
        format!(
            "VersionedConfig {name}: user \"jane\" may not {what}, because that decides what ConfigMap {name} holds; this needs the right to \
             update ConfigMap {name} in namespace {}",
            space.name
        )
    };
    assert_eq!(message(POLICY, refused.await?), refusal("shop", "create it"));
    assert_eq!(message(POLICY, create("shop", Value::Null).await), refusal("shop", "create it"));
    for (change, what) in decisive_changes() {
        let changed = configs.patch("first", &PatchParams::default(), &Patch::Merge(change.clone())).await;
        assert_eq!(message(POLICY, changed), refusal("first", what));
        admin.patch("first", &PatchParams::default(), &Patch::Merge(change)).await.context("an admin may")?;
    }
    for (change, [what, _]) in deleting_changes() {
        let changed = configs.patch("first", &PatchParams::default(), &Patch::Merge(change.clone())).await;
        assert_eq!(message(POLICY, changed), refusal("first", what));
    }
    deletions(cluster, space).await?;
    for (change, _) in deleting_changes() {
        admin.patch("first", &PatchParams::default(), &Patch::Merge(change)).await.context("an admin may")?;
    }
    // Forced, with a finalizer and an owner: existing fields may stay, and fields that decide nothing may change.
    let noted = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}));
    configs.patch("first", &PatchParams::default(), &noted).await?;
    let freed = Patch::Merge(json!({"metadata": {"finalizers": null, "ownerReferences": null}}));
    configs.patch("first", &PatchParams::default(), &freed).await?;
    let long = format!("{}.b", "a".repeat(62));
    assert_eq!(
        message(POLICY, config_of(&admin, &long).await),
        format!(
            "VersionedConfig {long}: metadata.name: versions have it in the label nudge.dev/config, where 63 characters are \
                 allowed; give it a shorter name"
        )
    );
    let chosen = Patch::Merge(json!({"spec": {"version": "1"}}));
    admin.patch("first", &PatchParams::default(), &chosen).await.context("an admin may")?;
    let reserved = Patch::Merge(json!({"spec": {"version": "current"}}));
    assert_eq!(
        message(POLICY, admin.patch("first", &PatchParams::default(), &reserved).await),
        "VersionedConfig first: spec.version: version \"current\" is not allowed: 'current' stands for the version that is current; \
         choose another name"
    );
    Ok(())
}

/// A change of a config that makes Nudge delete objects needs the right to delete them.
async fn deletions(cluster: &Cluster, space: &TestNamespace) -> Result<()> {
    const POLICY: &str = "nudge-configs-deleted";
    let jane = cluster.client(&cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    config(space, "sealed", json!({}), with_secret()).await?;
    let delete = async || configs.delete("sealed", &DeleteParams::default()).await.map(drop);
    let expected = |what, kind| may_not_delete(space, "sealed", what, kind);
    assert_eq!(message(POLICY, delete().await), expected("delete it", "ConfigMap"));
    let only = ListParams::default().fields("metadata.name=sealed");
    let all = configs.delete_collection(&DeleteParams::default(), &only).await;
    assert_eq!(message(POLICY, all.map(drop)), expected("delete it", "ConfigMap"));
    let update =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["sealed"], "verbs": ["update"]}]);
    allow_devs(space, "update", update).await?;
    let change = async |change: &Value| configs.patch("sealed", &PatchParams::default(), &Patch::Merge(change)).await;
    let change = &change;
    eventually(SOON, "the role holds", async || change(&json!({"spec": {"version": "1"}})).await.ok()).await?;
    publishing(space, change).await?;
    for (asked, [_, what]) in deleting_changes() {
        assert_eq!(message("nudge-configs", change(&asked).await), expected(what, "ConfigMap"));
    }
    allow_devs(space, "maps", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}])).await?;
    let seen = async || (message(POLICY, delete().await) == expected("delete it", "Secret")).then_some(());
    eventually(SOON, "the role holds", seen).await?;
    for (asked, [_, what]) in deleting_changes() {
        assert_eq!(message("nudge-configs", change(&asked).await), expected(what, "Secret"));
    }
    allow_devs(space, "secrets", json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}])).await?;
    eventually(SOON, "the role holds", async || delete().await.ok()).await?;
    // Deleted with its namespace below, by a controller that is not asked.
    config(space, "left", json!({}), with_secret()).await?;
    Ok(())
}

/// Guards are weakened and deleted by those who may override them.
async fn configs_guarded(cluster: &Cluster) -> Result<()> {
    const POLICY: &str = "nudge-configs-guarded";
    // A config that jane does not have all rights to.
    let space = &cluster.space_with("guarded", &[("nudge.dev/enabled", "true")]).await?;
    allow_devs(space, "all", all_but_override()).await?;
    let jane = cluster.client(&cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    let change = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        configs.patch("guarded", &PatchParams::default(), &patch).await
    };
    config(space, "guarded", json!({"version": "1"}), json!({"currentVersion": "1"})).await?;
    eventually(SOON, "the role holds", async || change(open_guards()).await.ok()).await?;
    let refused = |what, because| may_not_override(space, "guarded", what, because);
    let protects = refused("change its spec", "that protects spec.rollout.hold");
    assert_eq!(message(POLICY, change(all_guards()).await), protects);
    let admin = space.api::<VersionedConfig>();
    let by_admin =
        async |spec: Value| admin.patch("guarded", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await;
    by_admin(all_guards()).await?;
    for (rollout, because) in weakening_changes() {
        let spec = json!({"version": "2", "rollout": rollout});
        assert_eq!(message(POLICY, change(spec).await), refused("change its spec", because), "{rollout}");
    }
    // Only the webhook knows what time it is.
    let until = |until: Value| json!({"rollout": {"hold": {"reason": "the sale", "untilTime": until}}});
    by_admin(until(json!("2099-01-01T00:00:00Z"))).await?;
    change(until(json!("2020-01-01T00:00:00Z"))).await?;
    change(until(Value::Null)).await?;
    let deleted = async || configs.delete("guarded", &DeleteParams::default()).await.map(drop);
    let because = "that removes its guards (approval, windows, hold, analysis)";
    assert_eq!(message(POLICY, deleted().await), refused("delete it", because));
    let because = "that version then waits for no step, approval, window or hold";
    let spec = json!({"version": "2", "rollout": at_once("2", "mine")});
    assert_eq!(message(POLICY, change(spec).await), refused("set spec.rollout.override", because));
    by_admin(json!({"version": "3", "rollout": at_once("2", "an outage")})).await?;
    let again = refused("request version 2, which spec.rollout.override names", because);
    assert_eq!(message(POLICY, change(json!({"version": "2"})).await), again);
    for rollout in strict_changes() {
        change(json!({"rollout": rollout})).await.with_context(|| rollout.to_string())?;
    }
    by_admin(json!({"rollout": null})).await?;
    Ok(deleted().await?)
}

/// Approvals belong to their users, and stay.
async fn approvals(cluster: &Cluster) -> Result<()> {
    const POLICY: &str = "nudge-approvals";
    let space = &cluster.space_with("approvals", &[("nudge.dev/enabled", "true")]).await?;
    let all = json!({"apiGroups": ["nudge.dev"], "resources": ["versionapprovals"], "verbs": ["*"]});
    let approve = json!({
        "apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "resourceNames": ["shop"], "verbs": ["approve"]
    });
    allow_devs(space, "approvals", json!([all, approve])).await?;
    let jane =
        TestNamespace { client: cluster.client(&cluster.user("jane", &["devs"])).await?, name: space.name.clone() };
    let decided = async |name: &str, config: &str, approver: &str| {
        let spec = json!({
            "configName": config, "version": "2", "digest": format!("sha256:{}", "0".repeat(48)), "decision": "Deny",
            "reason": "x", "approver": approver
        });
        let object = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": {"name": name}, "spec": spec
        });
        let object: VersionApproval = serde_json::from_value(object).expect("a VersionApproval");
        jane.api::<VersionApproval>().create(&PostParams::default(), &object).await
    };
    eventually(SOON, "the role holds", async || decided("hers", "shop", "jane").await.ok()).await?;
    assert_eq!(
        message(POLICY, decided("one", "shop", "bob").await),
        "VersionApproval one: spec.approver is \"bob\", and you are \"jane\"; leave it out, and Nudge fills it in"
    );
    assert_eq!(
        message(POLICY, decided("one", "other", "jane").await),
        format!(
            "VersionApproval one: user \"jane\" may not approve or deny versions of config other; this needs the right to approve versions \
             of VersionedConfig other in namespace {}",
            space.name
        )
    );
    let api = jane.api::<VersionApproval>();
    let change = async |change: Value| api.patch("hers", &PatchParams::default(), &Patch::Merge(change)).await;
    assert_eq!(
        message(POLICY, change(json!({"spec": {"decision": "Approve"}})).await),
        "VersionApproval hers: its spec can't be changed; withdraw it (kubectl nudge approve or deny with --undo), and decide again"
    );
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
    assert_eq!(
        message(POLICY, change(json!({"metadata": {"ownerReferences": owner}})).await),
        "VersionApproval hers: it must not have an owner, because it would be deleted with its owner; remove metadata.ownerReferences"
    );
    change(json!({"metadata": {"labels": {"team": "a"}}})).await?;
    // Only the controllers write its status, even if somebody else may write all other fields.
    let status = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
    let refused = api.patch_status("hers", &PatchParams::default(), &status).await.expect_err("this is to be refused");
    assert!(refused.to_string().contains("versionapprovals/status"), "{refused}");
    space.api::<VersionApproval>().patch_status("hers", &PatchParams::default(), &status).await?;
    let john = cluster.client(&cluster.user("john", &["devs"])).await?;
    let withdrawn =
        Api::<VersionApproval>::namespaced(john, &space.name).delete("hers", &DeleteParams::default()).await;
    assert_eq!(
        message(POLICY, withdrawn.map(drop)),
        format!(
            "VersionApproval hers: user \"john\" may not withdraw what user \"jane\" has decided; this needs the right to override \
             VersionedConfig shop in namespace {}",
            space.name
        )
    );
    api.delete("hers", &DeleteParams::default()).await?;
    decided("hers", "shop", "jane").await?;
    space.api::<VersionApproval>().delete("hers", &DeleteParams::default()).await.context("an admin may")?;
    Ok(())
}

/// A Secret that is published, or was, needs the right to update it too, which jane does not have.
async fn publishing(
    space: &TestNamespace,
    change: impl AsyncFn(&Value) -> Result<VersionedConfig, kube::Error>,
) -> Result<()> {
    let admin = space.api::<VersionedConfig>();
    let of = |objects: Value| json!({"spec": {"objects": objects}});
    let refused = async |asked: &Value| {
        assert_eq!(
            message("nudge-configs", change(asked).await),
            format!(
                "VersionedConfig sealed: user \"jane\" may not change its spec, because that decides what Secret sealed holds; this needs \
                 the right to update Secret sealed in namespace {}",
                space.name
            )
        );
    };
    refused(&of(json!(["ConfigMap", "Secret"]))).await;
    admin.patch("sealed", &PatchParams::default(), &Patch::Merge(of(json!(["Secret"])))).await?;
    for asked in [json!({"spec": {"version": "2"}}), of(json!(["ConfigMap"]))] {
        refused(&asked).await;
    }
    admin.patch("sealed", &PatchParams::default(), &Patch::Merge(of(json!(["ConfigMap"])))).await?;
    Ok(())
}

async fn config_of(api: &Api<VersionedConfig>, name: &str) -> Result<VersionedConfig, kube::Error> {
    let config = VersionedConfig::new(name, nudge_api::VersionedConfigSpec::default());
    api.create(&PostParams::default(), &config).await
}
