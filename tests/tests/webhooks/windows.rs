//! Windows, holds and policies on a real API server: what waits, why and until when; what continues; what does not
//! wait; and who ends it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::{ConfigState, Reason, RolloutPolicy, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::labels::GUARDED;
use nudge_tests::cluster::installation::{bind, create_part, overridden};
use nudge_tests::cluster::space::user;
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{Cluster, Finished, Installation, ReplicaOptions, binary, eventually};
use serde_json::{Value, json};

/// How long anything may take on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Windows that are not open for days.
fn closed_windows() -> Value {
    let day = (Timestamp::now() + SignedDuration::from_hours(72)).to_zoned(TimeZone::UTC).weekday();
    let day = DAYS[usize::from(day.to_monday_zero_offset().unsigned_abs())];
    json!([{"name": "day", "days": [day], "from": "09:00", "to": "09:01", "timeZone": "Asia/Kathmandu"}])
}

/// Windows that are always open.
fn open() -> Value {
    json!([{"name": "always", "days": DAYS, "from": "00:00", "to": "24:00", "timeZone": "Asia/Kathmandu"}])
}

/// A config without pods, at version 1, which has a version 2.
struct Shop {
    space: TestNamespace,
}

impl Shop {
    /// Creates a config in a namespace of its own, which has the label team with this value.
    async fn new(installation: &Installation<'_>, team: &str) -> Result<Self> {
        let labels = [("nudge.dev/enabled", "true"), ("team", team)];
        let space = installation.cluster.space_with("windows", &labels).await?;
        bind(&space, "nudge-namespace").await?;
        let shop = Self { space };
        let config = json!({"metadata": {"name": "shop"}, "spec": {"version": "1", "rollout": {"bakeSeconds": 0}}});
        shop.space.create_object::<VersionedConfig>(config).await?;
        for version in ["1", "2", "3"] {
            let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
            let meta = json!({"name": format!("shop-{version}"), "labels": labels});
            let object = json!({"metadata": meta, "immutable": true, "data": {"number": version}});
            create_part::<ConfigMap>(&shop.space, object).await?;
        }
        shop.wait_until_current("1").await?;
        shop.wait_for_status("all are sealed", |status| status.versions.len() == 3).await?;
        Ok(shop)
    }

    async fn set(&self, spec: Value) -> Result<()> {
        let api = self.space.api::<VersionedConfig>();
        api.patch("shop", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    async fn rules(&self, rollout: Value) -> Result<()> {
        self.set(json!({"rollout": rollout})).await
    }

    async fn request_version(&self, version: &str) -> Result<()> {
        self.set(json!({"version": version})).await
    }

    /// The watch of policies is another one than that of configs: what has changed before is seen until the config is
    /// seen to be on hold.
    async fn wants_on_hold(&self, version: &str) -> Result<()> {
        self.set(json!({"version": version, "rollout": {"hold": {"reason": "policies are seen"}}})).await?;
        self.wait_until_waiting(Reason::OnHold, "").await.map(drop)
    }

    async fn wait_for_status(
        &self,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let is_expected = |config: &VersionedConfig| config.status.as_ref().is_some_and(&is);
        self.space.object_until(WAIT_TIMEOUT, "shop", what, is_expected).await?.status.context("just seen")
    }

    async fn wait_until_current(&self, version: &str) -> Result<()> {
        let current = |status: &VersionedConfigStatus| {
            status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version)
        };
        self.wait_for_status(&format!("version {version} is current"), current).await.map(drop)
    }

    /// Waits until it waits for this. What it says.
    async fn wait_until_waiting(&self, reason: Reason, says: &str) -> Result<String> {
        let message = |status: &VersionedConfigStatus| {
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
            (ready.reason == reason.as_str() && ready.message.contains(says)).then(|| ready.message.clone())
        };
        let status = self.wait_for_status(&format!("{reason}: {says}"), |status| message(status).is_some()).await?;
        let (target, current) = (status.target_version.as_deref(), status.current_version.as_deref());
        ensure!(status.rollout.stage.is_none() && target != current, "{status:#?}");
        message(&status).context("just seen")
    }

    /// Returns the Events with this reason.
    async fn events(&self, reason: Reason) -> Result<Vec<Event>> {
        let listed_events = self.space.api::<Event>().list(&ListParams::default()).await?.items;
        Ok(listed_events.into_iter().filter(|event| event.reason.as_deref() == Some(reason.as_str())).collect())
    }
}

/// A policy, which goes with this.
struct Policy {
    api: Api<RolloutPolicy>,
    name: String,
}

impl Policy {
    /// Creates a policy for the namespaces of a team.
    async fn new(cluster: &Cluster, team: &str, name: &str, mut spec: Value) -> Result<Self> {
        spec["namespaceSelector"] = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": [team]}]});
        let api = Api::all(cluster.admin().await?);
        let policy = serde_json::from_value(
            json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": spec}),
        )?;
        api.create(&PostParams::default(), &policy).await?;
        Ok(Self { api, name: name.to_owned() })
    }

