//! The content of versions, and the acts of users on configs, which they retry until the API server accepts them.
//!
//! Every value of a version ends with its name, and every version has a key of its own, so one reading shows whether it
//! is whole.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::secrets::Canaries;
use crate::history::recorder::Recorder;
use crate::history::{Occurrence, Values};

/// The configs of the fleet.
pub(crate) const CONFIGS: [&str; 3] = ["shop", "keys", "flags"];
/// How long a user tries.
const USER_TIMEOUT: Duration = Duration::from_mins(2);
/// The time between two attempts of a user.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// `spec.rollout` of every config: as quick as harm can be seen (3 s).
pub(crate) fn rollout() -> Value {
    json!({
        "steps": [{"pods": 1}, {"pods": "50%"}, {"pods": "100%"}],
        "minReadySeconds": 5, "bakeSeconds": 5, "ackTimeoutSeconds": 20, "progressDeadlineSeconds": 120,
    })
}

/// Returns whether an application that has these values is not ready.
pub(crate) fn is_bad(values: &Values) -> bool {
    CONFIGS.iter().any(|config| values.contains_key(&format!("{config}.bad")))
}

/// Returns the two parts of a version.
fn parts(config: &str, version: &str, bad: bool, canary: &str) -> [Value; 2] {
    let value = |text: &str| format!("{text}@{version}");
    let part = |number: usize, field: &str, data: Value| {
        json!({
            "metadata": {
                "name": format!("{config}-{version}-{number}"),
                "labels": {"nudge.dev/config": config, "nudge.dev/version": version, "nudge.dev/part": number.to_string()},
                "annotations": {"nudge.dev/parts": "2"},
            },
            "immutable": true, field: data,
        })
    };
    let mut data = json!({format!("{config}.text"): value("text"), format!("{config}.only-{version}"): value("own")});
    if bad {
        data[format!("{config}.bad")] = value("bad").into();
    }
    let secret = json!({format!("{config}.secret"): value(canary)});
    [part(1, "data", data), part(2, "stringData", secret)]
}

/// A user, who tries again.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) space: TestNamespace,
    pub(crate) recorder: Recorder,
    pub(crate) canaries: Canaries,
}

impl User {
    /// Creates a version.
    pub(crate) async fn create_version(&self, config: &str, version: &str, bad: bool) -> Result<()> {
        let creation = Occurrence::VersionCreated { config: config.to_owned(), version: version.to_owned(), bad };
        self.recorder.note(creation);
        let [map, secret] = parts(config, version, bad, &self.canaries.secret_value(config, version));
        let already_exists = |error: anyhow::Error| error.to_string().contains("already exists");
        self.retry_until_done("a part is created", || async {
            self.space
                .create_object::<ConfigMap>(map.clone())
                .await
                .map(drop)
                .or_else(|error| already_exists(error).then_some(()).ok_or(()))
        })
        .await?;
        self.retry_until_done("a part is created", || async {
            self.space
                .create_object::<Secret>(secret.clone())
                .await
                .map(drop)
                .or_else(|error| already_exists(error).then_some(()).ok_or(()))
        })
        .await
    }

    /// Creates a config, with its first version.
    pub(crate) async fn create_config(&self, config: &str, version: &str) -> Result<()> {
        let object = json!({"metadata": {"name": config}, "spec": {"rollout": rollout()}});
        self.retry_until_done("a config is created", || async {
            let created = self.space.create_object::<VersionedConfig>(object.clone()).await;
            created.map(drop).or_else(|error| error.to_string().contains("already exists").then_some(()).ok_or(()))
        })
        .await?;
        self.request_version(config, version).await
    }

    /// Requests a version once it is sealed. A version that no webhook has seen would have to be requested again if it
    /// was requested sooner.
    pub(crate) async fn request_version(&self, config: &str, version: &str) -> Result<()> {
        let configs = self.space.api::<VersionedConfig>();
        self.retry_until_done("a version is sealed", || async {
            match configs.get(config).await {
                Ok(object) if object.status.as_ref().is_some_and(|status| status.version(version).is_some()) => Ok(()),
                Ok(_) => Err(()),
                Err(error) => ok_if_not_found(&error),
            }
        })
        .await?;
        self.patch_spec(config, json!({"version": version})).await
    }

    /// Changes the spec of a config, unless the config is gone.
    pub(crate) async fn patch_spec(&self, config: &str, spec: Value) -> Result<()> {
        self.patch_config(config, json!({"spec": spec})).await
    }

    async fn patch_config(&self, config: &str, patch: Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.retry_until_done("a config is changed", || async {
            let written = self.space.api::<VersionedConfig>().patch(config, &PatchParams::default(), &patch).await;
            written.map(drop).or_else(|error| ok_if_not_found(&error))
        })
        .await
    }

    /// Deletes a config although pods have it, and waits until it is gone.
    pub(crate) async fn force_delete_config(&self, config: &str) -> Result<()> {
        self.patch_config(config, json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}})).await?;
        let configs = self.space.api::<VersionedConfig>();
        self.retry_until_done("a config is deleted", || async {
            match configs.delete(config, &DeleteParams::default()).await {
                Ok(_) => Err(()),
                Err(error) => ok_if_not_found(&error),
            }
        })
        .await
    }

    /// Deletes the parts of a version; the control plane may refuse.
    pub(crate) async fn delete_version(&self, config: &str, version: &str) {
        let delete = DeleteParams::default();
        let _ = self.space.api::<ConfigMap>().delete(&format!("{config}-{version}-1"), &delete).await;
        let _ = self.space.api::<Secret>().delete(&format!("{config}-{version}-2"), &delete).await;
    }

    async fn retry_until_done<F: Future<Output = Result<(), ()>>>(
        &self,
        what: &str,
        mut done: impl FnMut() -> F,
    ) -> Result<()> {
        let deadline = Instant::now() + USER_TIMEOUT;
        while done().await.is_err() {
            ensure!(Instant::now() < deadline, "not within {USER_TIMEOUT:?}: {what}");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        Ok(())
    }
}

fn ok_if_not_found(error: &kube::Error) -> Result<(), ()> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        _ => Err(()),
    }
}
