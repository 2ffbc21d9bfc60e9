//! The webhooks of `VersionedConfig`s.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use futures::future::{BoxFuture, try_join, try_join_all, try_join3};
use json_patch::Patch;
use k8s_openapi::jiff::Timestamp;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::{PartKind, ValidationRule, VersionedConfig, VersionedConfigSpec};
use ring::hmac;

use super::lookups::{LookupError, Lookups, Right};
use super::requester::empties_namespace;
use super::review::{Request, ReviewError};
use super::validation::{self, Judge};
use super::verdict::{Denial, Verdict};
use super::version_webhooks::namespace;
use super::webhook::{Webhook, WebhookError};
use super::{audit, configs};
use crate::configs::Weakening;

/// Notes who asks for versions, and marks configs that have guards.
#[derive(Clone, Debug)]
pub(super) struct MutateConfigs {
    key: Arc<hmac::Key>,
}

impl MutateConfigs {
    /// A webhook that signs with `key`.
    pub(super) fn new(key: Arc<hmac::Key>) -> Self {
        Self { key }
    }

    fn verdict(&self, request: &Request) -> Result<Verdict, WebhookError> {
        let old = match request.operation {
            Operation::Create => None,
            Operation::Update => Some(object(request.old_object.as_ref())?),
            Operation::Delete | Operation::Connect => return Ok(Verdict::allow()),
        };
        is_about_config(request)?;
        let new = object(request.object.as_ref())?;
        let name = new.metadata.name.as_deref().unwrap_or(&request.name);
        let asks = (request.user(), Timestamp::now());
        let mut changes = configs::note_requester((old, new), (namespace(request)?, name), asks, &self.key);
        changes.extend(configs::mark_guarded(new));
        Ok(if changes.is_empty() { Verdict::allow() } else { Verdict::patch(Patch(changes)) })
    }
}

impl Webhook for MutateConfigs {
    fn path(&self) -> &'static str {
        "/mutate/configs"
    }

    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>> {
        Box::pin(async move { self.verdict(request) })
    }
}

/// Checks requests about configs.
#[derive(Clone, Debug)]
pub(super) struct ValidateConfigs<L> {
    lookups: Arc<L>,
    judge: Judge,
}

impl<L: Lookups> ValidateConfigs<L> {
    /// A webhook that uses `lookups`.
    pub(super) fn new(lookups: Arc<L>) -> Self {
        Self { lookups, judge: Judge::default() }
    }

    async fn verdict(&self, request: &Request) -> Result<Verdict, WebhookError> {
        is_about_config(request)?;
        match request.operation {
            Operation::Create => self.change(request, None).await,
            Operation::Update => self.change(request, Some(config(request.old_object.as_ref())?)).await,
            Operation::Delete => self.delete(request).await,
            Operation::Connect => Ok(Verdict::allow()),
        }
    }