    async fn set(&self, spec: Value) -> Result<()> {
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_config_waits_outside_of_its_windows_and_says_until_when() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "hours").await?;
    shop.rules(json!({"windows": closed_windows()})).await?;
    shop.request_version("2").await?;
    let message =
        shop.wait_until_waiting(Reason::OutsideWindow, "windows of spec.rollout; the next window opens at 20").await?;
    ensure!(message.ends_with("09:00 Asia/Kathmandu (03:15 UTC)"), "{message}");
    let status = shop.wait_for_status("it waits", |status| status.state() == ConfigState::Waiting).await?;
    ensure!(status.conditions.iter().all(|condition| condition.type_ != "Stalled"), "{status:#?}");
    // The same for programs.
    let gate = status.rollout.gate.context("nothing withholds it")?;
    let until = gate.until_time.map(|until| until.0.to_string());
    ensure!(gate.reason == Reason::OutsideWindow && until.is_some_and(|until| until.ends_with("T03:15:00Z")));
    // Other numbers of the spec, other looks: it waits all the same, and one Event says so.
    shop.rules(json!({"ackTimeoutSeconds": 31})).await?;
    shop.wait_for_status("it was looked at again", |status| status.observed_generation >= Some(4)).await?;
    shop.wait_until_waiting(Reason::OutsideWindow, "the next window opens at").await?;
    let events = eventually(WAIT_TIMEOUT, "there is an Event", async || {
        shop.events(Reason::OutsideWindow).await.ok().filter(|events| !events.is_empty())
    });
    let events = events.await?;
    ensure!(events.len() == 1 && events[0].count.unwrap_or(1) == 1, "{events:#?}");
    // The window is made wider.
    shop.rules(json!({"windows": open()})).await?;
    shop.wait_until_current("2").await?;
    shop.wait_for_status("nothing withholds it", |status| status.rollout.gate.is_none()).await?;
    // The way back waits for nothing.
    shop.rules(json!({"windows": closed_windows()})).await?;
    shop.request_version("1").await?;
    shop.wait_until_current("1").await
}

#[tokio::test]
async fn a_config_on_hold_goes_back_and_takes_an_override_and_nothing_else() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "on-hold").await?;
    shop.request_version("2").await?;
    shop.wait_until_current("2").await?;
    let until = Timestamp::now() + SignedDuration::from_hours(2);
    shop.rules(json!({"hold": {"reason": "the audit runs", "untilTime": until.to_string()}})).await?;
    shop.request_version("3").await?;
    let message = shop.wait_until_waiting(Reason::OnHold, ": the audit runs").await?;
    ensure!(message.starts_with("the config is on hold until 20"), "{message}");
    shop.request_version("1").await?;
    shop.wait_until_current("1").await?;
    shop.request_version("3").await?;
    shop.wait_until_waiting(Reason::OnHold, "the audit runs").await?;
    shop.set(json!({"version": "3", "rollout": {"override": overridden("3", "the site is down")}})).await?;
    shop.wait_until_current("3").await?;
    // Its end comes by itself.
    let soon = Timestamp::now() + SignedDuration::from_secs(3);
    let short = json!({"reason": "short", "untilTime": soon.to_string()});
    shop.set(json!({"version": "2", "rollout": {"override": null, "hold": short}})).await?;
    shop.wait_until_waiting(Reason::OnHold, ": short").await?;
    shop.wait_until_current("2").await?;
    ensure!(Timestamp::now() >= soon, "it has waited for the end");
    Ok(())
}

