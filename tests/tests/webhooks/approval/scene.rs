//! A config that needs approvals, its users and their requests.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use nudge_api::{ConditionType, ConfigState, VersionApproval, VersionedConfig, VersionedConfigStatus, find_condition};
use nudge_tests::cluster::space::group;
use nudge_tests::cluster::{Cluster, TestNamespace};
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

/// How long anything may take on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(2);

/// A config `shop` at version 1, in a namespace with these users: alice, bob, carol and dora may do all with configs,
/// versions and approvals but override, and may approve; eve may do the same and not approve.
pub(crate) struct Shop {
    pub(crate) space: TestNamespace,
}

/// Allows one user to approve.
pub(crate) async fn allow(space: &TestNamespace, user: &str, subject: Value) -> Result<()> {
    let rules = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "resourceNames": ["shop"], "verbs": ["approve"]}]);
    space.grant(&format!("approve-{user}"), rules, subject).await
}

impl Shop {
    /// Creates a config without agents at version 1, which then needs approvals.
    pub(crate) async fn new(installation: &Installation<'_>, approval: Value) -> Result<Self> {
        Self::with(installation, approval, json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0}))
            .await
    }

    pub(crate) async fn with(installation: &Installation<'_>, approval: Value, rollout: Value) -> Result<Self> {
        let shop = Self { space: installation.enabled("approval").await? };
        let rules = json!([
            {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs", "versionapprovals"],
             "verbs": ["get", "list", "create", "update", "patch", "delete"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
        ]);
        let space = &shop.space;
        space.create_object::<Role>(json!({"metadata": {"name": "devs"}, "rules": rules})).await?;
        let binding = json!({
            "metadata": {"name": "devs"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "devs"},
            "subjects": [group("devs"), group(&format!("system:serviceaccounts:{}", space.name))],
        });
        space.create_object::<RoleBinding>(binding).await?;
        allow(space, "reviewers", group("reviewers")).await?;
        let spec = json!({"version": "1", "rollout": rollout});
        space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
        let alice = shop.user(installation.cluster, "alice").await?;
        eventually(WAIT_TIMEOUT, "the roles hold", async || alice.list::<VersionedConfig>().await.ok()).await?;
        shop.create_version(&alice, "1", "one").await?;
        shop.wait_until_current("1").await?;
        shop.set(json!({"rollout": {"approval": approval}})).await?;
        Ok(shop)
    }

    /// Returns a user; all but eve are reviewers.
    pub(crate) async fn user(&self, cluster: &Cluster, name: &str) -> Result<User> {
        let groups: &[&str] = if name == "eve" { &["devs"] } else { &["devs", "reviewers"] };
        let client = cluster.client(&cluster.user(name, groups)).await?;
        Ok(User { client, namespace: self.space.name.clone() })
    }

    /// Makes a version of this content, as that user.
    pub(crate) async fn create_version(&self, user: &User, version: &str, content: &str) -> Result<()> {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let meta = json!({"name": format!("shop-{version}"), "labels": labels});
        let object = json!({"metadata": meta, "immutable": true, "data": {"number": content}});
        user.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        self.wait_for_status("it is sealed", |config| {
            config.status.as_ref().is_some_and(|it| it.version(version).is_some())
        })
        .await?;
        Ok(())
    }

    /// Changes the spec as an admin.
    pub(crate) async fn set(&self, spec: Value) -> Result<()> {
        let api = self.space.api::<VersionedConfig>();
        api.patch("shop", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    pub(crate) async fn config(&self) -> Result<VersionedConfig> {
        Ok(self.space.api::<VersionedConfig>().get("shop").await?)
    }

    pub(crate) async fn wait_for_status(
        &self,
        what: &str,
        is: impl Fn(&VersionedConfig) -> bool,
    ) -> Result<VersionedConfig> {
        match eventually(WAIT_TIMEOUT, what, async || self.config().await.ok().filter(&is)).await {
            Ok(config) => Ok(config),
            Err(error) => Err(error.context(format!("{:#?}", self.config().await?.status))),
        }
    }

    pub(crate) async fn wait_until_current(&self, version: &str) -> Result<VersionedConfigStatus> {
        let current = |config: &VersionedConfig| {
            config
                .status
                .as_ref()
                .is_some_and(|it| it.state() == ConfigState::Current && it.current_version.as_deref() == Some(version))
        };
        self.wait_for_status(&format!("version {version} is current"), current).await?.status.context("just seen")
    }

    /// Waits until the config awaits approval and says this, and returns all that it says.
    pub(crate) async fn wait_for_approval_message(&self, what: &str) -> Result<String> {
        let config = self
            .wait_for_status(&format!("it waits: {what}"), |config| message(config).is_some_and(|it| it.contains(what)))
            .await?;
        message(&config).context("just seen")
    }

    /// Waits until the approval of this name says this of itself.
    pub(crate) async fn approval_says(&self, name: &str, reason: &str) -> Result<()> {
        let says = |approval: &VersionApproval| {
            let conditions = approval.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            find_condition(conditions, ConditionType::Counted).is_some_and(|counted| counted.reason == reason)
        };
        self.space.object_until(WAIT_TIMEOUT, name, &format!("it says {reason}"), says).await.map(drop)
    }

    /// Returns what stands in a VersionApproval about a version as it is.
    pub(crate) async fn decision(&self, version: &str, decision: &str) -> Result<Value> {
        let config = self.config().await?;
        let sealed = config.status.as_ref().and_then(|status| status.version(version)).context("not sealed")?;
        Ok(json!({
            "configName": "shop", "version": version, "digest": digest(sealed)?, "decision": decision, "reason": "read it", "approver": ""
        }))
    }

    /// Decides as that user. Returns the name of the object.
    pub(crate) async fn decide(&self, user: &User, version: &str, decision: &str) -> Result<String> {
        user.decide(self.decision(version, decision).await?).await.map_err(Into::into)
    }
}

/// Returns what the config says while it awaits approval.
pub(crate) fn message(config: &VersionedConfig) -> Option<String> {
    let conditions = &config.status.as_ref()?.conditions;
    let ready = find_condition(conditions, ConditionType::Ready)?;
    (ready.reason == "AwaitingApproval").then(|| ready.message.clone())
}

/// Returns the digest that an approval names: over the version and its parts, as the page says.
pub(crate) fn digest(version: &nudge_api::VersionStatus) -> Result<String> {
    let texts = version.parts.iter().flat_map(|part| [part.kind.to_string(), part.digest.clone()]);
    let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
    for text in [version.version.clone()].into_iter().chain(texts) {
        sum.update(&u64::try_from(text.len())?.to_be_bytes());
        sum.update(text.as_bytes());
    }
    Ok(format!("sha256:{}", nudge_protocol::hex::hex(&sum.finish().as_ref()[..24])))
}

/// A user of the namespace.
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl User {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn list<K>(&self) -> Result<()>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        self.api::<K>().list(&ListParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn change(&self, spec: Value) -> Result<VersionedConfig, kube::Error> {
        self.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await
    }

    /// Creates a VersionApproval with this spec. Returns its name.
    pub(crate) async fn decide(&self, spec: Value) -> Result<String, kube::Error> {
        let object = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": {"generateName": "one-"}, "spec": spec
        });
        let object: VersionApproval = serde_json::from_value(object).expect("a VersionApproval");
        let result = self.api::<VersionApproval>().create(&PostParams::default(), &object).await?;
        Ok(result.metadata.name.unwrap_or_default())
    }

    pub(crate) async fn withdraw(&self, name: &str) -> Result<(), kube::Error> {
        self.api::<VersionApproval>().delete(name, &DeleteParams::default()).await.map(drop)
    }
}

/// Fails unless the API server refused this with such a message.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(result: Result<T, kube::Error>, with: &str) -> Result<()> {
    let error = result.expect_err("this is to be refused").to_string();
    ensure!(error.contains(with), "{error}");
    Ok(())
}