    async fn change(&self, request: &Request, old: Option<VersionedConfig>) -> Result<Verdict, WebhookError> {
        let (object, old_object) = (object(request.object.as_ref())?, old.as_ref().and(request.old_object.as_ref()));
        let new = config(Some(object))?;
        let old_spec = old.as_ref().map(|old| &old.spec);
        // The API server may still have to generate the name.
        let name = new.metadata.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&request.name);
        let named = if name.is_empty() { Ok(()) } else { configs::name_and_version(name, old_spec, &new.spec) };
        let selected = named.and_then(|()| configs::selectors(name, old_spec, &new.spec));
        if let Err(denial) = selected.and_then(|()| configs::windows(name, old_spec, &new.spec)) {
            return Ok(Verdict::Deny(denial));
        }
        let namespace = namespace(request)?;
        if let Some(denial) = self.may_not_import(request, (namespace, name), (old_object, object)).await? {
            return Ok(Verdict::Deny(denial));
        }
        let Some(what) = configs::needs(old_object, object) else { return Ok(Verdict::allow()) };
        let publishes = async {
            let kinds = configs::published(old_spec, &new.spec);
            let asked = kinds.into_iter().map(async |kind| {
                let right = Right::update(kind, name);
                let allowed = self.lookups.may(request, namespace, right).await?;
                if !allowed {
                    audit::refused(request, name, what, right);
                }
                Ok((!allowed).then(|| configs::not_permitted(request.user(), namespace, name, what, kind)))
            });
            Ok(try_join_all(asked).await?.into_iter().flatten().next())
        };
        let deletes = async {
            let Some(what) = configs::deletes(old_object, object) else { return Ok(None) };
            let mut kinds = old.as_ref().map(configs::kinds).unwrap_or_default();
            kinds.insert(PartKind::ConfigMap);
            if self.lookups.may_have_secrets(namespace) {
                kinds.insert(PartKind::Secret);
            }
            self.may_not_delete(request, namespace, name, what, &kinds).await
        };
        let weakening = configs::weakening(old_spec, &new.spec, Timestamp::now());
        let weakens = self.may_not_weaken(request, namespace, name, weakening.as_ref());
        let (publishes, deletes, weakens) = try_join3(publishes, deletes, weakens).await?;
        if let Some(denial) = publishes.or(deletes).or(weakens) {
            return Ok(Verdict::Deny(denial));
        }
        if let Some(denial) = self.analyses(request, (namespace, name), old_spec, &new.spec).await? {
            return Ok(Verdict::Deny(denial));
        }
        let warnings = match validation::new_rules(old_spec, &new.spec) {
            Some(rules) => match self.rules(request, (namespace, name), rules).await? {
                Ok(warnings) => warnings,
                Err(denial) => return Ok(Verdict::Deny(denial)),
            },
            None => Vec::new(),
        };
        if let Some(weakening) = &weakening {
            audit::overridden(request, name, weakening.what(), weakening.because());
        }
        if let Some(now) = configs::at_once(old_spec, &new.spec) {
            audit::at_once(request, name, now);
        }
        let Some(chosen) = configs::chosen_version(old_spec, &new.spec) else { return Ok(Verdict::warn(warnings)) };
        audit::activated(request, name, old_spec.and_then(|spec| spec.current.as_deref()), chosen);
        // Only the stored object has a status.
        let status = old.as_ref().and_then(|old| old.status.as_ref());
        let waits = configs::waits(&new, status, &self.lookups.policies(namespace), Timestamp::now());
        Ok(Verdict::warn(warnings.into_iter().chain(configs::not_complete(&new, status)).chain(waits).collect()))
    }

    /// The denial for a user who may not import the config, where the request is about that.
    async fn may_not_import(
        &self,
        request: &Request,
        (namespace, name): (&str, &str),
        (old, new): (Option<&DynamicObject>, &DynamicObject),
    ) -> Result<Option<Denial>, LookupError> {
        let Some(what) = configs::imports(old, new) else { return Ok(None) };
        let right = Right::Import(name);
        if self.lookups.may(request, namespace, right).await? {
            return Ok(None);
        }
        audit::refused(request, name, what, right);
        Ok(Some(configs::may_not_import(request.user(), namespace, name, what)))
    }

    /// Whether the user may have these rules, and they can be used. Returns warnings.
    async fn rules(
        &self,
        request: &Request,
        (namespace, name): (&str, &str),
        rules: &[ValidationRule],
    ) -> Result<Result<Vec<String>, Denial>, WebhookError> {
        for right in validation::rights(self.lookups.may_have_secrets(namespace)) {
            if !self.lookups.may(request, namespace, right).await? {
                audit::refused(request, name, "change its spec.validation", right);
                return Ok(Err(validation::may_not_get(request.user(), namespace, name, right)));
            }
        }
        Ok(self.judge.check_rules(&*self.lookups, request, (namespace, name), rules).await?)
    }

    /// The denial where an analysis makes no sense, or would send a Secret that the user may not get.
    async fn analyses(
        &self,
        request: &Request,
        (namespace, name): (&str, &str),
        old: Option<&VersionedConfigSpec>,
        new: &VersionedConfigSpec,
    ) -> Result<Option<Denial>, WebhookError> {
        let Some(analyses) = configs::new_analyses(old, new) else { return Ok(None) };
        let secrets = match configs::secrets(name, analyses) {
            Ok(secrets) => secrets,
            Err(denial) => return Ok(Some(denial)),
        };
        for secret in secrets {
            let right = Right::Get(PartKind::Secret, secret);
            if !self.lookups.may(request, namespace, right).await? {
                audit::refused(request, name, "change its spec.rollout.analysis", right);
                return Ok(Some(configs::may_not_send(request.user(), namespace, name, secret)));
            }
        }
        Ok(None)
    }

    async fn delete(&self, request: &Request) -> Result<Verdict, WebhookError> {
        if empties_namespace(&request.user_info) {
            return Ok(Verdict::allow());
        }
        let old = config(request.old_object.as_ref())?;
        let namespace = namespace(request)?;
        let name = old.metadata.name.as_deref().unwrap_or(&request.name);
        // A client that knows the uid has read the config. No other learns from the answer whether it exists and what uses it.
        let known = old.metadata.uid.as_ref().filter(|uid| !uid.is_empty());
        let stored = match self.lookups.config(namespace, name).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(Verdict::allow()),
            // A failure would let the deletion pass.
            Err(error) if known.is_some() => return Ok(Verdict::Deny(unchecked(name, &error))),
            Err(error) => return Err(error.into()),
        };
        // What has been let go already ends without another question.
        if known.is_none() || stored.metadata.uid.as_ref() != known || stored.metadata.deletion_timestamp.is_some() {
            return Ok(Verdict::allow());
        }
        let weakening = configs::deletes_guards(&stored);
        let denial = match configs::delete(&old, self.lookups.subscribers(namespace, name)) {
            Ok(()) => {
                let kinds = configs::kinds(&stored);
                let versions = self.may_not_delete(request, namespace, name, "delete it", &kinds);
                let guards = self.may_not_weaken(request, namespace, name, weakening.as_ref());
                try_join(versions, guards).await.map(|(versions, guards)| versions.or(guards))
            }
            Err(denial) => Ok(Some(denial)),
        };
        let denial = match denial {
            Ok(denial) => denial,
            Err(error @ LookupError::TooMany { .. }) => return Err(error.into()),
            // A failure would let the deletion pass, and Nudge would delete the versions.
            Err(error) => Some(unchecked(name, &error)),
        };
        let Some(denial) = denial else { return Ok(Verdict::allow()) };
        // With the namespace its objects go all the same, and Nudge deletes none.
        if matches!(self.lookups.is_terminating(namespace).await, Ok(true)) {
            return Ok(Verdict::allow());
        }
        Ok(Verdict::Deny(denial))
    }

    /// The denial for a user who may not override the config, where the request takes something away from its guards.
    async fn may_not_weaken(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
        weakening: Option<&Weakening>,
    ) -> Result<Option<Denial>, LookupError> {
        let Some(weakening) = weakening else { return Ok(None) };
        let right = Right::Override(name);
        if self.lookups.may(request, namespace, right).await? {
            return Ok(None);
        }
        audit::refused(request, name, weakening.what(), right);
        Ok(Some(weakening.denial(request.user(), namespace, name)))
    }

    /// The denial for a user who may not delete objects of one of these kinds.
    async fn may_not_delete(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
        what: &str,
        kinds: &BTreeSet<PartKind>,
    ) -> Result<Option<Denial>, LookupError> {
        let asked = kinds.iter().map(async |&kind| {
            let right = Right::Delete(kind);
            let allowed = self.lookups.may(request, namespace, right).await?;
            if !allowed {
                audit::refused(request, name, what, right);
            }
            Ok((!allowed).then(|| configs::may_not_delete(request.user(), namespace, name, what, kind)))
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().next())
    }
}