#[tokio::test]
async fn of_a_policy_and_a_config_the_stricter_one_counts() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let (shop, other) = (Shop::new(installation, "strict").await?, Shop::new(installation, "other").await?);
    let policy =
        Policy::new(installation.cluster, "strict", "office-hours", json!({"windows": closed_windows()})).await?;
    // The config would let it pass.
    shop.rules(json!({"windows": open()})).await?;
    shop.wants_on_hold("2").await?;
    shop.rules(json!({"hold": null})).await?;
    let message = shop.wait_until_waiting(Reason::OutsideWindow, "windows of RolloutPolicy office-hours;").await?;
    ensure!(message.contains("all windows are open together at 20"), "{message}");
    other.request_version("2").await?;
    other.wait_until_current("2").await?;
    // The other way round.
    shop.rules(json!({"windows": closed_windows()})).await?;
    policy.set(json!({"windows": open()})).await?;
    shop.wait_until_waiting(Reason::OutsideWindow, "windows of spec.rollout;").await?;
    // A hold of either is enough.
    shop.rules(json!({"windows": null})).await?;
    shop.wait_until_current("2").await?;
    policy.set(json!({"hold": {"reason": "black friday"}})).await?;
    shop.wants_on_hold("3").await?;
    shop.rules(json!({"hold": null})).await?;
    let says = "RolloutPolicy office-hours holds the configs of this namespace until the hold is removed from the policy: black";
    shop.wait_until_waiting(Reason::OnHold, says).await?;
    shop.request_version("1").await?;
    shop.wait_until_current("1").await?;
    shop.request_version("3").await?;
    shop.wait_until_waiting(Reason::OnHold, "black friday").await?;
    policy.delete().await?;
    shop.wait_until_current("3").await
}

