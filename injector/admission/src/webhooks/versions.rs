//! The webhooks of versions, which make the look-ups that the rules need, the cheapest first.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join;
use k8s_openapi::jiff::Timestamp;
use kube::core::admission::Operation;
use nudge_api::PartKind;
use nudge_core::derived_keys::NoteKey;
use nudge_core::identity::Identity;
use nudge_core::versions::{PartPlace, made_by, made_for, mark};
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;

use super::unattended;
use super::webhook::{Webhook, WebhookError};
use crate::lookups::{AttendedKind, LookupError, Lookups, Right};
use crate::patch::set_annotations;
use crate::review::ReviewRequest;
use crate::system_users::empties_namespace;
use crate::validation_rules::Judge;
use crate::verdict::AdmissionVerdict;
use crate::version_object::VersionObject;
use crate::{audit, versions};

/// The webhook that makes versions immutable, marks those that may become current by themselves, and notes each part's
/// creator and config.
#[derive(Clone, Debug)]
pub(crate) struct MutateVersions<L> {
    pub(crate) lookups: Arc<L>,
    pub(crate) key: Arc<NoteKey>,
}

impl<L: Lookups> MutateVersions<L> {
    async fn create(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let object = VersionObject::new_of(request)?;
        let Some(config) = object.label(labels::CONFIG) else { return Ok(AdmissionVerdict::allow()) };
        let namespace = request.required_namespace()?;
        let unattended = async {
            match object.kind {
                PartKind::Secret => {
                    unattended::warning(&*self.lookups, request, namespace, AttendedKind::Secrets).await
                }
                PartKind::ConfigMap => None,
            }
        };
        let (place, now) = (PartPlace { kind: object.kind, namespace }, Timestamp::now());
        let ((lacking_right, identity), unattended) =
            join(self.find_lacking_right(request, namespace, config, object.kind), unattended).await;
        let (mark, because) = match lacking_right {
            Ok(None) => match mark(&self.key, place, &object.metadata, &object.content, now) {
                Some(mark) => (Some(mark), None),
                None => {
                    (None, Some("its name is not generated yet, and only a part with a name can be marked".to_owned()))
                }
            },
            Ok(Some(right)) => {
                audit::right_refused(request, config, "create a version that may become current by itself", right);
                (None, Some(format!("you may not {right}")))
            }
            // The client tries again, which is better than a version that waits for a user.
            Err(error @ LookupError::TooMany { .. }) => return Err(error.into()),
            // A failure would admit the part with the mark that its creator may have written.
            Err(error) => {
                tracing::warn!(
                    config,
                    error = &error as &dyn Error,
                    "access review failed; part created without a mark"
                );
                (None, Some("Nudge could not find out whether you may update what it publishes".to_owned()))
            }
        };
        let unattended = unattended.map(|cause| format!("{}: {cause}", object.title()));
        let warnings = because.map(|because| versions::unmarked_part(&object, &because)).into_iter().chain(unattended);
        let immutable = versions::make_immutable(None, &object);
        let user = request.user_info.username.as_deref().unwrap_or_default();
        let author = made_by(&self.key, place, &object.metadata, &object.content, user, now);
        let made_for = identity.and_then(|identity| made_for(&self.key, place, &object.metadata, identity, now));
        let notes = [(labels::MAY_ACTIVATE, mark), (labels::MADE_BY, author), (labels::MADE_FOR, made_for)];
        let notes = set_annotations(object.metadata.annotations.as_ref(), notes);
        Ok(AdmissionVerdict::patch(immutable.into_iter().chain(notes).collect()).with_warnings(warnings))
    }

    /// Returns the right that the creator of a part lacks for automatic publication of the part, and the identity of
    /// the config, which is looked up live. Only for a Secret does it matter whether the config publishes Secrets: a
    /// version is marked if all of its parts are.
    async fn find_lacking_right<'a>(
        &self,
        request: &ReviewRequest,
        namespace: &str,
        config: &'a str,
        kind: PartKind,
    ) -> (Result<Option<Right<'a>>, LookupError>, Option<Identity>) {
        let right = |kind| Right::Update(kind, config);
        let may = self.lookups.may(request, namespace, right(PartKind::ConfigMap));
        let (may, stored) = join(may, self.lookups.config(namespace, config)).await;
        let identity = stored.as_ref().ok().and_then(Option::as_ref).map(Identity::of);
        let lacking_right = async {
            if !may? {
                return Ok(Some(right(PartKind::ConfigMap)));
            }
            let is_published_secret = kind == PartKind::Secret && stored?.is_some_and(|stored| stored.spec.owns(kind));
            Ok((is_published_secret && !self.lookups.may(request, namespace, right(kind)).await?).then(|| right(kind)))
        };
        (lacking_right.await, identity)
    }
}

