//! `status.releases` on a real API server: the record of each release, its requester, and the records that survive.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use nudge_api::{ConfigState, Reason, Release, ReleaseOutcome, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::installation::{at_once, create_part, overridden};
use nudge_tests::cluster::{TestNamespace, space};
use nudge_tests::{Installation, Pod, eventually, subscriber};
use serde_json::{Value, json};

use crate::kubectl_nudge::scene::run_successfully;

/// How long anything may take on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const REQUESTED_BY: &str = "nudge.dev/requested-by";
const OVERRIDDEN_BY: &str = "nudge.dev/overridden-by";
const RETRY: &str = "nudge.dev/retry";

/// A config and who changes it.
struct Shop {
    space: TestNamespace,
}

impl Shop {
    /// Creates a config at version 1.
    async fn new(installation: &Installation<'_>, rollout: Value) -> Result<Self> {
        let shop = Self { space: installation.enabled("history").await? };
        let spec = json!({"version": "1", "rollout": rollout});
        shop.space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
        shop.make("1").await?;
        shop.wait_until_current("1").await?;
        Ok(shop)
    }

    async fn make(&self, version: &str) -> Result<()> {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let meta = json!({"name": format!("shop-{version}"), "labels": labels});
        let object = json!({"metadata": meta, "immutable": true, "data": {"number": version}});
        if self.space.api::<ConfigMap>().get_opt(&format!("shop-{version}")).await?.is_none() {
            create_part::<ConfigMap>(&self.space, object).await?;
        }
        Ok(())
    }