#[tokio::test]
async fn labels_of_the_namespace_decide_which_policies_hold() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "calm").await?;
    let _policy =
        Policy::new(installation.cluster, "labelled", "labelled", json!({"hold": {"reason": "by label"}})).await?;
    shop.request_version("2").await?;
    shop.wait_until_current("2").await?;
    let namespaces: Api<Namespace> = Api::all(installation.cluster.admin().await?);
    let label = async |team: &str| {
        let patch = json!({"metadata": {"labels": {"team": team}}});
        namespaces.patch(&shop.space.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    shop.wants_on_hold("3").await?;
    label("labelled").await?;
    shop.rules(json!({"hold": null})).await?;
    shop.wait_until_waiting(Reason::OnHold, "RolloutPolicy labelled holds").await?;
    label("calm").await?;
    shop.wait_until_current("3").await
}

#[tokio::test]
async fn what_can_not_be_used_is_refused() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "space").await?;
    let window = |from: &str, day: &str, zone: &str| json!([{"name": "day", "days": [day], "from": from, "to": "24:00", "timeZone": zone}]);
    let named = |name: &str| {
        let mut window = window("09:00", "Mon", "UTC")[0].take();
        window["name"] = json!(name);
        window
    };
    let many: Vec<Value> = (0..17).map(|number| named(&format!("w{number}"))).collect();
    let refused = async |rollout: Value, says: &str| {
        let error = shop.rules(rollout).await.err().context("it was taken")?;
        ensure!(format!("{error:#}").contains(says), "{error:#}");
        Ok(())
    };
    let says = "VersionedConfig shop: spec.rollout.windows: window day: time zone \"Mars/Olympus\" is not known";
    refused(json!({"windows": window("09:00", "Mon", "Mars/Olympus")}), says).await?;
    refused(json!({"windows": window("9:00", "Mon", "UTC")}), "spec.rollout.windows").await?;
    refused(json!({"windows": window("09:00", "Someday", "UTC")}), "spec.rollout.windows").await?;
    refused(json!({"hold": {"reason": ""}}), "spec.rollout.hold.reason").await?;
    refused(json!({"hold": {"reason": "x", "untilTime": "tomorrow"}}), "spec.rollout.hold.untilTime").await?;
    let stored = async |spec: Value| Policy::new(installation.cluster, "space", "space", spec).await;
    for bad in [
        json!({"windows": window("24:00", "Mon", "UTC")}),
        json!({"windows": window("09:00", "monday", "UTC")}),
        json!({"windows": many}),
        json!({"windows": [named("day"), named("day")]}),
        json!({"windows": [named("")]}),
        json!({"windows": [named("Day")]}),
        json!({"approval": {"required": 0}}),
        json!({"approval": {"validSeconds": 3599}}),
        json!({"hold": {}}),
    ] {
        ensure!(stored(bad.clone()).await.is_err(), "{bad}");
    }
    let bad = stored(json!({"windows": window("00:00", "Mon", "Mars/Olympus")})).await;
    let error = format!("{:#}", bad.err().context("it was taken")?);
    let says = "RolloutPolicy space: spec.windows: window day: time zone \"Mars/Olympus\" is not known";
    ensure!(error.contains(says), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_plugin_holds_warns_and_ends_the_hold() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "plugin").await?;
    let run = async |code: i32, arguments: &[&str]| {
        let mut command = Command::new(binary::kubectl_nudge()?);
        command.args(arguments).args(["--namespace", &shop.space.name]);
        command.arg("--kubeconfig").arg(installation.cluster.kubeconfig());
        let ended = tokio::task::spawn_blocking(move || Finished::of(&mut command)).await??;
        ensure!(ended.code == Some(code), "{arguments:?}: {ended:?}");
        Ok::<_, anyhow::Error>(ended)
    };
    let held = run(0, &["hold", "shop", "--reason=audit", "--for=2h"]).await?;
    ensure!(held.stdout.starts_with("config shop on hold until 20"), "{held:?}");
    let used = run(0, &["use", "shop", "2"]).await?;
    ensure!(used.stdout == "config shop: spec.version is 2\n", "{used:?}");
    ensure!(
        used.stderr.starts_with("warning: version 2 of config shop waits: the config is on hold until 20"),
        "{used:?}"
    );
    shop.wait_until_waiting(Reason::OnHold, "audit").await?;
    let status = run(0, &["status", "shop"]).await?.stdout;
    ensure!(status.contains("OnHold") && status.contains(": audit\n"), "{status}");
    let late = run(124, &["use", "shop", "2", "--wait", "--timeout=1s"]).await?.stderr;
    ensure!(late.contains("the config is on hold until 20") && late.contains(": audit\n"), "{late}");
    let ended = run(0, &["unhold", "shop"]).await?.stdout;
    ensure!(ended == "config shop not on hold any more\n", "{ended}");
    shop.wait_until_current("2").await?;
    ensure!(run(0, &["unhold", "shop"]).await?.stdout == "config shop is not on hold by its spec\n");
    let held = run(0, &["hold", "shop", "--reason=audit", "--protected"]).await?.stdout;
    ensure!(held == "config shop on hold until kubectl nudge unhold\n", "{held}");
    let hold = shop.space.api::<VersionedConfig>().get("shop").await?.spec.rollout.hold.context("no hold")?;
    ensure!(hold.protected && hold.until_time.is_none() && hold.reason == "audit", "{hold:?}");
    Ok(())
}

