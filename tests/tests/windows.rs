//! Windows, freezes and policies on a real API server: what waits, why and until when; what goes on; and what does not wait.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::{Phase, Reason, RolloutPolicy, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::installation::{bind, create_part};
use nudge_tests::cluster::{Options, Space};
use nudge_tests::{Cluster, Installation, ReplicaOptions, eventually};
use serde_json::{Value, json};

/// For a machine that has much else to do.
const LONG: Duration = Duration::from_mins(2);
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Windows that are not open for days.
fn closed() -> Value {
    let day = (Timestamp::now() + SignedDuration::from_hours(72)).to_zoned(TimeZone::UTC).weekday();
    let day = DAYS[usize::from(day.to_monday_zero_offset().unsigned_abs())];
    json!([{"days": [day], "from": "09:00", "to": "09:01", "timeZone": "Asia/Kathmandu"}])
}

/// Windows that are always open.
fn open() -> Value {
    json!([{"days": DAYS, "from": "00:00", "to": "24:00", "timeZone": "Asia/Kathmandu"}])
}

/// A config without pods, at version 1, which has a version 2.
struct Shop {
    space: Space,
}

impl Shop {
    /// In a namespace of its own, which has the label team with this value.
    async fn new(installation: &Installation<'_>, team: &str) -> Result<Self> {
        let labels = [("nudge.dev/enabled", "true"), ("team", team)];
        let space = installation.cluster.space_with("windows", &labels).await?;
        bind(&space, "nudge-namespace").await?;
        let shop = Self { space };
        let config = json!({"metadata": {"name": "shop"}, "spec": {"current": "1", "rollout": {"bakeSeconds": 0}}});
        shop.space.create_object::<VersionedConfig>(config).await?;
        for version in ["1", "2", "3"] {
            let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
            let meta = json!({"name": format!("shop-{version}"), "labels": labels});
            let object = json!({"metadata": meta, "immutable": true, "data": {"number": version}});
            create_part::<ConfigMap>(&shop.space, object).await?;
        }
        shop.is_current("1").await?;
        shop.stands("all are sealed", |status| status.versions.len() == 3).await?;
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

    async fn wants(&self, version: &str) -> Result<()> {
        self.set(json!({"current": version})).await
    }

    /// The watch of policies is another one than that of configs: what has changed before is seen until the config is seen to be paused.
    async fn wants_paused(&self, version: &str) -> Result<()> {
        self.set(json!({"current": version, "rollout": {"paused": true}})).await?;
        self.waits(Reason::Paused, "").await.map(drop)
    }

    async fn stands(&self, what: &str, is: impl Fn(&VersionedConfigStatus) -> bool) -> Result<VersionedConfigStatus> {
        let is = |config: &VersionedConfig| config.status.as_ref().is_some_and(&is);
        self.space.object_until(LONG, "shop", what, is).await?.status.context("just seen")
    }

    async fn is_current(&self, version: &str) -> Result<()> {
        let current = |status: &VersionedConfigStatus| {
            status.phase == Phase::Current && status.current.as_deref() == Some(version)
        };
        self.stands(&format!("version {version} is current"), current).await.map(drop)
    }

    /// Waits until it waits for this. What it says.
    async fn waits(&self, reason: Reason, says: &str) -> Result<String> {
        let message = |status: &VersionedConfigStatus| {
            let ready = status.conditions.iter().find(|one| one.type_ == "Ready")?;
            (ready.reason == reason.as_str() && ready.message.contains(says)).then(|| ready.message.clone())
        };
        let status = self.stands(&format!("{reason}: {says}"), |status| message(status).is_some()).await?;
        ensure!(status.rollout.stage.is_none() && status.target.as_deref() != status.current.as_deref(), "{status:#?}");
        message(&status).context("just seen")
    }

    /// The Events with this reason.
    async fn events(&self, reason: Reason) -> Result<Vec<Event>> {
        let all = self.space.api::<Event>().list(&ListParams::default()).await?.items;
        Ok(all.into_iter().filter(|event| event.reason.as_deref() == Some(reason.as_str())).collect())
    }
}

/// A policy, which goes with this.
struct Policy {
    api: Api<RolloutPolicy>,
    name: String,
}

impl Policy {
    /// For the namespaces of a team.
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
    shop.rules(json!({"windows": closed()})).await?;
    shop.wants("2").await?;
    let message = shop.waits(Reason::OutsideWindow, "windows of spec.rollout; the next window opens at 20").await?;
    ensure!(message.ends_with("09:00 Asia/Kathmandu (03:15 UTC)"), "{message}");
    let status = shop.stands("it waits", |status| status.phase == Phase::Progressing).await?;
    ensure!(status.conditions.iter().all(|one| one.type_ != "Stalled"), "{status:#?}");
    // Other numbers of the spec, other looks: it waits all the same, and one Event says so.
    shop.rules(json!({"ackTimeoutSeconds": 31})).await?;
    shop.stands("it was looked at again", |status| status.observed_generation >= Some(4)).await?;
    shop.waits(Reason::OutsideWindow, "the next window opens at").await?;
    let events = eventually(LONG, "there is an Event", async || {
        shop.events(Reason::OutsideWindow).await.ok().filter(|events| !events.is_empty())
    });
    let events = events.await?;
    ensure!(events.len() == 1 && events[0].count.unwrap_or(1) == 1, "{events:#?}");
    // The window is made wider.
    shop.rules(json!({"windows": open()})).await?;
    shop.is_current("2").await?;
    // The way back waits for nothing.
    shop.rules(json!({"windows": closed()})).await?;
    shop.wants("1").await?;
    shop.is_current("1").await
}

#[tokio::test]
async fn a_frozen_config_goes_back_and_takes_an_override_and_nothing_else() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "frozen").await?;
    shop.wants("2").await?;
    shop.is_current("2").await?;
    let until = Timestamp::now() + SignedDuration::from_hours(2);
    shop.rules(json!({"freeze": {"reason": "the audit runs", "until": until.to_string()}})).await?;
    shop.wants("3").await?;
    let message = shop.waits(Reason::Frozen, ": the audit runs").await?;
    ensure!(message.starts_with("the config is frozen until 20"), "{message}");
    shop.wants("1").await?;
    shop.is_current("1").await?;
    shop.wants("3").await?;
    shop.waits(Reason::Frozen, "the audit runs").await?;
    shop.set(json!({"current": "3", "now": {"version": "3", "reason": "the site is down"}})).await?;
    shop.is_current("3").await?;
    // Its end comes by itself.
    let soon = Timestamp::now() + SignedDuration::from_secs(3);
    shop.set(
        json!({"current": "2", "now": null, "rollout": {"freeze": {"reason": "short", "until": soon.to_string()}}}),
    )
    .await?;
    shop.waits(Reason::Frozen, ": short").await?;
    shop.is_current("2").await?;
    ensure!(Timestamp::now() >= soon, "it has waited for the end");
    Ok(())
}

