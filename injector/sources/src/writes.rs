//! The writes of a source: the config, the objects of a version, `spec.version`, and its own status.

use std::sync::Arc;

use hyper::header::{ACCEPT, HeaderValue};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::jiff::Timestamp;
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, Request};
use kube::{Api, Resource};
use nudge_api::{ConfigSource, ConfigSourceStatus, Explanation, Origin, PartKind, Reason, VersionedConfig};
use nudge_authoring::{Common, Keep, OPAQUE, object, object_names};
use nudge_cluster::call::{CallError, call};
use nudge_core::requester::part_annotation;
use nudge_core::sources::{FIELD_MANAGER, explain_conflict, explain_unpublishable, version_manager};
use nudge_core::versions::{PartNumber, object_name};
use nudge_protocol::{ConfigName, VersionName, labels};
use serde::Serialize;
use serde_json::json;

use crate::draft::VersionDraft;
use crate::sources::Sources;

/// The media type that requests the metadata of an object alone.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// A refusal that holds until somebody acts.
    #[error("{0}")]
    Refused(Explanation),
    /// A failed call, which is tried again.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Whether a refusal shows the API server's message. A message about a Secret may hold a value.
#[derive(Clone, Copy)]
enum ServerMessage {
    Shown,
    Hidden,
}

/// The writes in one namespace.
pub(crate) struct Writes {
    sources: Arc<Sources>,
    namespace: String,
}

impl Writes {
    pub(crate) const fn new(sources: Arc<Sources>, namespace: String) -> Self {
        Self { sources, namespace }
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.sources.client.clone(), &self.namespace)
    }

    /// Waits until the namespace may write, and makes the request.
    async fn write<T>(
        &self,
        context: impl Fn() -> String,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        self.sources.rates.wait(&self.namespace).await;
        call(context, request).await
    }

    /// Creates the config with an empty spec. The API server adds the defaults. Returns `None` if the config already
    /// exists.
    pub(crate) async fn create_config(&self, name: &str) -> Result<Option<VersionedConfig>, WriteError> {
        let resource = ApiResource::erase::<VersionedConfig>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.sources.client.clone(), &self.namespace, &resource);
        let config = DynamicObject::new(name, &resource).data(json!({"spec": {}}));
        let context = || format!("creating config {}/{name}", self.namespace);
        match self.write(context, api.create(&create_parameters(), &config)).await {
            Ok(created) => Ok(created.try_parse().ok()),
            Err(error) if is_already_exists(&error) => Ok(None),
            Err(error) => Err(to_write_error(error, &format!("config {name} can't be created"), ServerMessage::Shown)),
        }
    }

    /// Creates the objects of a version. Objects that exist stay as they are: the name of the version is the digest of
    /// its content, and the version is sealed only if the content has this digest. Returns the name of an object that
    /// existed.
    pub(crate) async fn create_version(
        &self,
        source: &ConfigSource,
        config: &ConfigName,
        version: &VersionName,
        draft: &VersionDraft,
    ) -> Result<Option<String>, WriteError> {
        let origin = draft.origin.as_ref().and_then(Origin::annotation);
        let set_by = part_annotation(source);
        let common = Common {
            config,
            version,
            keep: Keep::Newest(source.spec.history_limit),
            secret_type: OPAQUE,
            origin: origin.as_deref(),
            set_by: set_by.as_deref(),
        };
        let mut existing = None;
        for (part, number) in draft.parts.iter().zip(PartNumber::sequence(draft.parts.len())) {
            let (readable, hashed) = object_names(config, version, number);
            let name = readable.unwrap_or(hashed);
            let (kind, title) = (part.kind, object_name(part.kind, &name));
            let context = || format!("creating {title} in {}", self.namespace);
            let _room = self.sources.budget.reserve_copies(&self.namespace, part.bytes()).await;
            let object = object(part, &common, number, &name);
            let created = match kind {
                PartKind::ConfigMap => self.write(context, self.create(&object.config_map())).await,
                PartKind::Secret => self.write(context, self.create(&object.secret().0)).await,
            };
            match created {
                Ok(()) => {}
                Err(error) if is_already_exists(&error) => existing = Some(title),
                Err(error) => {
                    let message = match kind {
                        PartKind::ConfigMap => ServerMessage::Shown,
                        PartKind::Secret => ServerMessage::Hidden,
                    };
                    return Err(to_write_error(error, &format!("{title} can't be created"), message));
                }
            }
        }
        Ok(existing)
    }

    /// Creates an object. The answer holds the metadata alone, because the content is already here.
    async fn create<K>(&self, object: &K) -> Result<(), kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize,
    {
        let data = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let mut request = Request::new(K::url_path(&(), Some(&self.namespace)))
            .create(&create_parameters(), data)
            .map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, METADATA_ONLY);
        self.sources.client.request::<PartialObjectMeta<K>>(request).await.map(drop)
    }

    /// Sets `spec.version`, unless somebody else manages the field.
    pub(crate) async fn activate(
        &self,
        source: &ConfigSource,
        config: &VersionedConfig,
        version: &str,
    ) -> Result<VersionedConfig, WriteError> {
        let name = source.config();
        let api = self.api::<VersionedConfig>();
        let patch = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
            "spec": {"version": version},
        });
        let context = || format!("setting spec.version of config {}/{name}", self.namespace);
        match self.write(context, api.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(patch))).await {
            Ok(config) => Ok(config),
            Err(error) if error.is_conflict() => Err(WriteError::Refused(explain_conflict(
                source,
                version_manager(&config.metadata).unwrap_or("somebody else"),
            ))),
            Err(error) => {
                let context = format!("spec.version of config {name} can't be set");
                Err(match to_write_error(error, &context, ServerMessage::Shown) {
                    WriteError::Refused(explanation) if config.spec.owns(PartKind::Secret) => {
                        WriteError::Refused(explain_unpublishable(&explanation, name, &self.sources.account))
                    }
                    error => error,
                })
            }
        }
    }

    /// Requests another attempt with the version that `spec.version` names.
    pub(crate) async fn retry(&self, name: &str) -> Result<VersionedConfig, WriteError> {
        self.annotate(name, labels::RETRY, Some(Timestamp::now().to_string())).await
    }

    /// Sets or removes the notice that allows the removal of the sources' Secret versions that are older than the last
    /// version.
    pub(crate) async fn keep_only(&self, name: &str, notice: Option<String>) -> Result<VersionedConfig, WriteError> {
        self.annotate(name, labels::SOURCE_GONE, notice).await
    }

    async fn annotate(&self, name: &str, label: &str, value: Option<String>) -> Result<VersionedConfig, WriteError> {
        let api = self.api::<VersionedConfig>();
        let patch = json!({"metadata": {"annotations": {label: value}}});
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let context = || format!("setting an annotation of config {}/{name}", self.namespace);
        match self.write(context, api.patch(name, &parameters, &Patch::Merge(patch))).await {
            Ok(config) => Ok(config),
            Err(error) => Err(to_write_error(error, &format!("config {name} can't be changed"), ServerMessage::Shown)),
        }
    }

    pub(crate) async fn write_status(&self, name: &str, status: &ConfigSourceStatus) -> Result<(), CallError> {
        let api = self.api::<ConfigSource>();
        // The patch replaces the whole status. (With server-side apply, Kubernetes 1.20 leaves null in place of a
        // missing field.)
        let replacement = AddOperation { path: PointerBuf::from_tokens(["status"]), value: json!(status) };
        let patch = Patch::Json::<()>(json_patch::Patch(vec![PatchOperation::Add(replacement)]));
        let context = || format!("writing the status of source {}/{name}", self.namespace);
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.write(context, api.patch_status(name, &parameters, &patch)).await.map(drop)
    }
}

