//! What is measured of a version on trial: the answers are read from the `RolloutAnalysis` of the config's name, and whose numbers are wanted is
//! written there. The role `analysis` asks for them, so the controllers need neither the network nor a Secret for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Resource as _};
use nudge_api::{RolloutAnalysis, RolloutAnalysisSpec, RolloutAnalysisStatus, RolloutStage, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use serde_json::json;

use super::asked::Asked;
use super::controller::{Controller, FIELD_MANAGER};
use super::locked::locked;

/// Answers are read no more often.
const READS: Duration = Duration::from_secs(1);
/// Other pods of the same round are written no more often.
const WRITES: Duration = Duration::from_secs(5);

/// Whether a version is on trial that is judged by numbers.
fn is_measured(config: &VersionedConfig) -> bool {
    let stage = config.status.as_ref().and_then(|status| status.rollout.stage);
    !config.spec.rollout.analysis.is_empty() && matches!(stage, Some(RolloutStage::Moving | RolloutStage::Baking))
}

impl Controller {
    /// The answers so far.
    pub(super) async fn measured(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
    ) -> Result<Option<RolloutAnalysisStatus>, CallError> {
        if !is_measured(config) {
            return Ok(None);
        }
        let asked = locked(&self.asked).get(key).cloned().unwrap_or_default();
        if asked.read.is_some_and(|read| read.elapsed() < READS) {
            return Ok(status(asked.object.as_deref()));
        }
        let read = Instant::now();
        let api = self.analyses(key);
        let found = call(|| format!("reading RolloutAnalysis {key}"), api.get_opt(key.name.as_str())).await;
        let object = found.or_else(|error| if_allowed(key, error))?.map(Arc::new);
        let answers = status(object.as_deref());
        locked(&self.asked).insert(key.clone(), Asked { object, read: Some(read), ..asked });
        Ok(answers)
    }

    /// Writes whose numbers are wanted, or that none are any more. Returns when to write what had to wait.
    pub(super) async fn ask(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: Option<RolloutAnalysisSpec>,
    ) -> Result<Option<Duration>, CallError> {
        let known = locked(&self.asked).get(key).cloned();
        let Some(question) = question else {
            // While pods prove the version again, the object stays as it is.
            let may_be_there =
                known.as_ref().map_or(!config.spec.rollout.analysis.is_empty(), |known| known.object.is_some());
            if may_be_there && !is_measured(config) {
                let api = self.analyses(key);
                let parameters = DeleteParams::default();
                let deleting = api.delete(key.name.as_str(), &parameters);
                let deleted = call(|| format!("deleting RolloutAnalysis {key}"), deleting).await;
                deleted.map(|_| None).or_else(|error| if_allowed(key, error))?;
                locked(&self.asked).insert(key.clone(), Asked::default());
            }
            return Ok(None);
        };
        let known = known.unwrap_or_default();
        let before = known.object.as_ref().map(|object| &object.spec);
        if before == Some(&question) {
            return Ok(None);
        }
        let same_round = before.is_some_and(|before| before.round == question.round);
        let early = known.written.map(|written| WRITES.saturating_sub(written.elapsed())).filter(|_| same_round);
        if let Some(early) = early.filter(|early| !early.is_zero()) {
            return Ok(Some(early));
        }
        let owner = config.owner_ref(&());
        let object = json!({
            "apiVersion": RolloutAnalysis::api_version(&()), "kind": RolloutAnalysis::kind(&()),
            "metadata": {"name": key.name.as_str(), "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
            "spec": question,
        });
        let (api, parameters) = (self.analyses(key), PatchParams::apply(FIELD_MANAGER).force());
        let patch = Patch::Apply(object);
        let writing = api.patch(key.name.as_str(), &parameters, &patch);
        let written = call(|| format!("writing RolloutAnalysis {key}"), writing).await.map(Some);
        let object = written.or_else(|error| if_allowed(key, error))?.map(Arc::new);
        let now = Some(Instant::now());
        locked(&self.asked).insert(key.clone(), Asked { object, read: now, written: now });
        Ok(None)
    }

    fn analyses(&self, key: &ConfigKey) -> Api<RolloutAnalysis> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn status(object: Option<&RolloutAnalysis>) -> Option<RolloutAnalysisStatus> {
    object?.status.clone()
}

/// Where the component is not installed, or the rights are those of an older release, nothing is measured, which holds versions and breaks
/// nothing else.
fn if_allowed(key: &ConfigKey, error: CallError) -> Result<Option<RolloutAnalysis>, CallError> {
    match error.code() {
        404 => Ok(None),
        403 => {
            tracing::debug!(config = %key, error = chain(&error), "analysis is not allowed");
            Ok(None)
        }
        _ => Err(error),
    }
}
