//! Fixtures of the unit tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use nudge_api::{
    PartKind, PartStatus, VersionApproval, VersionState, VersionStatus, VersionedConfig, VersionedConfigStatus,
};
use nudge_cluster::call::CallError;
use nudge_core::versions::Contents;
use nudge_protocol::labels;
use serde_json::{Value, json};

use super::caller::Caller;
use super::lookups::{AttendedKind, IndexLookups, LookupError, Lookups, Right};
use super::review::{self, ReviewRequest};
use super::verdict::Denial;
use super::version_object::VersionObject;

/// A part of version 1.0.1 of the config shop.
pub(super) fn part(kind: PartKind, name: &str) -> VersionObject {
    let map = |entries: &[(&str, &str)]| {
        entries.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
    };
    VersionObject {
        kind,
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(map(&[(labels::CONFIG, "shop"), (labels::VERSION, "1.0.1")])),
            annotations: Some(map(&[])),
            ..ObjectMeta::default()
        },
        immutable: true,
        secret_type: (kind == PartKind::Secret).then(|| "Opaque".to_owned()),
        content: content(&[("lives", "3")]),
    }
}

pub(super) fn content(entries: &[(&str, &str)]) -> Contents {
    entries.iter().map(|&(key, value)| (key.to_owned(), value.as_bytes().to_vec().into())).collect()
}