    async fn set(&self, spec: Value) -> Result<()> {
        let api = self.space.api::<VersionedConfig>();
        api.patch("shop", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    async fn request_version(&self, version: &str) -> Result<()> {
        self.make(version).await?;
        self.set(json!({"version": version})).await
    }

    async fn config(&self) -> Result<VersionedConfig> {
        Ok(self.space.api::<VersionedConfig>().get("shop").await?)
    }

    async fn wait_for_status(
        &self,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let find = async || self.config().await.ok()?.status.filter(&is);
        match eventually(WAIT_TIMEOUT, what, find).await {
            Ok(status) => Ok(status),
            Err(error) => Err(error.context(format!("{:#?}", self.config().await?.status))),
        }
    }

    async fn wait_until_current(&self, version: &str) -> Result<Vec<Release>> {
        let description = format!("version {version} is current");
        let current = |status: &VersionedConfigStatus| {
            status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version)
        };
        Ok(self.wait_for_status(&description, current).await?.releases)
    }

    /// Waits until the last release is that of this version, with this outcome.
    async fn wait_for_release(&self, version: &str, outcome: ReleaseOutcome) -> Result<Release> {
        let last = |status: &VersionedConfigStatus| status.releases.last().cloned();
        let status = self
            .wait_for_status(&format!("{version} ends: {outcome:?}"), |status| {
                last(status).is_some_and(|release| release.version == version && release.outcome == Some(outcome))
            })
            .await?;
        last(&status).context("just seen")
    }

    async fn subscriber(&self, hub: std::net::SocketAddr, name: &str) -> Result<Pod> {
        let pod = subscriber(&self.space, hub, name, &json!({}), env!("CARGO_BIN_EXE_app")).await?.1;
        Ok(pod)
    }

    async fn annotation(&self, label: &str) -> Result<Option<String>> {
        Ok(self.config().await?.metadata.annotations.and_then(|mut all| all.remove(label)))
    }
}

fn outcomes(releases: &[Release]) -> Vec<(&str, Option<&str>, Option<ReleaseOutcome>)> {
    let all = releases.iter();
    all.map(|release| (release.version.as_str(), release.from_version.as_deref(), release.outcome)).collect()
}

/// Returns a user who may do all, as others see them.
async fn user(installation: &Installation<'_>, name: &str) -> Result<Client> {
    installation.cluster.client(&installation.cluster.user(name, &["system:masters"])).await
}

#[tokio::test]
async fn every_outcome_leaves_its_record() -> Result<()> {
    use ReleaseOutcome::{Current, Held, Left, Returned, RolledBack};
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let rollout = json!({"steps": [{"pods": 1}], "minReadySeconds": 0, "bakeSeconds": 0, "maxHarmed": 0});
    let shop = Shop::new(installation, rollout).await?;
    let first = shop.wait_for_release("1", Current).await?;
    ensure!(first.from_version.is_none() && first.requested_by.as_deref() == Some("admin"), "{first:?}");
    let pods = [shop.subscriber(replica.hub, "web-1").await?, shop.subscriber(replica.hub, "web-2").await?];
    shop.wait_for_status("both run it", |status| status.pods.summary == "2/2").await?;

    shop.request_version("2").await?;
    let release = shop.wait_for_release("2", Current).await?;
    let steps: Vec<u32> = release.steps.iter().map(|step| step.pods).collect();
    ensure!(steps == [1, 2] && release.steps.is_sorted_by_key(|step| step.start_time.0), "{release:?}");
    ensure!(
        release.evidence.as_ref().is_some_and(|numbers| (numbers.assigned, numbers.harmed) == (2, 0)),
        "{release:?}"
    );
    ensure!(release.start_time.0 >= release.request_time.as_ref().context("unknown")?.0, "{release:?}");

    shop.request_version("1").await?;
    let release = shop.wait_for_release("1", Returned).await?;
    let (from, by) = (release.from_version.as_deref(), release.requested_by.as_deref());
    ensure!((from, by) == (Some("2"), Some("admin")), "{release:?}");

    shop.set(json!({"rollout": {"minReadySeconds": 3600}})).await?;
    shop.request_version("3").await?;
    let third =
        |status: &VersionedConfigStatus| status.target_version.as_deref() == Some("3") && status.pods.on_target == 1;
    shop.wait_for_status("one pod runs it", third).await?;
    shop.request_version("4").await?;
    let fourth = |status: &VersionedConfigStatus| status.target_version.as_deref() == Some("4");
    let left = shop.wait_for_status("the other is moved to", fourth).await?.releases;
    let left = left.iter().find(|release| release.version == "3").context("no release")?;
    ensure!((left.outcome, left.reason) == (Some(Left), Some(Reason::Leaving)), "{left:?}");
    ensure!(left.message.as_deref() == Some("version 3 is not requested any more"), "{left:?}");

    shop.set(json!({"rollout": {"override": overridden("4", "outage")}})).await?;
    shop.wait_for_status("all have it", |status| {
        status.releases.last().is_some_and(|release| release.overridden.is_some())
    })
    .await?;
    shop.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    let release = shop.wait_for_release("4", Current).await?;
    let at_once = release.overridden.as_ref().context("no override")?;
    ensure!((at_once.reason.as_str(), at_once.requested_by.as_deref()) == ("outage", Some("admin")), "{release:?}");

    shop.set(json!({"rollout": {"override": null, "minReadySeconds": 3600}})).await?;
    harmed(&shop, "5", &pods).await?;
    let release = shop.wait_for_release("5", RolledBack).await?;
    ensure!(release.reason == Some(Reason::PodNotReady) && release.message.is_some(), "{release:?}");
    ensure!(release.evidence.as_ref().is_some_and(|numbers| numbers.harmed == 1), "{release:?}");
    make_ready(&shop).await?;

    assert_only_a_retry_tries_again(installation, &shop, "5").await?;
    shop.request_version("4").await?;
    shop.wait_for_release("5", Left).await?;
    shop.wait_until_current("4").await?;

    shop.set(json!({"rollout": {"onFailure": "Hold"}})).await?;
    harmed(&shop, "6", &pods).await?;
    let release = shop.wait_for_release("6", Held).await?;
    ensure!(release.end_time.is_none() && release.reason == Some(Reason::PodNotReady), "{release:?}");
    make_ready(&shop).await?;
    shop.request_version("4").await?;
    let release = shop.wait_for_release("6", Left).await?;
    ensure!(release.end_time.is_some() && release.reason == Some(Reason::PodNotReady), "{release:?}");

    let all_releases = shop.wait_until_current("4").await?;
    let expected = [
        ("1", None, Some(Current)),
        ("2", Some("1"), Some(Current)),
        ("1", Some("2"), Some(Returned)),
        ("3", Some("1"), Some(Left)),
        ("4", Some("1"), Some(Current)),
        ("5", Some("4"), Some(RolledBack)),
        ("5", Some("4"), Some(Left)),
        ("6", Some("4"), Some(Left)),
    ];
    ensure!(outcomes(&all_releases) == expected, "{:#?}", outcomes(&all_releases));
    let listed_events = eventually(WAIT_TIMEOUT, "an Event for each end", async || {
        let events = shop.space.api::<Event>().list(&ListParams::default()).await.ok()?;
        let listed_events = events.into_iter().filter(|event| event.reason.as_deref() == Some("Released"));
        let listed_events: Vec<String> = listed_events.filter_map(|event| event.message).collect();
        (listed_events.len() == expected.len()).then_some(listed_events)
    })
    .await?;
    let is_expected = |beginning: &str, end: &str| {
        listed_events.iter().any(|listed_events| listed_events.starts_with(beginning) && listed_events.contains(end))
    };
    ensure!(
        is_expected("release 5 from 4, which admin requested, ended after ", " s: RolledBack: "),
        "{listed_events:#?}"
    );
    let log = replica.log();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains(&shop.space.name) && line.contains("release ended")).collect();
    ensure!(lines.len() == expected.len() && lines.iter().all(|line| line.contains("audit")), "{lines:#?}");
    Ok(())
}