#[async_trait]
impl<L: Lookups> Webhook for MutateVersions<L> {
    fn path(&self) -> &'static str {
        "/mutate/versions"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        match request.operation {
            Operation::Create => self.create(request).await,
            Operation::Update => {
                let (old, new) = (VersionObject::old_of(request)?, VersionObject::new_of(request)?);
                let immutable = versions::make_immutable(Some(&old), &new);
                Ok(AdmissionVerdict::patch(immutable.into_iter().chain(versions::keep_notes(&old, &new)).collect()))
            }
            Operation::Delete | Operation::Connect => Ok(AdmissionVerdict::allow()),
        }
    }
}

/// The webhook that checks requests about versions.
#[derive(Clone, Debug)]
pub(crate) struct ValidateVersions<L> {
    lookups: Arc<L>,
    judge: Judge,
}

impl<L: Lookups> ValidateVersions<L> {
    /// Creates a webhook that uses `lookups`.
    pub(crate) fn new(lookups: Arc<L>) -> Self {
        Self { lookups, judge: Judge::default() }
    }

    /// Decides from the request alone, and then by the rules of the config.
    async fn create(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let object = VersionObject::new_of(request)?;
        if !object.is_labelled() {
            return Ok(AdmissionVerdict::allow());
        }
        match versions::check_shape(&object) {
            Ok(part) if part.number.count() == 1 => Ok(self
                .judge
                .check_version(&*self.lookups, request, request.required_namespace()?, &object)
                .await
                .into()),
            shape => Ok(shape.map(drop).into()),
        }
    }

    async fn delete(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let object = VersionObject::old_of(request)?;
        let Some(config) = object.label(labels::CONFIG).filter(|_| !empties_namespace(&request.user_info)) else {
            return Ok(AdmissionVerdict::allow());
        };
        let namespace = request.required_namespace()?;
        let config = self.lookups.config(namespace, config).await?;
        let mut verdict = AdmissionVerdict::from(versions::check_deletion(&object, config.as_ref()));
        if !verdict.is_denied() && versions::is_kept(&object, config.as_ref()) {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            verdict = match self.lookups.referrer(request, namespace, (object.kind, name)).await {
                Ok(Some(referrer)) => AdmissionVerdict::Deny(versions::deny_in_use(&object, &referrer)),
                Ok(None) => verdict,
                // What can't be listed can't be kept.
                Err(error) => verdict.with_warnings([format!(
                    "{}: Nudge does not know whether a pod or a workload names it: {}",
                    object.title(),
                    chain(&error)
                )]),
            };
        }
        // The namespace is looked up only if it makes a difference. A failure must not let a refused deletion pass.
        if verdict.is_denied() && matches!(self.lookups.is_terminating(namespace).await, Ok(true)) {
            return Ok(AdmissionVerdict::allow());
        }
        Ok(verdict)
    }
}

