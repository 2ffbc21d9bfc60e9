//! Calls of the API server for published objects and the parts of versions, and the meaning of their errors.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use nudge_api::{PartKind, Reason};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::part_objects::{read_part, write_part};
use nudge_core::publish::{Publication, PublishedObject};
use serde_json::error::Category;
use serde_json::json;

use crate::controller::{FIELD_MANAGER, written_by_us};
use crate::failure_cause::FailureCause;

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Read,
    Create,
    Replace,
}

impl Act {
    /// Returns the participle that a message has.
    fn participle(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "created",
            Self::Replace => "replaced",
        }
    }
}

/// The objects of one kind in a namespace.
pub(crate) struct ObjectApi<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) kind: PartKind,
}

impl ObjectApi<'_> {
    /// Reads an object, if it exists.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<PublishedObject>, CallError> {
        let reading = || format!("reading {} {}/{name}", self.kind, self.namespace);
        call(reading, read_part::<ConfigMap, Secret>(self.client, self.namespace, self.kind, name)).await
    }

    /// Creates or replaces an object. Returns it as the API server has stored it.
    pub(crate) async fn write(
        &self,
        name: &str,
        object: &PublishedObject,
        act: Act,
    ) -> Result<PublishedObject, CallError> {
        let writing = || format!("writing {} {}/{name}", self.kind, self.namespace);
        let replaced = (act != Act::Create).then_some(name);
        call(writing, write_part(self.client, self.namespace, object, &written_by_us(), replaced)).await
    }

    /// Sets a label of an object, and nothing else.
    pub(crate) async fn label(&self, object: &PublishedObject, (label, value): (&str, &str)) -> Result<(), CallError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        match self.kind {
            PartKind::ConfigMap => {
                let api = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
                let labelling = || format!("labelling {} {}/{name}", self.kind, self.namespace);
                let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
                call(labelling, api.patch_metadata(&name, &params, &patch)).await.map(drop)
            }
            // The role may update Secrets, and not patch them.
            PartKind::Secret => {
                let mut metadata = object.metadata.clone();
                metadata.managed_fields = None;
                metadata.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned());
                let PublishedObject { kind, immutable, content, .. } = object;
                let (kind, immutable, content) = (*kind, *immutable, content.clone());
                let labelled = PublishedObject { kind, metadata, immutable, content };
                self.write(&name, &labelled, Act::Replace).await.map(drop)
            }
        }
    }
}

/// Returns the meaning of an error for the object. No message about a Secret repeats the API server, which may quote a
/// value.
pub(crate) fn publication_fault(error: &CallError, kind: PartKind, name: &str, act: Act) -> Publication {
    let done = act.participle();
    if let CallError::Api { source, .. } = error {
        match &**source {
            kube::Error::Api(status) if status.code == 403 && status.message.contains(" cannot ") => {
                return Publication::Refused(Reason::NotAllowed.explained(missing_role_message(kind, name, act)));
            }
            kube::Error::SerdeError(error) if error.classify() == Category::Data => {
                let message =
                    format!("{kind} {name} can't be {done}, because Nudge can't read it as a {kind}; delete it");
                return Publication::Refused(Reason::NotOurs.explained(message));
            }
            _ => {}
        }
    }
    let FailureCause { refused, text, .. } = FailureCause::of_object(kind, error);
    let hint = if refused && !kind.is_quotable() {
        ": look for a quota, an admission webhook, or a key that its type needs"
    } else {
        ""
    };
    let reason = if refused { Reason::Refused } else { Reason::NotPublished };
    Publication::Failed(reason.explained(format!("{kind} {name} can't be {done}, because {text}{hint}")))
}

/// Returns the message about a missing role, with how to bind it.
fn missing_role_message(kind: PartKind, name: &str, act: Act) -> String {
    let done = act.participle();
    let (role, flags) = match (kind, act) {
        (PartKind::ConfigMap, _) => {
            return format!("ConfigMap {name} can't be {done}; bind ClusterRole nudge-namespace in this namespace");
        }
        (PartKind::Secret, Act::Read) => ("nudge-secrets", "--secrets"),
        (PartKind::Secret, Act::Create | Act::Replace) => ("nudge-publish-secrets", "--secrets --publish-secrets"),
    };
    format!(
        "Secret {name} can't be {done}; bind ClusterRole {role} in this namespace (RoleBinding for ServiceAccount \
         nudge-system/nudge-injector; kubectl nudge enable NAMESPACE {flags}), or remove Secret from spec.objects"
    )
}