impl<L: Lookups> Webhook for ValidateConfigs<L> {
    fn path(&self) -> &'static str {
        "/validate/configs"
    }

    /// With a config Nudge deletes its versions.
    fn refuses_undecided_deletions(&self) -> bool {
        true
    }

    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>> {
        Box::pin(self.verdict(request))
    }
}

/// The refusal of a deletion that can't be checked.
fn unchecked(name: &str, error: &LookupError) -> Denial {
    tracing::warn!(error = error as &dyn Error, "rights not checked; deletion refused");
    let message = "Nudge could not find out whether you may delete its versions and guards; try again";
    Denial::unavailable(format!("VersionedConfig {name} can't be deleted, because {message}"))
}

fn is_about_config(request: &Request) -> Result<(), ReviewError> {
    let is_config = request.kind.group == "nudge.dev" && request.kind.kind == "VersionedConfig";
    if is_config { Ok(()) } else { Err(ReviewError::Request("it is not about a VersionedConfig")) }
}

fn object(object: Option<&DynamicObject>) -> Result<&DynamicObject, ReviewError> {
    object.ok_or(ReviewError::Request("it lacks the object that its operation needs"))
}

fn config(object: Option<&DynamicObject>) -> Result<VersionedConfig, ReviewError> {
    self::object(object)?.clone().try_parse().map_err(|_| ReviewError::Request("its object is not a VersionedConfig"))
}