/// A user who has a namespace, with Kubernetes' own roles and those of Nudge.
#[tokio::test]
async fn users_of_a_namespace_can_not_get_around_a_policy() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    installation.apply_file("base/user-roles.yaml").await?;
    let shop = Shop::new(installation, "guarded").await?;
    let policy = Policy::new(installation.cluster, "guarded", "guarded", json!({"hold": {"reason": "all"}})).await?;
    let of_namespace = ["admin", "edit", "view"].map(|role| format!("system:aggregate-to-{role}"));
    let of_nudge = ["nudge-edit", "nudge-view", "nudge-namespace", "nudge-namespace-hub"].map(str::to_owned);
    for role in of_namespace.iter().chain(&of_nudge) {
        let binding = json!({
            "metadata": {"name": format!("mallory-{}", role.replace(':', "-"))},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}],
        });
        shop.space.create_object::<RoleBinding>(binding).await?;
    }
    let mallory = installation.cluster.client(&installation.cluster.user("mallory", &[])).await?;
    let configs: Api<VersionedConfig> = Api::namespaced(mallory.clone(), &shop.space.name);
    let patch = |patch: Value| Patch::Merge(patch);
    let allowed = async || configs.get("shop").await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "the roles are bound", allowed).await?;
    let policies: Api<RolloutPolicy> = Api::all(mallory.clone());
    let namespaces: Api<Namespace> = Api::all(mallory);
    let ended = policies.patch(&policy.name, &PatchParams::default(), &patch(json!({"spec": {"hold": null}}))).await;
    let gone = policies.delete(&policy.name, &DeleteParams::default()).await;
    let mut other = policy.api.get(&policy.name).await?;
    other.metadata = kube::api::ObjectMeta { name: Some("mine".to_owned()), ..kube::api::ObjectMeta::default() };
    let result = policies.create(&PostParams::default(), &other).await;
    let relabelled = patch(json!({"metadata": {"labels": {"team": "free"}}}));
    let relabelled = namespaces.patch(&shop.space.name, &PatchParams::default(), &relabelled).await;
    let listed_policies = policies.list(&ListParams::default()).await;
    let codes =
        [ended.err(), gone.err(), result.err(), relabelled.err(), listed_policies.err()].map(|error| match error {
            Some(kube::Error::Api(status)) => status.code,
            _ => 0,
        });
    ensure!(codes == [403; 5], "{codes:?}");
    // What they may do does not help: rules of the config are added to those of the policy.
    shop.wants_on_hold("2").await?;
    let spec = json!({"spec": {"rollout": {"windows": open(), "hold": null}}});
    configs.patch("shop", &PatchParams::default(), &patch(spec)).await?;
    shop.wait_until_waiting(Reason::OnHold, "RolloutPolicy guarded holds").await?;
    policy.delete().await
}

