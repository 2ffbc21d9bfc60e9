//! The object `RolloutAnalysis` of a config: reads, writes, and the memory of it.

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Resource as _};
use nudge_api::{RolloutAnalysis, RolloutAnalysisSpec, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use serde_json::json;

use crate::controller::{Controller, FIELD_MANAGER};
use crate::memory::AnalysisMemory;

impl Controller {
    pub(super) fn analysis_memory(&self, key: &ConfigKey) -> Option<AnalysisMemory> {
        self.memories.get(key, |memory| memory.analysis.clone()).flatten()
    }

    pub(super) fn keep_analysis_memory(&self, key: &ConfigKey, analysis: AnalysisMemory) {
        self.memories.change(key, |memory| memory.analysis = Some(analysis));
    }

    /// Reads the object, if it is there. Returns `before` if it can't be read.
    pub(super) async fn read_analysis(
        &self,
        key: &ConfigKey,
        before: Option<Arc<RolloutAnalysis>>,
    ) -> Option<Arc<RolloutAnalysis>> {
        let api = self.analyses(key);
        let read = call(|| format!("reading RolloutAnalysis {key}"), api.get_opt(key.name.as_str())).await;
        match read.or_else(|error| if_allowed(key, error)) {
            Ok(object) => object.map(Arc::new),
            Err(error) => {
                tracing::warn!(config = %key, error = chain(&error), "answers of an analysis not read; retrying");
                before
            }
        }
    }

    /// Writes the question. Returns `None` if that is not possible.
    pub(super) async fn write_analysis(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: &RolloutAnalysisSpec,
    ) -> Result<Option<RolloutAnalysis>, CallError> {
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
        written.or_else(|error| if_allowed(key, error))
    }

    pub(super) async fn delete_analysis(&self, key: &ConfigKey) -> Result<(), CallError> {
        let (api, parameters) = (self.analyses(key), DeleteParams::default());
        let deleting = api.delete(key.name.as_str(), &parameters);
        let deleted = call(|| format!("deleting RolloutAnalysis {key}"), deleting).await;
        deleted.map(drop).or_else(|error| if_allowed(key, error).map(drop))
    }

    fn analyses(&self, key: &ConfigKey) -> Api<RolloutAnalysis> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

/// Returns no object if the component is not installed: nothing is measured then, which holds versions and breaks
/// nothing else.
fn if_allowed(key: &ConfigKey, error: CallError) -> Result<Option<RolloutAnalysis>, CallError> {
    match error.code() {
        Some(404) => Ok(None),
        Some(403) => {
            tracing::debug!(config = %key, error = chain(&error), "analysis is not allowed");
            Ok(None)
        }
        _ => Err(error),
    }
}
