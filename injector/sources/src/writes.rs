//! What a source writes: the config, the objects of a version, `spec.version`, and its own status.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::header::{ACCEPT, HeaderValue};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, Request};
use kube::{Api, Resource};
use nudge_api::{ConfigSource, ConfigSourceStatus, Explanation, Origin, PartKind, Reason, VersionedConfig};
use nudge_authoring::{Common, Keep, Object, names, object};
use nudge_cluster::call::{CallError, call};
use nudge_core::sources::{FIELD_MANAGER, held_by, holder, unpublishable};
use nudge_core::versions::object_name;
use nudge_protocol::{ConfigName, VersionName, labels};
use serde::Serialize;
use serde_json::json;
use zeroize::Zeroize as _;

use crate::content::Newest;
use crate::shared::Sources;

/// Asks for the metadata of an object in place of all of it.
const METADATA: HeaderValue = HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Somebody must act.
    #[error("{0}")]
    Refused(Explanation),
    /// The call failed; it is tried again.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Writes in one namespace.
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

    /// Waits for the turn of a write, and makes it.
    async fn write<T>(
        &self,
        what: impl Fn() -> String,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        self.sources.rates.wait(&self.namespace).await;
        call(what, request).await
    }

    /// Creates the config with what the API server makes of an empty spec. `None` where it is there.
    pub(crate) async fn create_config(&self, name: &str) -> Result<Option<VersionedConfig>, WriteError> {
        let resource = ApiResource::erase::<VersionedConfig>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.sources.client.clone(), &self.namespace, &resource);
        let config = DynamicObject::new(name, &resource).data(json!({"spec": {}}));
        let what = || format!("creating config {}/{name}", self.namespace);
        match self.write(what, api.create(&creating(), &config)).await {
            Ok(created) => Ok(created.try_parse().ok()),
            Err(error) if exists(&error) => Ok(None),
            Err(error) => Err(refused(error, &format!("config {name} can't be created"), true)),
        }
    }

    /// Creates the objects of a version. Those that are there stay: the name of the version is the digest of its content, and it is sealed
    /// only if that is true. Returns the name of one that was there.
    pub(crate) async fn make(
        &self,
        config: &ConfigName,
        version: &VersionName,
        newest: &Newest,
        (keep, set_by): (u32, Option<&str>),
    ) -> Result<Option<String>, WriteError> {
        let origin = newest.origin.as_ref().and_then(Origin::annotation);
        let common = Common {
            config,
            version,
            keep: Keep::Newest(keep),
            secret_type: &newest.secret_type,
            origin: origin.as_deref(),
            set_by,
        };
        let (count, mut existed) = (newest.parts.len(), None);
        for (part, number) in newest.parts.iter().zip(1..) {
            let (readable, hashed) = names(config, version, number, count);
            let name = readable.unwrap_or(hashed);
            let (kind, what) = (part.kind, object_name(part.kind, &name));
            let creating_it = || format!("creating {what} in {}", self.namespace);
            let _room = self.sources.budget.copies(&self.namespace, part.bytes()).await;
            let created = match object(part, &common, (number, count), &name) {
                Object::Map(map) => self.write(creating_it, self.create(&*map)).await,
                Object::Secret(mut secret) => {
                    let result = self.write(creating_it, self.create(&*secret)).await;
                    wipe(&mut secret);
                    result
                }
            };
            match created {
                Ok(()) => {}
                Err(error) if exists(&error) => existed = Some(what),
                // What the API server says of a Secret may hold a value.
                Err(error) => {
                    let open = kind == PartKind::ConfigMap;
                    return Err(refused(error, &format!("{what} can't be created"), open));
                }
            }
        }
        Ok(existed)
    }

    /// Creates an object. The answer is its metadata alone: the content is here already.
    async fn create<K>(&self, object: &K) -> Result<(), kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize,
    {
        let data = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let mut request = Request::new(K::url_path(&(), Some(&self.namespace)))
            .create(&creating(), data)
            .map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, METADATA);
        self.sources.client.request::<PartialObjectMeta<K>>(request).await.map(drop)
    }

    /// Asks for a version, unless somebody else sets the field.
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
        let what = || format!("setting spec.version of config {}/{name}", self.namespace);
        match self.write(what, api.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(patch))).await {
            Ok(config) => Ok(config),
            Err(error) if error.is_conflict() => {
                Err(WriteError::Refused(held_by(source, holder(&config.metadata).unwrap_or("somebody else"))))
            }
            Err(error) => {
                let refused = refused(error, &format!("spec.version of config {name} can't be set"), true);
                Err(match refused {
                    WriteError::Refused(why) if config.spec.publishes(PartKind::Secret) => {
                        WriteError::Refused(unpublishable(&why, name, &self.sources.account))
                    }
                    other => other,
                })
            }
        }
    }

    /// Asks for another attempt with the version that `spec.version` names.
    pub(crate) async fn retry(&self, name: &str) -> Result<VersionedConfig, WriteError> {
        self.annotate(name, labels::RETRY, Some(Timestamp::now().to_string())).await
    }

    /// Says that older Secret versions of sources than this one may go, or no longer says so.
    pub(crate) async fn keep_only(&self, name: &str, notice: Option<String>) -> Result<VersionedConfig, WriteError> {
        self.annotate(name, labels::SOURCE_GONE, notice).await
    }

    async fn annotate(&self, name: &str, label: &str, value: Option<String>) -> Result<VersionedConfig, WriteError> {
        let api = self.api::<VersionedConfig>();
        let patch = json!({"metadata": {"annotations": {label: value}}});
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let what = || format!("setting an annotation of config {}/{name}", self.namespace);
        match self.write(what, api.patch(name, &parameters, &Patch::Merge(patch))).await {
            Ok(config) => Ok(config),
            Err(error) => Err(refused(error, &format!("config {name} can't be changed"), true)),
        }
    }

    /// Writes the status of a source.
    pub(crate) async fn status(&self, name: &str, status: &ConfigSourceStatus) -> Result<(), CallError> {
        let api = self.api::<ConfigSource>();
        // It replaces all of the status. (Server-side apply of Kubernetes 1.20 leaves null where a field is left out.)
        let whole = AddOperation { path: PointerBuf::from_tokens(["status"]), value: json!(status) };
        let patch = Patch::Json::<()>(json_patch::Patch(vec![PatchOperation::Add(whole)]));
        let what = || format!("writing the status of source {}/{name}", self.namespace);
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.write(what, api.patch_status(name, &parameters, &patch)).await.map(drop)
    }
}

