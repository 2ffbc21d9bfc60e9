//! The write that restarts a workload, and the report if the API server refuses a restart.

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use nudge_api::Reason;
use nudge_cluster::call::{CallError, call};
use nudge_core::keys::ConfigKey;
use nudge_core::owners::{WorkloadId, WorkloadKind};
use nudge_core::restart::{DIGEST_ANNOTATION, MARK_ANNOTATION, ObjectReport, RestartMark, Workload};
use nudge_protocol::bounded_text::clip;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::controller::{Controller, FIELD_MANAGER};

/// The maximum size of the part of the API server's message that a report has.
const MAX_MESSAGE_BYTES: usize = 200;

/// Returns the report about a refusal that the next attempt would get, too. `done` names the attempt, as a message has
/// it, and `advice` what else the user can do.
pub(super) fn refusal_report(error: &CallError, id: &WorkloadId, done: &str, advice: &str) -> Option<ObjectReport> {
    let CallError::Api { source, .. } = error else { return None };
    let kube::Error::Api(status) = &**source else { return None };
    let text = clip(status.message.clone(), MAX_MESSAGE_BYTES);
    let (reason, message) = match status.code {
        403 if text.contains("cannot") => (
            Reason::NotAllowed,
            format!(
                "{id} can't be {done}; bind ClusterRole nudge-restart in this namespace (RoleBinding for ServiceAccount \
                 nudge-system/nudge-injector; kubectl nudge enable NAMESPACE), or {advice}"
            ),
        ),
        400 | 403 | 422 => {
            (Reason::Refused, format!("{id} can't be {done}, because the API server refuses it: {text}"))
        }
        _ => return None,
    };
    Some(ObjectReport::new(reason, id, message))
}

impl Controller {
    /// Writes the digest into the workload's template. Returns the workload after the write; `None` if it was
    /// deleted.
    pub(super) async fn annotate(
        &self,
        key: &ConfigKey,
        workload: &Workload,
        mark: &RestartMark,
    ) -> Result<Option<Workload>, CallError> {
        let patch = json!({
            "metadata": {"annotations": {MARK_ANNOTATION: mark.text()}},
            "spec": {"template": {"metadata": {"annotations": {DIGEST_ANNOTATION: mark.digest.as_str()}}}},
        });
        let name = &workload.name;
        match workload.kind {
            WorkloadKind::Deployment => self.patch(key, name, &patch, Workload::of_deployment).await,
            WorkloadKind::StatefulSet => self.patch(key, name, &patch, Workload::of_stateful_set).await,
            WorkloadKind::DaemonSet => self.patch(key, name, &patch, Workload::of_daemon_set).await,
        }
    }

    /// Patches an object. Returns it after the write; `None` if it was deleted.
    async fn patch<K>(
        &self,
        key: &ConfigKey,
        name: &str,
        patch: &serde_json::Value,
        read: impl Fn(&K) -> Option<Workload>,
    ) -> Result<Option<Workload>, CallError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patching = || format!("patching {} {}/{name}", K::kind(&()), key.namespace);
        let result = call(patching, api.patch(name, &params, &Patch::Merge(patch))).await;
        self.workload_lists.outdate(&key.namespace);
        match result {
            Ok(written) => Ok(read(&written)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
