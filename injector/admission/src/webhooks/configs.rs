//! The webhooks of `VersionedConfig`s.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use futures::future::{BoxFuture, join, try_join, try_join_all, try_join5};
use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::{Analysis, PartKind, ValidationRule, VersionedConfig, VersionedConfigSpec};
use nudge_core::config::config_faults;
use nudge_core::derived_keys::NoteKey;

use super::unattended;
use super::webhook::{Webhook, WebhookError};
use crate::configs::Weakening;
use crate::faults::refuse_new;
use crate::lookups::{AttendedKind, LookupError, Lookups, Right};
use crate::review::{Request, ReviewError};
use crate::system_users::empties_namespace;
use crate::validation_rules::{self as validation, Judge};
use crate::verdict::{Denial, Verdict};
use crate::{audit, configs};

/// Notes who asks for versions, and marks configs that have guards.
#[derive(Clone, Debug)]
pub(crate) struct MutateConfigs {
    key: Arc<NoteKey>,
}

impl MutateConfigs {
    /// A webhook that signs with `key`.
    pub(crate) fn new(key: Arc<NoteKey>) -> Self {
        Self { key }
    }

    fn verdict(&self, request: &Request) -> Result<Verdict, WebhookError> {
        let old = match request.operation {
            Operation::Create => None,
            Operation::Update => Some(object(request.old_object.as_ref())?),
            Operation::Delete | Operation::Connect => return Ok(Verdict::allow()),
        };
        check_kind(request)?;
        let new = object(request.object.as_ref())?;
        let name = new.metadata.name.as_deref().unwrap_or(&request.name);
        let asks = (request.user(), Timestamp::now());
        let mut changes = configs::note_requester((old, new), (request.required_namespace()?, name), asks, &self.key);
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
pub(crate) struct ValidateConfigs<L> {
    lookups: Arc<L>,
    judge: Judge,
}

impl<L: Lookups> ValidateConfigs<L> {
    /// A webhook that uses `lookups`.
    pub(crate) fn new(lookups: Arc<L>) -> Self {
        Self { lookups, judge: Judge::default() }
    }

    async fn verdict(&self, request: &Request) -> Result<Verdict, WebhookError> {
        check_kind(request)?;
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
        let faults = |spec: &VersionedConfigSpec| config_faults(name, spec, Timestamp::now());
        let stored = old_spec.map(faults).unwrap_or_default();
        if let Err(denial) = refuse_new(&format!("VersionedConfig {name}"), &stored, &faults(&new.spec)) {
            return Ok(Verdict::Deny(denial));
        }
        let namespace = request.required_namespace()?;
        if let Some(denial) = self.check_import(request, (namespace, name), (old_object, object)).await? {
            return Ok(Verdict::Deny(denial));
        }
        let mut what = configs::needs(old_object, object);
        if what.is_none() {
            let stored = self.lookups.config(namespace, name).await?;
            // A change of one that is not stored any more conflicts.
            let version = |meta: &ObjectMeta| meta.resource_version.clone();
            let is_old = |stored: &VersionedConfig| {
                old_object.map(|old| version(&old.metadata)) == Some(version(&stored.metadata))
            };
            what = stored.filter(is_old).and_then(|stored| configs::hands_over(&stored.metadata, object));
        }
        let Some(what) = what else { return Ok(Verdict::allow()) };
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
            self.check_deletion(request, namespace, name, what, &kinds).await
        };
        let weakening = configs::weakening(old_spec, &new.spec, Timestamp::now());
        let weakens = self.check_weakening(request, namespace, name, weakening.as_ref());
        let (analyses, rules) =
            (configs::new_analyses(old_spec, &new.spec), validation::new_rules(old_spec, &new.spec));
        let sends = self.check_credentials(request, namespace, name, analyses.unwrap_or_default());
        let reads = self.check_rule_references(request, namespace, name, rules);
        let unattended = async {
            if analyses.is_some_and(|analyses| !analyses.is_empty()) {
                unattended::warning(&*self.lookups, request, namespace, AttendedKind::Analyses).await
            } else {
                None
            }
        };
        let denials = try_join5(publishes, deletes, weakens, sends, reads);
        // Each may take half of the time that the webhook has.
        let (denials, unattended) = join(denials, unattended).await;
        let (publishes, deletes, weakens, sends, reads) = denials?;
        if let Some(denial) = publishes.or(deletes).or(weakens).or(sends).or(reads) {
            return Ok(Verdict::Deny(denial));
        }
        let mut warnings = match rules {
            Some(rules) => match self.judge.check_rules(&*self.lookups, request, (namespace, name), rules).await? {
                Ok(warnings) => warnings,
                Err(denial) => return Ok(Verdict::Deny(denial)),
            },
            None => Vec::new(),
        };
        warnings.extend(unattended.map(|why| format!("VersionedConfig {name}: {why}")));
        if let Some(weakening) = &weakening {
            audit::overridden(request, name, weakening.what(), weakening.because());
        }
        if let Some(now) = configs::at_once(old_spec, &new.spec) {
            audit::at_once(request, name, now);
        }
        let Some(chosen) = configs::chosen_version(old_spec, &new.spec) else {
            return Ok(Verdict::warn(warnings, None));
        };
        audit::activated(request, name, old_spec.and_then(|spec| spec.version.as_deref()), chosen);
        // Only the stored object has a status.
        let status = old.as_ref().and_then(|old| old.status.as_ref());
        let waits = configs::waits(&new, status, &self.lookups.policies(namespace), Timestamp::now());
        Ok(Verdict::warn(warnings.into_iter().chain(configs::not_complete(&new, status)).chain(waits), None))
    }

    /// The denial for a user who may not import the config, where the request is about that.
    async fn check_import(
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

    /// The denial for a user who may not read what rules are about, where the request sets some.
    async fn check_rule_references(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
        rules: Option<&[ValidationRule]>,
    ) -> Result<Option<Denial>, LookupError> {
        if rules.is_none() {
            return Ok(None);
        }
        let asked = validation::rights(self.lookups.may_have_secrets(namespace)).map(async |right| {
            if self.lookups.may(request, namespace, right).await? {
                return Ok(None);
            }
            audit::refused(request, name, "change its spec.validation", right);
            Ok(Some(validation::may_not_get(request.user(), namespace, name, right)))
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().next())
    }

    /// The denial where an analysis would send a Secret that the user may not get.
    async fn check_credentials(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
        analyses: &[Analysis],
    ) -> Result<Option<Denial>, LookupError> {
        let asked = configs::secrets(analyses).into_iter().map(async |secret| {
            let right = Right::Get(PartKind::Secret, secret);
            if self.lookups.may(request, namespace, right).await? {
                return Ok(None);
            }
            audit::refused(request, name, "change its spec.rollout.analysis", right);
            Ok(Some(configs::may_not_send(request.user(), namespace, name, secret)))
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().next())
    }

    async fn delete(&self, request: &Request) -> Result<Verdict, WebhookError> {
        if empties_namespace(&request.user_info) {
            return Ok(Verdict::allow());
        }
        let old = config(request.old_object.as_ref())?;
        let namespace = request.required_namespace()?;
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
                let mut kinds = configs::kinds(&stored);
                kinds.extend(self.lookups.part_kinds(namespace, name));
                let versions = self.check_deletion(request, namespace, name, "delete it", &kinds);
                let guards = self.check_weakening(request, namespace, name, weakening.as_ref());
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
    async fn check_weakening(
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
    async fn check_deletion(
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

fn check_kind(request: &Request) -> Result<(), ReviewError> {
    let is_config = request.kind.group == "nudge.dev" && request.kind.kind == "VersionedConfig";
    if is_config { Ok(()) } else { Err(ReviewError::Request("it is not about a VersionedConfig")) }
}

fn object(object: Option<&DynamicObject>) -> Result<&DynamicObject, ReviewError> {
    object.ok_or(ReviewError::Request("it lacks the object that its operation needs"))
}

fn config(object: Option<&DynamicObject>) -> Result<VersionedConfig, ReviewError> {
    self::object(object)?.clone().try_parse().map_err(|_| ReviewError::Request("its object is not a VersionedConfig"))
}