#[cfg(test)]
mod tests {
    use nudge_api::PartStatus;
    use nudge_core::requester::Requesters;
    use serde_json::{Value, json};
    use tracing::instrument::WithSubscriber as _;

    use super::*;
    use crate::fixtures::{FakeLookups, Log, request, sealed};

    fn config(current: &str) -> Value {
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"current": current}, "status": {}
        })
    }

    async fn reviewed(lookups: FakeLookups, request: &Request) -> (Verdict, Vec<String>) {
        let lookups = Arc::new(lookups);
        let verdict = ValidateConfigs::new(Arc::clone(&lookups)).review(request).await.unwrap();
        let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
        (verdict, asked)
    }

    #[tokio::test]
    async fn the_user_of_the_request_is_noted() {
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let webhook = MutateConfigs::new(Arc::clone(&key));
        let reviewed = async |operation: &str, old: Option<&Value>, new: Option<&Value>| {
            webhook.review(&request("VersionedConfig", operation, old, new)).await.unwrap()
        };
        let Verdict::Allow { patch: Some(patch), warnings } =
            reviewed("UPDATE", Some(&config("1")), Some(&config("2"))).await
        else {
            panic!("no patch")
        };
        let mut stored = config("2");
        json_patch::patch(&mut stored, &patch).unwrap();
        let known = Requesters::of(&serde_json::from_value(stored.clone()).unwrap(), &key).current.unwrap();
        assert_eq!((known.user.as_str(), warnings.len()), ("eve", 0));
        let now = Timestamp::now().as_second();
        assert!((now - 60..=now).contains(&known.at.0.as_second()), "{known:?}");
        // What is read is written back as it is.
        assert_eq!(reviewed("UPDATE", Some(&stored), Some(&stored)).await, Verdict::allow());
        assert_eq!(reviewed("DELETE", Some(&stored), None).await, Verdict::allow());
        let mut odd = request("VersionedConfig", "UPDATE", Some(&stored), Some(&stored));
        odd.old_object = None;
        assert!(matches!(webhook.review(&odd).await, Err(WebhookError::Review(_))));
        let pod = request("Pod", "CREATE", None, Some(&stored));
        assert!(matches!(webhook.review(&pod).await, Err(WebhookError::Review(_))));
    }

    #[tokio::test]
    async fn a_change_needs_the_right_to_update_the_config_map() {
        let chosen = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&config("2")));
        let (verdict, asked) = reviewed(FakeLookups::default(), &chosen).await;
        let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            denial.message,
            "VersionedConfig shop: user \"eve\" may not change its spec, because it decides what ConfigMap shop holds; this needs the right \
             to update ConfigMap shop in namespace team"
        );
        assert_eq!(asked, ["may eve update ConfigMap shop in team"]);
        let allowed = || FakeLookups { may_update: true, ..FakeLookups::default() };
        let (verdict, _) = reviewed(allowed(), &chosen).await;
        assert!(matches!(verdict, Verdict::Allow { warnings, .. } if warnings.len() == 1));
        let same = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&config("1")));
        assert_eq!(reviewed(FakeLookups::default(), &same).await, (Verdict::allow(), Vec::new()));
        let mut bare = config("1");
        bare["spec"] = json!({});
        let made = request("VersionedConfig", "CREATE", None, Some(&bare));
        assert!(reviewed(FakeLookups::default(), &made).await.0.is_denied());
        assert_eq!(reviewed(allowed(), &made).await.0, Verdict::allow());
    }

    #[tokio::test]
    async fn who_may_not_import_neither_sets_nor_removes_the_annotation() {
        let mut importing = config("1");
        importing["metadata"]["annotations"] = json!({"nudge.dev/importing": ""});
        let may =
            |may_import| FakeLookups { may_update: true, may_override: true, may_import, ..FakeLookups::default() };
        for (operation, old, new) in [
            ("CREATE", None, &importing),
            ("UPDATE", Some(&config("1")), &importing),
            ("UPDATE", Some(&importing), &config("1")),
            ("UPDATE", Some(&importing), &config("2")),
        ] {
            let changed = request("VersionedConfig", operation, old, Some(new));
            let (verdict, asked) = reviewed(may(false), &changed).await;
            let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
            assert!(denial.message.contains("needs the right to import VersionedConfig shop"), "{}", denial.message);
            assert_eq!(asked, ["may eve import VersionedConfig shop in team"]);
            assert!(!reviewed(may(true), &changed).await.0.is_denied(), "{operation}");
        }
        let kept = request("VersionedConfig", "UPDATE", Some(&importing), Some(&importing));
        assert_eq!(reviewed(may(false), &kept).await, (Verdict::allow(), Vec::new()));
    }

    #[tokio::test]
    async fn an_analysis_sends_no_secret_that_the_user_may_not_get() {
        let with = |address: &str, interval: &str| {
            let prometheus =
                json!({"address": address, "query": "up{pod=~\"{{pods}}\"}", "authRef": {"name": "metrics"}});
            let mut config = config("1");
            config["spec"]["rollout"] =
                json!({"analysis": [{"name": "errors", "max": "1", "interval": interval, "prometheus": prometheus}]});
            config
        };
        let may = |may_read| FakeLookups { may_update: true, may_override: true, may_read, ..FakeLookups::default() };
        let one = with("http://prometheus:9090", "5s");
        for (old, new) in [(&config("1"), &one), (&one, &with("http://evil.example.com", "5s"))] {
            let changed = request("VersionedConfig", "UPDATE", Some(old), Some(new));
            let (verdict, asked) = reviewed(may(vec![]), &changed).await;
            let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
            assert!(denial.message.contains("needs the right to get Secret metrics"), "{}", denial.message);
            assert_eq!(asked.last().map(String::as_str), Some("may eve get Secret metrics in team"));
            assert!(!reviewed(may(vec!["metrics"]), &changed).await.0.is_denied());
        }
        // Who changes something else is not asked.
        let mut paused = one.clone();
        paused["spec"]["rollout"]["paused"] = json!(true);
        let changed = request("VersionedConfig", "UPDATE", Some(&one), Some(&paused));
        assert!(!reviewed(may(vec![]), &changed).await.0.is_denied());
        let odd = request("VersionedConfig", "UPDATE", Some(&one), Some(&with("http://prometheus:9090", "2h")));
        assert!(reviewed(may(vec!["metrics"]), &odd).await.0.is_denied());
    }

    #[tokio::test]
    async fn a_change_of_a_config_that_publishes_a_secret_needs_the_right_to_update_that_too() {
        let mut both = [config("1"), config("2")];
        for config in &mut both {
            config["spec"]["publish"] = json!(["ConfigMap", "Secret"]);
        }
        let may = |may_update_secret| FakeLookups { may_update: true, may_update_secret, ..FakeLookups::default() };
        for (old, new) in [(&both[0], &both[1]), (&config("1"), &both[0]), (&both[0], &config("1"))] {
            let change = request("VersionedConfig", "UPDATE", Some(old), Some(new));
            let (verdict, asked) = reviewed(may(false), &change).await;
            let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
            assert_eq!(
                denial.message,
                "VersionedConfig shop: user \"eve\" may not change its spec, because it decides what Secret shop holds; this needs the \
                 right to update Secret shop in namespace team"
            );
            assert_eq!(asked, ["may eve update ConfigMap shop in team", "may eve update Secret shop in team"]);
            assert!(!reviewed(may(true), &change).await.0.is_denied());
        }
    }

    #[tokio::test]
    async fn steps_that_no_pod_can_match_are_refused_whatever_the_user_may() {
        for name in ["shop", ""] {
            let mut made = config("1");
            made["metadata"]["name"] = json!(name);
            made["spec"]["rollout"] = json!({"steps": [{"pods": 1, "selector": {"matchLabels": {"a b": "c"}}}]});
            let made = request("VersionedConfig", "CREATE", None, Some(&made));
            let lookups = FakeLookups { may_update: true, ..FakeLookups::default() };
            let (verdict, asked) = reviewed(lookups, &made).await;
            assert!(verdict.is_denied() && asked.is_empty(), "{name}: {verdict:?}");
        }
    }

    #[tokio::test]
    async fn who_assigns_a_version_to_all_pods_at_once_and_why_is_in_the_audit_trail() {
        let now = |reason: &str| {
            let mut config = config("1");
            config["spec"]["rollout"]["override"] = json!({"version": "1", "reason": reason});
            config
        };
        for (old, new, lines) in [
            (config("1"), now("a key leaked"), 1),
            (now("a key leaked"), now("a key leaked"), 0),
            (now("a key leaked"), now("another"), 1),
            (now("a key leaked"), config("1"), 0),
        ] {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
            let change = request("VersionedConfig", "UPDATE", Some(&old), Some(&new));
            let lookups = FakeLookups { may_update: true, may_override: true, ..FakeLookups::default() };
            assert!(!reviewed(lookups, &change).with_subscriber(subscriber).await.0.is_denied());
            let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            let found = log.lines().filter(|line| line.contains("version chosen for all pods at once")).count();
            assert_eq!(found, lines, "{log}");
            assert!(
                lines == 0 || log.contains(new["spec"]["rollout"]["override"]["reason"].as_str().unwrap()),
                "{log}"
            );
        }
    }

    fn guarded(current: &str, rollout: Value) -> Value {
        let mut config = config(current);
        config["spec"]["rollout"] = rollout;
        config
    }

    #[tokio::test]
    async fn what_weakens_guards_needs_the_right_to_override_them() {
        let two = || json!({"approval": {"required": 2}});
        let at_once = json!({"override": {"version": "1", "reason": "a key leaked"}});
        let refused = |old: Option<&Value>, new: &Value| {
            let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
            let change = request("VersionedConfig", operation, old, Some(new));
            async move {
                let lookups = FakeLookups { may_update: true, ..FakeLookups::default() };
                let (verdict, asked) = reviewed(lookups, &change).await;
                let may = FakeLookups { may_update: true, may_override: true, ..FakeLookups::default() };
                let quiet = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
                assert!(!reviewed(may, &change).with_subscriber(quiet).await.0.is_denied());
                let asked = asked.iter().any(|question| question == "may eve override VersionedConfig shop in team");
                let Verdict::Deny(denial) = verdict else { return (None, asked) };
                (Some(denial.message), asked)
            }
        };
        // In the same patch that activates, and alone.
        for current in ["1", "2"] {
            let (denied, _) = refused(Some(&guarded("1", two())), &config(current)).await;
            assert_eq!(
                denied.unwrap(),
                "VersionedConfig shop: user \"eve\" may not change its spec, because that removes spec.rollout.approval; this needs the \
                 right to override VersionedConfig shop in namespace team"
            );
        }
        let (denied, _) = refused(None, &guarded("1", at_once.clone())).await;
        assert!(denied.unwrap().contains("may not set spec.rollout.override, because that version waits for no step,"));
        let mut both = two();
        both["override"] = at_once["override"].clone();
        let left = guarded("2", both.clone());
        for (old, new, is_denied) in [
            (config("1"), guarded("1", at_once.clone()), true),
            (left.clone(), guarded("1", both.clone()), true),
            (left.clone(), guarded("1", two()), false),
            (guarded("1", both.clone()), left.clone(), false),
            (config("1"), guarded("2", two()), false),
            (guarded("1", two()), guarded("2", two()), false),
        ] {
            let (denied, asked) = refused(Some(&old), &new).await;
            assert_eq!((denied.is_some(), asked), (is_denied, is_denied), "{old} {new}");
        }
    }

    #[tokio::test]
    async fn a_config_with_guards_is_deleted_by_who_may_override_them() {
        let mut object = guarded("1", json!({"approval": {}}));
        object["metadata"]["uid"] = json!("u");
        let deletion = request("VersionedConfig", "DELETE", Some(&object), None);
        let stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
        let lookups = || FakeLookups { config: Some(stored.clone()), ..FakeLookups::default() };
        let Verdict::Deny(denial) = reviewed(lookups(), &deletion).await.0 else { panic!("it passed") };
        assert_eq!(
            denial.message,
            "VersionedConfig shop: user \"eve\" may not delete it, because its guards are gone then (approval); this needs the right to \
             override VersionedConfig shop in namespace team"
        );
        let may = FakeLookups { may_override: true, ..lookups() };
        assert_eq!(reviewed(may, &deletion).await.0, Verdict::allow());
        let terminating = FakeLookups { terminating: true, ..lookups() };
        assert_eq!(reviewed(terminating, &deletion).await.0, Verdict::allow());
        let Verdict::Deny(denial) = reviewed(FakeLookups { reviews_fail: true, ..lookups() }, &deletion).await.0 else {
            panic!("it passed")
        };
        assert_eq!(denial.reason.code(), 503);
    }

    #[tokio::test]
    async fn what_deletes_versions_needs_the_right_to_delete_their_kinds() {
        let mut lower = config("1");
        lower["spec"]["historyLimit"] = json!(3);
        let lowered = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&lower));
        let may = |secrets, kinds: &[PartKind]| FakeLookups {
            may_update: true,
            may_delete: kinds.to_vec(),
            secrets,
            ..FakeLookups::default()
        };
        let (verdict, asked) = reviewed(may(false, &[]), &lowered).await;
        let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            denial.message,
            "VersionedConfig shop: user \"eve\" may not lower its historyLimit, because its versions are deleted by that; this needs the \
             right to delete ConfigMaps in namespace team"
        );
        assert_eq!(asked, ["may eve update ConfigMap shop in team", "may eve delete ConfigMaps in team"]);
        assert!(!reviewed(may(false, &[PartKind::ConfigMap]), &lowered).await.0.is_denied());
        assert!(reviewed(may(true, &[PartKind::ConfigMap]), &lowered).await.0.is_denied());
        assert!(!reviewed(may(true, &[PartKind::ConfigMap, PartKind::Secret]), &lowered).await.0.is_denied());
        // Nor can it be had by a config that is created.
        let made = request("VersionedConfig", "CREATE", None, Some(&lower));
        assert!(reviewed(may(false, &[]), &made).await.0.is_denied());
        let usual = request("VersionedConfig", "CREATE", None, Some(&config("1")));
        assert!(!reviewed(may(true, &[]), &usual).await.0.is_denied());
    }

    /// The deletion of the config with that uid, and the stored config whose versions have parts of these kinds.
    fn deletion(kinds: &[PartKind]) -> (Request, VersionedConfig) {
        let mut object = config("1");
        object["metadata"]["uid"] = json!("u");
        let mut stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
        let mut version = sealed("1", &["a", "b"]);
        version.parts =
            kinds.iter().zip(&version.parts).map(|(&kind, part)| PartStatus { kind, ..part.clone() }).collect();
        stored.status.get_or_insert_default().versions = vec![version];
        (request("VersionedConfig", "DELETE", Some(&object), None), stored)
    }

    #[tokio::test]
    async fn a_config_goes_only_with_what_the_user_may_delete() {
        use PartKind::{ConfigMap, Secret};
        let (deletion, stored) = deletion(&[ConfigMap, Secret]);
        let may = |kinds: &[PartKind]| FakeLookups {
            config: Some(stored.clone()),
            may_delete: kinds.to_vec(),
            ..FakeLookups::default()
        };
        let (verdict, asked) = reviewed(may(&[ConfigMap]), &deletion).await;
        let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            denial.message,
            "VersionedConfig shop: user \"eve\" may not delete it, because its versions are deleted by that; this needs the right to delete \
             Secrets in namespace team"
        );
        assert_eq!(
            asked,
            [
                "config team/shop",
                "subscribers team/shop",
                "may eve delete ConfigMaps in team",
                "may eve delete Secrets in team",
                "terminating team"
            ]
        );
        assert!(reviewed(may(&[Secret]), &deletion).await.0.is_denied());
        assert_eq!(reviewed(may(&[ConfigMap, Secret]), &deletion).await.0, Verdict::allow());
        // With its namespace it goes, and Nudge deletes nothing.
        let terminating = FakeLookups { terminating: true, ..may(&[]) };
        assert_eq!(reviewed(terminating, &deletion).await.0, Verdict::allow());
        // What can't be found out is refused: Ignore would let it pass.
        let away = FakeLookups { reviews_fail: true, ..may(&[ConfigMap, Secret]) };
        let Verdict::Deny(denial) = reviewed(away, &deletion).await.0 else { panic!("it passed") };
        assert_eq!(denial.reason.code(), 503);
        let down = FakeLookups { fails: true, ..may(&[ConfigMap, Secret]) };
        let Verdict::Deny(denial) = reviewed(down, &deletion).await.0 else { panic!("it passed") };
        assert_eq!(denial.reason.code(), 503);
        let often = Arc::new(FakeLookups { too_many: true, ..may(&[]) });
        let error = ValidateConfigs::new(often).review(&deletion).await.unwrap_err();
        assert!(matches!(error, WebhookError::Lookup(LookupError::TooMany { .. })));
    }

    #[tokio::test]
    async fn a_deletion_under_way_and_one_of_the_namespace_controller_pass() {
        let (mut deletion, mut stored) = deletion(&[PartKind::Secret]);
        stored.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let there = || FakeLookups { config: Some(stored.clone()), ..FakeLookups::default() };
        assert_eq!(reviewed(there(), &deletion).await.0, Verdict::allow());
        stored.metadata.deletion_timestamp = None;
        let there = FakeLookups { config: Some(stored.clone()), ..FakeLookups::default() };
        deletion.user_info.username = Some("system:serviceaccount:kube-system:namespace-controller".into());
        assert_eq!(reviewed(there, &deletion).await, (Verdict::allow(), Vec::new()));
    }

    #[tokio::test]
    async fn a_config_with_pods_stays_unless_its_namespace_is_terminating() {
        let mut object = config("1");
        object["metadata"]["uid"] = json!("u");
        let deletion = request("VersionedConfig", "DELETE", Some(&object), None);
        let stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
        let there = |subscribers| FakeLookups { config: Some(stored.clone()), subscribers, ..FakeLookups::default() };
        assert!(reviewed(there(1), &deletion).await.0.is_denied());
        let terminating = FakeLookups { terminating: true, ..there(1) };
        assert_eq!(reviewed(terminating, &deletion).await.0, Verdict::allow());
        assert_eq!(reviewed(there(0), &deletion).await.0, Verdict::allow());
        for uid in [Value::Null, json!(""), json!("v")] {
            object["metadata"]["uid"] = uid;
            let guess = request("VersionedConfig", "DELETE", Some(&object), None);
            assert_eq!(reviewed(there(1), &guess).await, reviewed(FakeLookups::default(), &guess).await);
        }
    }
}