pub(super) fn set_label(object: &mut VersionObject, name: &str, value: &str) {
    object.metadata.labels.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

pub(super) fn set_annotation(object: &mut VersionObject, name: &str, value: &str) {
    object.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

#[track_caller]
pub(super) fn message<T: std::fmt::Debug>(checked: Result<T, Denial>) -> String {
    let message = checked.unwrap_err().message;
    assert!(
        !message.contains('\n') && !message.contains(". ") && !message.ends_with('.'),
        "one line without a full stop: {message}"
    );
    message
}

/// A sealed version of ConfigMaps, all with the uid 1.
pub(super) fn sealed(version: &str, names: &[&str]) -> VersionStatus {
    let part = |name: &&str| PartStatus {
        kind: PartKind::ConfigMap,
        name: (*name).to_owned(),
        uid: "1".to_owned(),
        digest: "sha256:x".to_owned(),
    };
    VersionStatus {
        version: version.to_owned(),
        state: VersionState::Available,
        digest: String::new(),
        parts: names.iter().map(part).collect(),
        keys: 1,
        bytes: 1,
        seal_time: None,
        consent: None,
    }
}

pub(super) fn shop(status: VersionedConfigStatus) -> VersionedConfig {
    let mut shop = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
    shop.metadata.namespace = Some("team".to_owned());
    shop.status = Some(status);
    shop
}

/// A time that many hours ahead, as objects have it.
pub(super) fn ahead(hours: i64) -> String {
    (Timestamp::now() + SignedDuration::from_hours(hours)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A client that has shown no certificate.
pub(super) fn caller() -> Caller {
    Caller::unauthenticated([10, 0, 0, 1])
}

/// A request as the API server sends it.
pub(super) fn request(kind: &str, operation: &str, old: Option<&Value>, new: Option<&Value>) -> ReviewRequest {
    let group = match kind {
        "VersionedConfig" | "VersionApproval" | "ConfigSource" | "RolloutPolicy" => "nudge.dev",
        "RolloutAnalysis" => "internal.nudge.dev",
        _ => "",
    };
    let name = &new.or(old).unwrap()["metadata"]["name"];
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": "any"}, "name": name, "namespace": "team",
            "operation": operation, "userInfo": {"username": "eve", "groups": ["devs"]}, "oldObject": old, "object": new
        }
    });
    review::parse(review.to_string().as_bytes(), caller()).unwrap()
}

/// Fixed answers, and the questions that were asked.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is one answer
pub(super) struct FakeLookups {
    pub config: Option<VersionedConfig>,
    pub enabled: bool,
    pub terminating: bool,
    pub subscribers: usize,
    pub part_kinds: Vec<PartKind>,
    pub may_update: bool,
    pub may_update_secret: bool,
    pub may_delete: Vec<PartKind>,
    /// Any object of these kinds.
    pub may_get: Vec<PartKind>,
    pub config_map: Option<ConfigMap>,
    pub may_create: Vec<PartKind>,
    pub may_create_configs: bool,
    pub may_patch_config: bool,
    pub may_override: bool,
    pub may_approve: bool,
    pub may_import: bool,
    pub approvals: Vec<VersionApproval>,
    /// The objects of these names.
    pub may_read: Vec<&'static str>,
    pub may_create_token: bool,
    pub secrets: bool,
    /// What names any object.
    pub referrer: Option<&'static str>,
    /// The kinds that no process attends to.
    pub unattended: Vec<AttendedKind>,
    /// Access reviews fail, and nothing else.
    pub reviews_fail: bool,
    /// The client asks too often.
    pub too_many: bool,
    /// Every look-up fails.
    pub fails: bool,
    /// How long an access review takes.
    pub slow: Duration,
    pub asked: Mutex<Vec<String>>,
}

fn too_slow(what: String) -> LookupError {
    CallError::Timeout { what, limit: Duration::from_secs(1) }.into()
}

impl FakeLookups {
    fn note<T>(&self, question: String, answer: T) -> Result<T, LookupError> {
        self.asked.lock().unwrap().push(question.clone());
        let failed = || too_slow(question);
        if self.fails { Err(failed()) } else { Ok(answer) }
    }

    async fn review(&self) {
        if !self.slow.is_zero() {
            tokio::time::sleep(self.slow).await;
        }
    }
}

impl Lookups for FakeLookups {
    async fn config(&self, namespace: &str, name: &str) -> Result<Option<VersionedConfig>, LookupError> {
        let found = self.config.clone().filter(|config| config.metadata.name.as_deref() == Some(name));
        self.note(format!("config {namespace}/{name}"), found)
    }

    async fn is_enabled(&self, _: &ReviewRequest, namespace: &str) -> Result<bool, LookupError> {
        self.note(format!("enabled {namespace}"), self.enabled)
    }

    async fn is_terminating(&self, namespace: &str) -> Result<bool, LookupError> {
        self.note(format!("terminating {namespace}"), self.terminating)
    }

    fn index(&self) -> &dyn IndexLookups {
        self
    }

    async fn config_map(
        &self,
        _: &ReviewRequest,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ConfigMap>, LookupError> {
        self.note(format!("ConfigMap {namespace}/{name}"), self.config_map.clone())
    }

    async fn may(&self, request: &ReviewRequest, namespace: &str, right: Right<'_>) -> Result<bool, LookupError> {
        if self.too_many {
            let action = right.to_string();
            return Err(LookupError::TooMany { action, address: request.caller.address, per_second: 1 });
        }
        let allowed = match right {
            Right::Update(PartKind::ConfigMap, _) => self.may_update,
            Right::Update(PartKind::Secret, _) => self.may_update_secret,
            Right::Delete(kind) => self.may_delete.contains(&kind),
            Right::Create(kind) => self.may_create.contains(&kind),
            Right::CreateConfigs => self.may_create_configs,
            Right::PatchConfig(_) => self.may_patch_config,
            Right::CreateToken(_) => self.may_create_token,
            Right::Override(_) => self.may_override,
            Right::Approve(_) => self.may_approve,
            Right::Import(_) => self.may_import,
            Right::GetAll(kind) => self.may_get.contains(&kind),
            Right::Get(_, name) => self.may_read.contains(&name),
        };
        let asked = self.note(format!("may {} {right} in {namespace}", request.user()), allowed);
        self.review().await;
        if self.reviews_fail {
            return Err(too_slow(right.to_string()));
        }
        asked
    }

    async fn referrer(&self, _: &ReviewRequest, _: &str, _: (PartKind, &str)) -> Result<Option<String>, LookupError> {
        if self.reviews_fail {
            return Err(too_slow("listing".to_owned()));
        }
        Ok(self.referrer.map(str::to_owned))
    }

    async fn attends(&self, _: &ReviewRequest, _: &str, what: AttendedKind) -> Result<bool, LookupError> {
        self.review().await;
        if self.reviews_fail || self.fails {
            return Err(too_slow(format!("{what:?}")));
        }
        Ok(!self.unattended.contains(&what))
    }
}

impl IndexLookups for FakeLookups {
    fn subscribers(&self, namespace: &str, config: &str) -> Option<usize> {
        let _ = self.note(format!("subscribers {namespace}/{config}"), ());
        Some(self.subscribers)
    }

    fn may_have_secrets(&self, _: &str) -> bool {
        self.secrets
    }

    fn config(&self, _: &str, _: &str) -> Option<Arc<VersionedConfig>> {
        self.config.clone().map(Arc::new)
    }

    fn part_kinds(&self, _: &str, _: &str) -> BTreeSet<PartKind> {
        self.part_kinds.iter().copied().collect()
    }

    fn approvals(&self, namespace: &str, config: &str) -> Vec<Arc<VersionApproval>> {
        let _ = self.note(format!("approvals {namespace}/{config}"), ());
        self.approvals.iter().filter(|approval| approval.spec.config_name == config).cloned().map(Arc::new).collect()
    }
}