/// Nothing else that changes in the spec requests a version that failed. A retry does, by a user who may activate
/// versions.
async fn assert_only_a_retry_tries_again(installation: &Installation<'_>, shop: &Shop, failed: &str) -> Result<()> {
    let is_failed = |status: &VersionedConfigStatus| {
        let failure = status.rollout.failure.as_ref();
        status.state() == ConfigState::Failed && failure.is_some_and(|failure| failure.version == failed)
    };
    let before = shop.wait_for_status("it has failed", is_failed).await?.releases;
    for rollout in
        [json!({"hold": {"reason": "audit"}}), json!({"hold": null}), json!({"progressDeadlineSeconds": 601})]
    {
        shop.set(json!({"rollout": rollout})).await?;
        let generation = shop.config().await?.metadata.generation;
        let read = |status: &VersionedConfigStatus| status.observed_generation == generation;
        let after = shop.wait_for_status("the spec is seen", read).await?;
        ensure!(is_failed(&after) && after.releases == before, "{rollout}: {after:#?}");
    }
    // A user who may change the config, and not what it publishes.
    let rules = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "patch"]}]);
    shop.space.grant("eve", rules, space::user("eve")).await?;
    let eve = installation.cluster.client(&installation.cluster.user("eve", &[])).await?;
    let eve: Api<VersionedConfig> = Api::namespaced(eve, &shop.space.name);
    eventually(WAIT_TIMEOUT, "the role is bound", async || eve.get("shop").await.ok().map(drop)).await?;
    let retry = Patch::Merge(json!({"metadata": {"annotations": {RETRY: "now"}}}));
    let refused = eve.patch("shop", &PatchParams::default(), &retry).await.err().context("eve may retry")?;
    ensure!(refused.to_string().contains("may not set its annotation nudge.dev/retry"), "{refused}");
    ensure!(shop.config().await?.status.is_some_and(|status| is_failed(&status) && status.releases == before));

    let message = run_successfully(installation, &shop.space, &["retry", "shop"]).await?;
    ensure!(message == format!("config shop: spec.version is {failed}\n"), "{message}");
    let again =
        |status: &VersionedConfigStatus| status.target_version.as_deref() == Some(failed) && status.rollout.step == 1;
    let status = shop.wait_for_status("it is tried again", again).await?;
    ensure!(status.releases.len() == before.len() + 1 && status.rollout.failure.is_none(), "{status:#?}");
    let note = shop.annotation(RETRY).await?.context("no annotation")?;
    ensure!(note.ends_with(" admin"), "{note}");
    Ok(())
}

/// Requests a version, and the pod that has it becomes unready.
async fn harmed(shop: &Shop, version: &str, pods: &[Pod]) -> Result<()> {
    shop.request_version(version).await?;
    shop.wait_for_status("it is watched", |status| {
        status.target_version.as_deref() == Some(version) && status.rollout.step == 1 && status.pods.on_target == 1
    })
    .await?;
    let has = pods.iter().position(|pod| {
        std::fs::read_to_string(pod.path("files").join("number")).is_ok_and(|number| number == version)
    });
    let name = format!("web-{}", has.context("no pod has it")? + 1);
    shop.space.set_ready(&name, false).await
}