#[async_trait]
impl<L: Lookups> Webhook for ValidateVersions<L> {
    fn path(&self) -> &'static str {
        "/validate/versions"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        match request.operation {
            Operation::Create => self.create(request).await,
            Operation::Update => {
                let (old, new) = (VersionObject::old_of(request)?, VersionObject::new_of(request)?);
                Ok(versions::check_update(&old, &new).into())
            }
            Operation::Delete => self.delete(request).await,
            Operation::Connect => Ok(AdmissionVerdict::allow()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use nudge_api::VersionedConfigStatus;
    use nudge_core::versions::is_marked;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{FakeLookups, request, sealed, shop};

    fn object() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": "1", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1"}},
            "immutable": true, "data": {"lives": "3"}
        })
    }

    fn current() -> FakeLookups {
        let versions = vec![sealed("1.0.1", &["a"])];
        let status = VersionedConfigStatus { current_version: Some("1.0.1".into()), versions, ..Default::default() };
        FakeLookups { config: Some(shop(status)), ..FakeLookups::default() }
    }

    #[tokio::test]
    async fn what_a_template_names_is_not_deleted() {
        let free = |referrer: Option<&'static str>| {
            let status = VersionedConfigStatus { versions: vec![sealed("1.0.1", &["a"])], ..Default::default() };
            FakeLookups { config: Some(shop(status)), referrer, ..FakeLookups::default() }
        };
        let delete = request("ConfigMap", "DELETE", Some(&object()), None);
        assert!(!reviewed(free(None), &delete).await.0.is_denied());
        let AdmissionVerdict::Deny(denial) = reviewed(free(Some("ReplicaSet web-5d8")), &delete).await.0 else {
            panic!("it is not denied")
        };
        assert!(denial.message.contains("because ReplicaSet web-5d8 names it; "), "{}", denial.message);
        let terminating = FakeLookups { terminating: true, ..free(Some("ReplicaSet web-5d8")) };
        assert!(!reviewed(terminating, &delete).await.0.is_denied());
        let unlisted = FakeLookups { reviews_fail: true, ..free(None) };
        let AdmissionVerdict::Allow { warnings, .. } = reviewed(unlisted, &delete).await.0 else {
            panic!("it is denied")
        };
        assert!(warnings.len() == 1 && warnings[0].contains("does not know whether"), "{warnings:?}");
        // Objects that are no part of a version are not looked for.
        let mut other = object();
        other["metadata"]["uid"] = json!("2");
        let delete = request("ConfigMap", "DELETE", Some(&other), None);
        assert!(!reviewed(free(Some("ReplicaSet web-5d8")), &delete).await.0.is_denied());
    }

    async fn reviewed(lookups: FakeLookups, request: &ReviewRequest) -> (AdmissionVerdict, Vec<String>) {
        let lookups = Arc::new(lookups);
        let verdict = ValidateVersions::new(Arc::clone(&lookups)).review(request).await.unwrap();
        let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
        (verdict, asked)
    }

    #[tokio::test]
    async fn the_namespace_is_looked_up_only_before_a_denial() {
        let deletion = request("ConfigMap", "DELETE", Some(&object()), None);
        let (verdict, asked) = reviewed(current(), &deletion).await;
        assert!(verdict.is_denied());
        assert_eq!(asked, ["config team/shop", "terminating team"]);
        let (verdict, asked) = reviewed(FakeLookups::default(), &deletion).await;
        assert_eq!((verdict, asked), (AdmissionVerdict::allow(), vec!["config team/shop".to_owned()]));
        let terminating = FakeLookups { terminating: true, ..current() };
        assert_eq!(reviewed(terminating, &deletion).await.0, AdmissionVerdict::allow());
    }

    #[tokio::test]
    async fn the_namespace_controller_passes_without_look_ups() {
        let mut deletion = request("ConfigMap", "DELETE", Some(&object()), None);
        deletion.user_info.username = Some("system:serviceaccount:kube-system:namespace-controller".into());
        assert_eq!(reviewed(current(), &deletion).await, (AdmissionVerdict::allow(), Vec::new()));
    }

    fn marker(lookups: FakeLookups) -> (MutateVersions<FakeLookups>, Arc<FakeLookups>) {
        let (lookups, key) = (Arc::new(lookups), Arc::new(NoteKey::new(b"key")));
        (MutateVersions { lookups: Arc::clone(&lookups), key }, lookups)
    }

    /// The object as the webhook leaves it, and its warnings.
    async fn marked(lookups: FakeLookups, object: &Value) -> (ConfigMap, Vec<String>) {
        let creation = request("ConfigMap", "CREATE", None, Some(object));
        let verdict = marker(lookups).0.review(&creation).await.unwrap();
        let AdmissionVerdict::Allow { warnings, patch } = verdict else { panic!("{verdict:?}") };
        let mut object = object.clone();
        json_patch::patch(&mut object, &patch.unwrap_or_default()).unwrap();
        object["metadata"]["namespace"] = json!("team");
        (serde_json::from_value(object).unwrap(), warnings)
    }

    fn has_mark(object: &ConfigMap) -> bool {
        let key = NoteKey::new(b"key");
        let content = object.data.clone().unwrap_or_default();
        is_marked(&key, nudge_api::PartKind::ConfigMap, &object.metadata, &content)
    }

    #[tokio::test]
    async fn versions_of_users_who_may_publish_are_marked() {
        let (made, warnings) = marked(FakeLookups { may_update: true, ..FakeLookups::default() }, &object()).await;
        assert!(has_mark(&made) && warnings.is_empty(), "{warnings:?}");
        let (made, warnings) = marked(FakeLookups::default(), &object()).await;
        assert!(!has_mark(&made));
        assert_eq!(
            warnings,
            ["version 1.0.1 of config shop will not become current by itself, because you may not update \
                 ConfigMap shop; a user who may activate it must run kubectl nudge use shop 1.0.1"]
        );
    }

    #[tokio::test]
    async fn secrets_of_a_config_that_publishes_one_are_marked_for_those_who_may_update_it() {
        let part = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": object()["metadata"], "immutable": true, "data": {"password": "eA=="}
        });
        let stored = |objects: Value| {
            let mut config = shop(VersionedConfigStatus::default());
            config.spec.objects = serde_json::from_value(objects).unwrap();
            Some(config)
        };
        let (map, both) = (json!(["ConfigMap"]), json!(["ConfigMap", "Secret"]));
        for (config, may_update_secret, warned) in [
            (None, false, false),
            (stored(map), false, false),
            (stored(both.clone()), true, false),
            (stored(both), false, true),
        ] {
            let lookups = FakeLookups { config, may_update: true, may_update_secret, ..FakeLookups::default() };
            let creation = request("Secret", "CREATE", None, Some(&part));
            let AdmissionVerdict::Allow { warnings, patch } = marker(lookups).0.review(&creation).await.unwrap() else {
                panic!()
            };
            let patch = serde_json::to_string(&patch).unwrap();
            assert_eq!(patch.contains("may-activate"), !warned, "{patch}");
            assert_eq!(warnings.iter().any(|it| it.contains("because you may not update Secret shop;")), warned);
        }
    }

    #[tokio::test]
    async fn a_secret_that_nudge_may_not_read_is_made_with_a_warning() {
        let part = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": object()["metadata"], "data": {}});
        for (kind, unattended, expected) in [
            ("Secret", vec![AttendedKind::Secrets], vec!["Secret a: Nudge may not read the Secrets of namespace team"]),
            ("Secret", vec![], vec![]),
            ("ConfigMap", vec![AttendedKind::Secrets], vec![]),
        ] {
            let lookups = FakeLookups { may_update: true, unattended, ..FakeLookups::default() };
            let creation = request(kind, "CREATE", None, Some(&part(kind)));
            let Ok(AdmissionVerdict::Allow { warnings, .. }) = marker(lookups).0.review(&creation).await else {
                panic!("{kind}")
            };
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            assert!(warnings.iter().zip(expected).all(|(one, start)| one.starts_with(start)), "{warnings:?}");
        }
    }

    #[tokio::test]
    async fn a_mark_that_came_with_the_part_is_removed() {
        let (allowed, _) = marked(FakeLookups { may_update: true, ..FakeLookups::default() }, &object()).await;
        let stolen = serde_json::to_value(&allowed).unwrap();
        for lookups in [FakeLookups::default(), FakeLookups { fails: true, ..FakeLookups::default() }] {
            let (made, warnings) = marked(lookups, &stolen).await;
            let annotations = made.metadata.annotations.unwrap_or_default();
            assert_eq!((annotations.contains_key(labels::MAY_ACTIVATE), warnings.len()), (false, 1));
        }
        let mut unnamed = stolen.clone();
        unnamed["metadata"]["name"] = json!("");
        unnamed["metadata"]["generateName"] = json!("shop-");
        let (made, warnings) = marked(FakeLookups { may_update: true, ..FakeLookups::default() }, &unnamed).await;
        assert!(!has_mark(&made) && warnings[0].contains("name is not generated yet"), "{warnings:?}");
    }

    #[tokio::test]
    async fn who_creates_a_part_is_noted_whoever_else_stands_there() {
        let author = |made: &ConfigMap| {
            let mut part = made.clone();
            // The API server sets it afterwards.
            part.metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now()));
            let key = NoteKey::new(b"key");
            let content = part.data.clone().unwrap_or_default();
            nudge_core::versions::author(&key, PartKind::ConfigMap, &part.metadata, &content)
        };
        let (made, _) = marked(FakeLookups { may_update: true, ..FakeLookups::default() }, &object()).await;
        assert_eq!(author(&made).as_deref(), Some("eve"));
        let (made, _) = marked(FakeLookups::default(), &object()).await;
        assert_eq!(author(&made).as_deref(), Some("eve"), "without a mark, too");
        let mut forged = object();
        forged["metadata"]["annotations"] = json!({labels::MADE_BY: "1 x alice", "note": "b"});
        let (made, _) = marked(FakeLookups { fails: true, ..FakeLookups::default() }, &forged).await;
        assert_eq!(author(&made).as_deref(), Some("eve"));
        assert_eq!(made.metadata.annotations.unwrap()["note"], "b");
        forged["metadata"]["name"] = json!("");
        forged["metadata"]["generateName"] = json!("shop-");
        let (made, _) = marked(FakeLookups::default(), &forged).await;
        assert!(!made.metadata.annotations.unwrap().contains_key(labels::MADE_BY), "nobody knows");
    }

    #[tokio::test]
    async fn a_part_is_noted_for_the_config_that_is_there_and_for_no_other() {
        let made_for = |mut made: ConfigMap| {
            made.metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now()));
            nudge_core::versions::made_for_a_config(&NoteKey::new(b"key"), PartKind::ConfigMap, &made.metadata)
        };
        let mut forged = object();
        forged["metadata"]["annotations"] = json!({labels::MADE_FOR: "1 x y"});
        for may_update in [false, true] {
            for part in [&object(), &forged] {
                let (made, _) = marked(FakeLookups { may_update, ..current() }, part).await;
                assert!(made_for(made).is_some(), "for every user");
                let (made, _) = marked(FakeLookups { may_update, ..FakeLookups::default() }, part).await;
                assert!(!made.metadata.annotations.unwrap_or_default().contains_key(labels::MADE_FOR), "no config");
            }
        }
    }

    #[tokio::test]
    async fn a_creation_looks_up_the_requesters_right_and_the_config() {
        let creation = request("ConfigMap", "CREATE", None, Some(&object()));
        assert_eq!(reviewed(current(), &creation).await, (AdmissionVerdict::allow(), Vec::new()));
        let (marker, lookups) = marker(current());
        marker.review(&creation).await.unwrap();
        assert_eq!(*lookups.asked.lock().unwrap(), ["may eve update ConfigMap shop in team", "config team/shop"]);
    }

    /// The answer is the same whether the object exists or not.
    #[tokio::test]
    async fn a_deletion_without_the_uid_learns_nothing() {
        let mut guess = object();
        for uid in [Value::Null, json!(""), json!("2")] {
            guess["metadata"]["uid"] = uid;
            let deletion = request("ConfigMap", "DELETE", Some(&guess), None);
            assert_eq!(reviewed(current(), &deletion).await.0, reviewed(FakeLookups::default(), &deletion).await.0);
        }
    }

    #[tokio::test]
    async fn a_request_that_lacks_its_object_is_no_review() {
        let mut odd = request("ConfigMap", "CREATE", None, Some(&object()));
        odd.object = None;
        assert!(matches!(marker(current()).0.review(&odd).await, Err(WebhookError::Review(_))));
        let pod = request("Pod", "CREATE", None, Some(&object()));
        assert!(matches!(marker(current()).0.review(&pod).await, Err(WebhookError::Review(_))));
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(cut in any::<prop::sample::Index>(), noise in "\\PC{0,12}", keep in any::<bool>()) {
            let text = serde_json::to_string(&json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "7", "kind": {"group": "", "version": "v1", "kind": "Secret"},
                    "resource": {"group": "", "version": "v1", "resource": "secrets"}, "name": "a", "namespace": "team",
                    "operation": "UPDATE", "userInfo": {"username": "eve"}, "oldObject": object(), "object": object()
                }
            })).unwrap();
            let at = (0..=cut.index(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            let (head, tail) = text.split_at(at);
            let tail = if keep { tail } else { tail.get(noise.len()..).unwrap_or_default() };
            if let Ok(request) = crate::review::parse(format!("{head}{noise}{tail}").as_bytes(), crate::fixtures::caller()) {
                prop_assert!(marker(current()).0.review(&request).now_or_never().is_some());
                let reviewed = ValidateVersions::new(Arc::new(current())).review(&request).now_or_never();
                prop_assert!(reviewed.is_some());
            }
        }
    }
}