fn create_parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn api_status(error: &CallError) -> Option<&kube::core::Status> {
    match error {
        CallError::Api { source, .. } => match &**source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        },
        CallError::Timeout { .. } | CallError::TooMany { .. } => None,
    }
}

fn is_already_exists(error: &CallError) -> bool {
    error.is_conflict() && api_status(error).is_some_and(|status| status.reason == "AlreadyExists")
}

/// Returns the denial by a webhook of Nudge, which shows no value.
fn nudge_denial(message: &str) -> Option<&str> {
    let (webhook, denial) = message.strip_prefix("admission webhook \"")?.split_once("\" denied the request: ")?;
    webhook.ends_with(".nudge.dev").then_some(denial)
}

/// Explains a refusal that the API server will not withdraw by itself. Leaves any other error as it is.
fn to_write_error(error: CallError, context: &str, message: ServerMessage) -> WriteError {
    let Some(status) = api_status(&error) else { return error.into() };
    let denial = nudge_denial(&status.message);
    if let Some(denial) = denial.filter(|_| status.code == 422) {
        return WriteError::Refused(Reason::Invalid.explained(denial));
    }
    let reason = match status.code {
        // Nudge itself is overloaded.
        429 | 503 if denial.is_some() => return error.into(),
        403 => Reason::NotAllowed,
        _ if error.refusal().is_some() => Reason::SourceRefused,
        _ => return error.into(),
    };
    let cause = denial.unwrap_or(match message {
        ServerMessage::Shown => &status.message,
        ServerMessage::Hidden => &status.reason,
    });
    let role = "ClusterRole nudge-sources, and for Secrets nudge-sources-secrets";
    let hint = if status.code == 403 { format!("; is {role}, bound in the namespace?") } else { String::new() };
    WriteError::Refused(reason.explained(format!("{context}: {cause}{hint}")))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn explain(code: u16, message: &str) -> String {
        let status = Status { code, message: message.to_owned(), reason: "Invalid".to_owned(), ..Status::default() };
        let source = Arc::new(kube::Error::Api(Box::new(status)));
        let error = CallError::Api { what: "creating".to_owned(), source };
        match to_write_error(error, "Secret a can't be created", ServerMessage::Hidden) {
            WriteError::Refused(explanation) => format!("{}: {}", explanation.reason, explanation.message),
            WriteError::Call(error) => panic!("{error}"),
        }
    }

    #[test]
    fn of_a_secret_only_what_nudge_says_is_shown() {
        let by = |webhook: &str| format!("admission webhook \"{webhook}\" denied the request: key pin: too long");
        assert_eq!(explain(422, &by("versions.nudge.dev")), "Invalid: key pin: too long");
        assert_eq!(explain(422, &by("hunter2.example.com")), "SourceRefused: Secret a can't be created: Invalid");
        assert_eq!(explain(422, "hunter2 is wrong"), "SourceRefused: Secret a can't be created: Invalid");
        let hint = "; is ClusterRole nudge-sources, and for Secrets nudge-sources-secrets, bound in the namespace?";
        assert_eq!(
            explain(403, &by("versions.nudge.dev")),
            format!("NotAllowed: Secret a can't be created: key pin: too long{hint}")
        );
        // Others answer with any code.
        for code in [401, 409, 429] {
            assert_eq!(explain(code, &by("w.example.com")), "SourceRefused: Secret a can't be created: Invalid");
        }
    }
}