/// A user who may change configs, and override none.
#[tokio::test]
async fn a_hold_is_ended_by_anybody_unless_it_is_protected() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "protected").await?;
    let rules = json!([
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "delete"]},
    ]);
    shop.space.grant("walter", rules, user("walter")).await?;
    let walter = installation.cluster.client(&installation.cluster.user("walter", &[])).await?;
    let configs: Api<VersionedConfig> = Api::namespaced(walter, &shop.space.name);
    eventually(WAIT_TIMEOUT, "the role is bound", async || configs.get("shop").await.ok().map(drop)).await?;
    let holds = async |hold: Value| {
        let patch = Patch::Merge(json!({"spec": {"rollout": {"hold": hold}}}));
        configs.patch("shop", &PatchParams::default(), &patch).await
    };
    let is_guarded =
        |config: &VersionedConfig| config.metadata.labels.as_ref().is_some_and(|all| all.contains_key(GUARDED));
    // His own, and that of the administrator.
    ensure!(!is_guarded(&holds(json!({"reason": "audit"})).await?), "a hold is no guard");
    shop.request_version("2").await?;
    shop.wait_until_waiting(Reason::OnHold, ": audit").await?;
    holds(Value::Null).await?;
    shop.wait_until_current("2").await?;
    shop.rules(json!({"hold": {"reason": "audit"}})).await?;
    holds(Value::Null).await?;

    // He protects none, since he could not end it.
    let refused = |result: Result<VersionedConfig, kube::Error>, says: &str| {
        let error = result.err().context("it was taken")?.to_string();
        ensure!(error.contains(says) && error.contains("needs the right to override"), "{error}");
        Ok::<_, anyhow::Error>(())
    };
    let protected = json!({"reason": "audit", "protected": true});
    refused(holds(protected.clone()).await, "may not change its spec, because that protects spec.rollout.hold")?;
    let other = serde_json::from_value(json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "other"},
        "spec": {"rollout": {"hold": protected}},
    }))?;
    let created = configs.create(&PostParams::default(), &other).await;
    refused(created, "may not create it, because that protects spec.rollout.hold")?;

    // Nor does he end one that is.
    shop.rules(json!({"hold": protected})).await?;
    refused(holds(Value::Null).await, "removes spec.rollout.hold, which is protected")?;
    refused(holds(json!({"protected": null})).await, "ends the protection of spec.rollout.hold")?;
    let soon = Timestamp::now() + SignedDuration::from_secs(3);
    let earlier = "ends spec.rollout.hold, which is protected, earlier";
    refused(holds(json!({"untilTime": soon.to_string()})).await, earlier)?;
    let gone = configs.delete("shop", &DeleteParams::default()).await.err().context("it was deleted")?.to_string();
    ensure!(gone.contains("that removes its guards (hold)"), "{gone}");
    ensure!(is_guarded(&holds(json!({"reason": "the audit runs"})).await?), "another reason takes nothing away");
    shop.request_version("3").await?;
    shop.wait_until_waiting(Reason::OnHold, ": the audit runs").await?;
    shop.rules(json!({"hold": null})).await?;
    shop.wait_until_current("3").await
}

#[tokio::test]
async fn where_policies_can_not_be_read_nothing_continues() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let roles: Api<ClusterRole> = Api::all(cluster.admin().await?);
    let role = roles.get("nudge-injector").await?;
    let mut without = role.clone();
    let of_policies = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
        rule.resources.iter().flatten().any(|resource| resource == "rolloutpolicies")
    };
    without.rules.iter_mut().for_each(|rules| rules.retain(|rule| !of_policies(rule)));
    (without.metadata.managed_fields, without.metadata.resource_version) = (None, None);
    let replica = installation.replica(&ReplicaOptions::default()).await?;
    let shop = Shop::new(&installation, "blind").await?;
    shop.request_version("2").await?;
    shop.wait_until_current("2").await?;
    drop(replica);
    roles.replace("nudge-injector", &PostParams::default(), &without).await?;
    let _replica = installation.replica(&ReplicaOptions::default()).await?;
    shop.request_version("3").await?;
    shop.wait_until_waiting(Reason::PoliciesUnknown, "no right to read RolloutPolicies").await?;
    shop.request_version("1").await?;
    shop.wait_until_current("1").await?;
    shop.request_version("3").await?;
    shop.wait_until_waiting(Reason::PoliciesUnknown, "no right to read RolloutPolicies").await?;
    let mut given = role;
    (given.metadata.managed_fields, given.metadata.resource_version) = (None, None);
    roles.replace("nudge-injector", &PostParams::default(), &given).await?;
    shop.wait_until_current("3").await
}
