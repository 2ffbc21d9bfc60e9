//! What the guards' tests are made of.

use std::collections::BTreeMap;
use std::sync::Mutex;

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::ObjectMeta;
use nudge_protocol::labels;
use serde_json::{Value, json};

use super::lookups::{DigestAlgorithm, LookupError, Lookups};
use super::object::{Content, VersionObject};
use super::review::{self, Request};
use super::verdict::Denial;
use crate::api::{
    PartKind, PartStatus, RetiredVersion, VersionState, VersionStatus, VersionedConfig, VersionedConfigStatus,
};

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

pub(super) fn content(entries: &[(&str, &str)]) -> Content {
    Content(entries.iter().map(|&(key, value)| (key.to_owned(), value.as_bytes().to_vec())).collect())
}

pub(super) fn set_label(object: &mut VersionObject, name: &str, value: &str) {
    object.metadata.labels.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

pub(super) fn set_annotation(object: &mut VersionObject, name: &str, value: &str) {
    object.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// The sentence of a refusal.
#[track_caller]
pub(super) fn sentence<T: std::fmt::Debug>(checked: Result<T, Denial>) -> String {
    let message = checked.unwrap_err().message;
    assert!(!message.contains('\n') && !message.contains(". ") && !message.ends_with('.'), "one sentence: {message}");
    message
}

/// The digest that the tests take: of keys and values, by name of the algorithm.
pub(super) fn digest(content: &Content, algorithm: DigestAlgorithm) -> String {
    let prefix = match algorithm {
        DigestAlgorithm::Sha256 => "sha256",
        DigestAlgorithm::HmacSha256 => "hmac-sha256",
    };
    format!("{prefix}:{:?}", content.0)
}

/// A sealed version of ConfigMaps, with the content that [`part`] has.
pub(super) fn sealed(version: &str, names: &[&str]) -> VersionStatus {
    let digest = digest(&content(&[("lives", "3")]), DigestAlgorithm::Sha256);
    let part = |name: &&str| PartStatus {
        kind: PartKind::ConfigMap,
        name: (*name).to_owned(),
        uid: "1".to_owned(),
        digest: digest.clone(),
    };
    VersionStatus {
        version: version.to_owned(),
        state: VersionState::Available,
        parts: names.iter().map(part).collect(),
        keys: 1,
        bytes: 1,
        sealed_at: None,
    }
}

pub(super) fn retired(version: &str, digests: &[String]) -> RetiredVersion {
    RetiredVersion { version: version.to_owned(), digests: digests.to_vec() }
}

/// The config shop with that status.
pub(super) fn shop(status: VersionedConfigStatus) -> VersionedConfig {
    let mut shop = VersionedConfig::new("shop", crate::api::VersionedConfigSpec::default());
    shop.metadata.namespace = Some("team".to_owned());
    shop.status = Some(status);
    shop
}

/// A request as the API server sends it.
pub(super) fn request(kind: &str, operation: &str, old: Option<&Value>, new: Option<&Value>) -> Request {
    let group = if kind == "VersionedConfig" { "nudge.dev" } else { "" };
    let name = &new.or(old).unwrap()["metadata"]["name"];
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": "any"}, "name": name, "namespace": "team",
            "operation": operation, "userInfo": {"username": "eve", "groups": ["devs"]}, "oldObject": old, "object": new
        }
    });
    review::parse(review.to_string().as_bytes()).unwrap()
}

/// Answers from memory, and what was asked.
#[derive(Debug, Default)]
pub(super) struct FakeLookups {
    pub config: Option<VersionedConfig>,
    pub terminating: bool,
    pub subscribers: Vec<String>,
    pub may_update: bool,
    pub asked: Mutex<Vec<String>>,
}

impl FakeLookups {
    fn note(&self, question: String) {
        self.asked.lock().unwrap().push(question);
    }
}

impl Lookups for FakeLookups {
    async fn config(&self, namespace: &str, name: &str) -> Result<Option<VersionedConfig>, LookupError> {
        self.note(format!("config {namespace}/{name}"));
        Ok(self.config.clone())
    }

    async fn is_terminating(&self, namespace: &str) -> Result<bool, LookupError> {
        self.note(format!("terminating {namespace}"));
        Ok(self.terminating)
    }

    fn subscribers(&self, namespace: &str, config: &str) -> Vec<String> {
        self.note(format!("subscribers {namespace}/{config}"));
        self.subscribers.clone()
    }

    async fn may_update_config_map(&self, user: &UserInfo, namespace: &str, name: &str) -> Result<bool, LookupError> {
        self.note(format!("may {} update {namespace}/{name}", user.username.as_deref().unwrap()));
        Ok(self.may_update)
    }

    async fn digest(&self, _: PartKind, content: &Content, algorithm: DigestAlgorithm) -> Result<String, LookupError> {
        Ok(digest(content, algorithm))
    }
}