/// Leaves no value in memory that is given back.
fn wipe(secret: &mut Secret) {
    secret.data.iter_mut().flat_map(BTreeMap::values_mut).for_each(|value| value.0.zeroize());
}

fn creating() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn api_status(error: &CallError) -> Option<&kube::core::Status> {
    match error {
        CallError::Api { source, .. } => match &**source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        },
        CallError::Timeout { .. } => None,
    }
}

fn exists(error: &CallError) -> bool {
    error.is_conflict() && api_status(error).is_some_and(|status| status.reason == "AlreadyExists")
}

/// What a webhook of Nudge has said. It shows no value.
fn denied(message: &str) -> Option<&str> {
    let (webhook, said) = message.strip_prefix("admission webhook \"")?.split_once("\" denied the request: ")?;
    webhook.ends_with(".nudge.dev").then_some(said)
}

/// A refusal of the API server that does not pass by itself. `open`: its message may be shown.
fn refused(error: CallError, what: &str, open: bool) -> WriteError {
    let Some(status) = api_status(&error) else { return error.into() };
    let denied = denied(&status.message);
    if let Some(said) = denied.filter(|_| status.code == 422) {
        return WriteError::Refused(Reason::Invalid.explained(said));
    }
    let reason = match status.code {
        // Nudge itself has too much to do.
        429 | 503 if denied.is_some() => return error.into(),
        403 => Reason::NotAllowed,
        _ if error.refusal().is_some() => Reason::SourceRefused,
        _ => return error.into(),
    };
    let said = denied.unwrap_or(if open { &status.message } else { &status.reason });
    let role = "ClusterRole nudge-sources, and for Secrets nudge-sources-secrets";
    let hint = if status.code == 403 { format!("; is {role}, bound in the namespace?") } else { String::new() };
    WriteError::Refused(reason.explained(format!("{what}: {said}{hint}")))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn said(code: u16, message: &str) -> String {
        let status = Status { code, message: message.to_owned(), reason: "Invalid".to_owned(), ..Status::default() };
        let source = Arc::new(kube::Error::Api(Box::new(status)));
        match refused(CallError::Api { what: "creating".to_owned(), source }, "Secret a can't be created", false) {
            WriteError::Refused(why) => format!("{}: {}", why.reason, why.message),
            WriteError::Call(error) => panic!("{error}"),
        }
    }

    #[test]
    fn of_a_secret_only_what_nudge_says_is_shown() {
        let by = |webhook: &str| format!("admission webhook \"{webhook}\" denied the request: key pin: too long");
        assert_eq!(said(422, &by("versions.nudge.dev")), "Invalid: key pin: too long");
        assert_eq!(said(422, &by("hunter2.example.com")), "SourceRefused: Secret a can't be created: Invalid");
        assert_eq!(said(422, "hunter2 is wrong"), "SourceRefused: Secret a can't be created: Invalid");
        let hint = "; is ClusterRole nudge-sources, and for Secrets nudge-sources-secrets, bound in the namespace?";
        assert_eq!(
            said(403, &by("versions.nudge.dev")),
            format!("NotAllowed: Secret a can't be created: key pin: too long{hint}")
        );
        // Others answer with any code.
        for code in [401, 409, 429] {
            assert_eq!(said(code, &by("w.example.com")), "SourceRefused: Secret a can't be created: Invalid");
        }
    }
}