#[tokio::test]
async fn of_a_policy_and_a_config_the_stricter_one_counts() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let (shop, other) = (Shop::new(installation, "strict").await?, Shop::new(installation, "other").await?);
    let policy = Policy::new(installation.cluster, "strict", "office-hours", json!({"windows": closed()})).await?;
    // The config would let it pass.
    shop.rules(json!({"windows": open()})).await?;
    shop.wants_paused("2").await?;
    shop.rules(json!({"paused": false})).await?;
    let message = shop.waits(Reason::OutsideWindow, "windows of RolloutPolicy office-hours;").await?;
    ensure!(message.contains("all windows are open together at 20"), "{message}");
    other.wants("2").await?;
    other.is_current("2").await?;
    // The other way round.
    shop.rules(json!({"windows": closed()})).await?;
    policy.set(json!({"windows": open()})).await?;
    shop.waits(Reason::OutsideWindow, "windows of spec.rollout;").await?;
    // Whichever freezes.
    shop.rules(json!({"windows": null})).await?;
    shop.is_current("2").await?;
    policy.set(json!({"freeze": {"reason": "black friday"}})).await?;
    shop.wants_paused("3").await?;
    shop.rules(json!({"paused": false})).await?;
    let says = "RolloutPolicy office-hours freezes the configs of this namespace until the freeze is removed from the policy: black";
    shop.waits(Reason::Frozen, says).await?;
    shop.wants("1").await?;
    shop.is_current("1").await?;
    shop.wants("3").await?;
    shop.waits(Reason::Frozen, "black friday").await?;
    policy.delete().await?;
    shop.is_current("3").await
}

#[tokio::test]
async fn labels_of_the_namespace_decide_which_policies_hold() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "calm").await?;
    let _policy =
        Policy::new(installation.cluster, "labelled", "labelled", json!({"freeze": {"reason": "by label"}})).await?;
    shop.wants("2").await?;
    shop.is_current("2").await?;
    let namespaces: Api<Namespace> = Api::all(installation.cluster.admin().await?);
    let label = async |team: &str| {
        let patch = json!({"metadata": {"labels": {"team": team}}});
        namespaces.patch(&shop.space.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    shop.wants_paused("3").await?;
    label("labelled").await?;
    shop.rules(json!({"paused": false})).await?;
    shop.waits(Reason::Frozen, "RolloutPolicy labelled freezes").await?;
    label("calm").await?;
    shop.is_current("3").await
}

#[tokio::test]
async fn where_policies_can_not_be_read_nothing_goes_on() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply(&cluster).await? else { return Ok(()) };
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
    shop.wants("2").await?;
    shop.is_current("2").await?;
    drop(replica);
    roles.replace("nudge-injector", &PostParams::default(), &without).await?;
    let _replica = installation.replica(&ReplicaOptions::default()).await?;
    shop.wants("3").await?;
    shop.waits(Reason::PoliciesUnknown, "no right to read RolloutPolicies").await?;
    shop.wants("1").await?;
    shop.is_current("1").await?;
    shop.wants("3").await?;
    shop.waits(Reason::PoliciesUnknown, "no right to read RolloutPolicies").await?;
    let mut given = role;
    (given.metadata.managed_fields, given.metadata.resource_version) = (None, None);
    roles.replace("nudge-injector", &PostParams::default(), &given).await?;
    shop.is_current("3").await
}