async fn make_ready(shop: &Shop) -> Result<()> {
    for name in ["web-1", "web-2"] {
        shop.space.set_ready(name, true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_asked_is_who_set_the_version() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, at_once()).await?;
    let [alice, bob] = [user(installation, "alice").await?, user(installation, "bob").await?];
    let as_user = |client: &Client| Api::<VersionedConfig>::namespaced(client.clone(), &shop.space.name);
    let (alice, bob) = (as_user(&alice), as_user(&bob));
    let merge = |value: Value| Patch::Merge(value);
    let params = PatchParams::default();
    shop.make("2").await?;
    shop.make("3").await?;
    alice.patch("shop", &params, &merge(json!({"spec": {"version": "2"}}))).await?;
    ensure!(shop.wait_for_release("2", ReleaseOutcome::Current).await?.requested_by.as_deref() == Some("alice"));
    let kept = shop.annotation(REQUESTED_BY).await?.context("no annotation")?;

    // Somebody else changes something else, replaces the object without annotations, or takes the annotation away.
    bob.patch("shop", &params, &merge(json!({"spec": {"historyLimit": 11}}))).await?;
    eventually(WAIT_TIMEOUT, "it is replaced", async || {
        let mut bare = bob.get("shop").await.ok()?;
        (bare.metadata.annotations, bare.metadata.managed_fields) = (None, None);
        bob.replace("shop", &PostParams::default(), &bare).await.ok()
    })
    .await?;
    bob.patch("shop", &params, &merge(json!({"metadata": {"annotations": {REQUESTED_BY: null}}}))).await?;
    let forged = kept.replace("alice", "carol");
    bob.patch("shop", &params, &merge(json!({"metadata": {"annotations": {REQUESTED_BY: forged}}}))).await?;
    bob.patch("shop", &params, &merge(json!({"metadata": {"annotations": {OVERRIDDEN_BY: kept}}}))).await?;
    ensure!(shop.annotation(REQUESTED_BY).await?.as_ref() == Some(&kept), "it is alice's");
    ensure!(shop.annotation(OVERRIDDEN_BY).await?.is_none(), "nobody overrode anything");

    // What bob has kept of alice says nothing, whether he creates, updates or applies.
    bob.patch("shop", &params, &merge(json!({"spec": {"version": "3"}}))).await?;
    ensure!(shop.wait_for_release("3", ReleaseOutcome::Current).await?.requested_by.as_deref() == Some("bob"));
    let replayed = json!({"metadata": {"annotations": {REQUESTED_BY: kept}}, "spec": {"version": "2"}});
    bob.patch("shop", &params, &merge(replayed)).await?;
    ensure!(shop.wait_for_release("2", ReleaseOutcome::Returned).await?.requested_by.as_deref() == Some("bob"));
    Ok(())
}

/// A tool applies the same manifest again and again. It neither loses who asked, nor finds a difference each time.
#[tokio::test]
async fn what_is_applied_again_and_again_is_not_fought_for() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    for server_side in [false, true] {
        let shop = Shop::new(installation, at_once()).await?;
        shop.make("2").await?;
        let manifest = |version: &str| {
            json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
                "metadata": {"name": "shop", "namespace": shop.space.name}, "spec": {"version": version},
            })
            .to_string()
        };
        let flags: &[&str] = if server_side { &["--server-side", "--force-conflicts"] } else { &["--validate=false"] };
        let apply = [&["apply"], flags].concat();
        for version in ["2", "2", "2"] {
            installation.cluster.kubectl_on(&apply, &manifest(version)).await?;
        }
        let release = shop.wait_for_release("2", ReleaseOutcome::Current).await?;
        ensure!(release.requested_by.as_deref() == Some("admin"), "{release:?}");
        let (before, note) = (shop.config().await?, shop.annotation(REQUESTED_BY).await?);
        ensure!(note.is_some_and(|note| note.ends_with(" admin")));
        let message = installation.cluster.kubectl_on(&apply, &manifest("2")).await?.unwrap_or_default();
        let after = shop.config().await?;
        ensure!(before.metadata.annotations == after.metadata.annotations, "{message}");
        ensure!(before.metadata.resource_version == after.metadata.resource_version, "nothing is written: {message}");
    }
    Ok(())
}
