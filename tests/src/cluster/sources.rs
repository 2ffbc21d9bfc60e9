//! The component sources: its objects, its process, and the rights that it needs for one object.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;

use crate::cluster::TestNamespace;
use crate::cluster::installation::{NAMESPACE, SOURCES_ACCOUNT};
use crate::cluster::space::account;
use crate::{Installation, Replica, ReplicaOptions, eventually};

/// How long things may take, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

impl Installation<'_> {
    /// Applies the component sources, apart from what needs running pods.
    pub async fn apply_sources(&self) -> Result<()> {
        for file in ["crd", "rbac", "rbac-namespace", "state"] {
            self.apply_file(&format!("components/sources/{file}.yaml")).await?;
        }
        let exists = async || {
            let listed = self.cluster.kubectl(&["get", "configsources", "--all-namespaces"]).await.ok()??;
            (listed.code == Some(0)).then_some(())
        };
        eventually(WAIT_TIMEOUT, "ConfigSource is served", exists).await
    }

    /// Starts the role sources, and waits until it leads.
    pub async fn sources(&self, options: &ReplicaOptions) -> Result<Replica> {
        let mut replica = self.more_sources(options).await?;
        replica.health = replica.wait_for_address("health").await?;
        let waited = eventually(WAIT_TIMEOUT, "the sources are led", async || leads(&replica).then_some(())).await;
        waited.with_context(|| format!("its log:\n{}", replica.log()))?;
        Ok(replica)
    }

    /// Starts the role sources, with its account and the content key as its pod has it.
    pub async fn more_sources(&self, options: &ReplicaOptions) -> Result<Replica> {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.admin().await?, NAMESPACE);
        let filled = async || secrets.get("nudge-content-key").await.ok()?.data?.remove("content");
        let key = eventually(WAIT_TIMEOUT, "the content key is there", filled).await?;
        // Of each process, as in a pod.
        let folder = tempfile::tempdir_in(self.cluster.folder())?.keep();
        let file = folder.join("content");
        fs::write(&file, &key.0).with_context(|| format!("can't write {}", file.display()))?;
        let mut options = options.with_more(&[
            "--roles=sources".to_owned(),
            format!("--content-key-dir={}", folder.display()),
            format!("--mirrors-dir={}", folder.join("mirrors").display()),
        ]);
        options.variables.push(("MALLOC_MMAP_THRESHOLD_", (128 << 10).to_string()));
        self.start_as(SOURCES_ACCOUNT, &options, None).await
    }
}

/// Returns whether this replica has led.
pub fn leads(replica: &Replica) -> bool {
    replica.log().contains("\"leads\":true")
}

/// Allows the role sources to use these verbs on one object, as the condition of a source says.
pub async fn may(space: &TestNamespace, verbs: &[&str], resource: &str, name: &str) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": verbs}]);
    let role = format!("nudge-source-{}-{}-{name}", verbs[0], resource.replace('/', "-"));
    space.grant(&role, rules, account(SOURCES_ACCOUNT, NAMESPACE)).await
}
