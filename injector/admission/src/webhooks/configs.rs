//! The webhooks of `VersionedConfig`s.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join;
use k8s_openapi::jiff::Timestamp;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::{PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_core::config::config_faults;
use nudge_core::derived_keys::NoteKey;
use nudge_core::requester::Requester;
use nudge_protocol::labels;

use super::unattended;
use super::webhook::{Webhook, WebhookError};
use crate::faults::check_faults;
use crate::lookups::{AttendedKind, LookupError, Lookups};
use crate::needed_right::{NeededRight, find_denial};
use crate::review::{ReviewRequest, parse_object};
use crate::system_users::empties_namespace;
use crate::validation_rules::{Judge, new_rules, rule_rights};
use crate::verdict::{AdmissionVerdict, Denial, UndecidedDeletions};
use crate::{audit, configs};

/// The webhook that notes the requesters of versions, and marks configs with guards.
#[derive(Clone, Debug)]
pub(crate) struct MutateConfigs {
    pub(crate) key: Arc<NoteKey>,
}

#[async_trait]
impl Webhook for MutateConfigs {
    fn path(&self) -> &'static str {
        "/mutate/configs"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let old = match request.operation {
            Operation::Create => None,
            Operation::Update => Some(request.required_old_object()?),
            Operation::Delete | Operation::Connect => return Ok(AdmissionVerdict::allow()),
        };
        request.check_kind::<VersionedConfig>()?;
        let new = request.required_object()?;
        let (namespace, requester) = (request.required_namespace()?, Requester::new(request.user(), Timestamp::now()));
        let mut operations = configs::note_requester(old, new, namespace, request.object_name(), &requester, &self.key);
        operations.extend(configs::mark_guarded(new));
        Ok(AdmissionVerdict::patch(operations))
    }
}

/// The webhook that checks requests about configs.
#[derive(Clone, Debug)]
pub(crate) struct ValidateConfigs<L> {
    lookups: Arc<L>,
    judge: Judge,
}

impl<L: Lookups> ValidateConfigs<L> {
    /// Creates a webhook that uses `lookups`.
    pub(crate) fn new(lookups: Arc<L>) -> Self {
        Self { lookups, judge: Judge::default() }
    }

    async fn change(
        &self,
        request: &ReviewRequest,
        old: Option<VersionedConfig>,
    ) -> Result<AdmissionVerdict, WebhookError> {
        let (object, old_object) = (request.required_object()?, old.as_ref().and(request.old_object.as_ref()));
        let new: VersionedConfig = parse_object(object)?;
        let old_spec = old.as_ref().map(|old| &old.spec);
        let (namespace, name) = (request.required_namespace()?, request.object_name());
        let faults = |spec: &VersionedConfigSpec| config_faults(name, spec, Timestamp::now());
        let stored_faults = old_spec.map(faults).unwrap_or_default();
        if let Err(denial) = check_faults(&format!("VersionedConfig {name}"), &stored_faults, &faults(&new.spec)) {
            return Ok(AdmissionVerdict::Deny(denial));
        }
        if let Some(action) = configs::import_change(old_object, object) {
            let needed = configs::import_right(name, action);
            if let Some(denial) = find_denial(&*self.lookups, request, (namespace, name), [needed]).await? {
                return Ok(AdmissionVerdict::Deny(denial));
            }
        }
        let Some(action) = self.find_action(namespace, name, old_object, object).await? else {
            return Ok(AdmissionVerdict::allow());
        };
        let mut needed: Vec<_> = configs::publishing_rights(old_spec, &new.spec, name, action).collect();
        let secret_kind = self.lookups.index().may_have_secrets(namespace).then_some(PartKind::Secret);
        let kinds = [PartKind::ConfigMap].into_iter().chain(secret_kind);
        if let Some(action) = configs::deleting_change(old_object, object) {
            let sealed_kinds = old.as_ref().map(configs::part_kinds).unwrap_or_default();
            needed.extend(configs::deletion_rights(sealed_kinds.into_iter().chain(kinds.clone()).collect(), action));
        }
        let weakening = configs::weakening(old_spec, &new.spec, name, Timestamp::now());
        needed.extend(weakening.clone());
        let analyses = configs::new_analyses(old_spec, &new.spec).unwrap_or_default();
        needed.extend(configs::credential_rights(analyses));
        let rules = new_rules(old_spec, &new.spec);
        needed.extend(rules.into_iter().flat_map(|_| rule_rights(kinds.clone())));
        let unattended = async {
            if analyses.is_empty() {
                return None;
            }
            unattended::warning(&*self.lookups, request, namespace, AttendedKind::Analyses).await
        };
        // Each may take half of the time that the webhook has.
        let denial = find_denial(&*self.lookups, request, (namespace, name), needed);
        let (denial, unattended) = join(denial, unattended).await;
        if let Some(denial) = denial? {
            return Ok(AdmissionVerdict::Deny(denial));
        }
        let mut warnings = match rules {
            Some(rules) => match self.judge.check_rules(&*self.lookups, request, (namespace, name), rules).await? {
                Ok(warnings) => warnings,
                Err(denial) => return Ok(AdmissionVerdict::Deny(denial)),
            },
            None => Vec::new(),
        };
        warnings.extend(unattended.map(|cause| format!("VersionedConfig {name}: {cause}")));
        if let Some(NeededRight { action, because, .. }) = &weakening {
            audit::guards_overridden(request, name, action, because);
        }
        if let Some(overridden) = configs::new_override(old_spec, &new.spec) {
            audit::override_set(request, name, overridden);
        }
        if !configs::chooses_version(old_spec, &new.spec) {
            return Ok(AdmissionVerdict::warn(warnings));
        }
        let stored_version = old_spec.and_then(|spec| spec.version.as_deref());
        audit::version_chosen(request, name, stored_version, new.spec.version.as_deref());
        // Only the stored object has a status.
        let status = old.as_ref().and_then(|old| old.status.as_ref());
        warnings.extend(configs::incomplete_version(&new, status));
        let policies = self.lookups.index().policies(namespace);
        warnings.extend(configs::waiting_version(&new, status, &policies, Timestamp::now()));
        Ok(AdmissionVerdict::warn(warnings))
    }

    /// Returns the change that decides about the published content; `None` if there is no such change.
    async fn find_action(
        &self,
        namespace: &str,
        name: &str,
        old: Option<&DynamicObject>,
        new: &DynamicObject,
    ) -> Result<Option<&'static str>, LookupError> {
        let action = configs::content_change(old, new);
        if action.is_some() {
            return Ok(action);
        }
        let Some(stored) = self.lookups.config(namespace, name).await? else { return Ok(None) };
        // A change of an object that is not stored any more conflicts.
        let is_old = old.is_some_and(|old| old.metadata.resource_version == stored.metadata.resource_version);
        Ok(configs::setter_change(&stored.metadata, new).filter(|_| is_old))
    }

    async fn delete(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        if empties_namespace(&request.user_info) {
            return Ok(AdmissionVerdict::allow());
        }
        let old: VersionedConfig = parse_object(request.required_old_object()?)?;
        let namespace = request.required_namespace()?;
        let name = old.metadata.name.as_deref().unwrap_or(&request.name);
        // A client that knows the uid has read the config. No other client learns from the answer whether the config
        // exists and who uses it.
        let uid = old.metadata.uid.as_ref().filter(|uid| !uid.is_empty());
        let stored = match self.lookups.config(namespace, name).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(AdmissionVerdict::allow()),
            // A failure would let the deletion pass.
            Err(error) if uid.is_some() => return Ok(AdmissionVerdict::Deny(deny_unchecked(name, &error))),
            Err(error) => return Err(error.into()),
        };
        // The deletion of a terminating config has been allowed already.
        if uid.is_none() || stored.metadata.uid.as_ref() != uid || stored.metadata.deletion_timestamp.is_some() {
            return Ok(AdmissionVerdict::allow());
        }
        let index = self.lookups.index();
        let denial = match configs::check_deletion(&old, index.subscribers(namespace, name)) {
            Ok(()) => {
                let mut kinds = configs::part_kinds(&stored);
                kinds.extend(index.part_kinds(namespace, name));
                let needed = configs::deletion_rights(kinds, "delete it").chain(configs::removed_guards(&stored, name));
                match find_denial(&*self.lookups, request, (namespace, name), needed).await {
                    Ok(denial) => denial,
                    Err(error @ LookupError::TooMany { .. }) => return Err(error.into()),
                    // A failure would let the deletion pass, and Nudge would delete the versions.
                    Err(error) => Some(deny_unchecked(name, &error)),
                }
            }
            Err(denial) => Some(denial),
        };
        let Some(denial) = denial else {
            let label = index.namespace_label(namespace, labels::BASELINE);
            return Ok(AdmissionVerdict::warn(configs::return_warning(&stored, label.as_deref())));
        };
        // With the namespace its objects go all the same, and Nudge deletes none.
        if matches!(self.lookups.is_terminating(namespace).await, Ok(true)) {
            return Ok(AdmissionVerdict::allow());
        }
        Ok(AdmissionVerdict::Deny(denial))
    }
}

#[async_trait]
impl<L: Lookups> Webhook for ValidateConfigs<L> {
    fn path(&self) -> &'static str {
        "/validate/configs"
    }

    /// Denies them, because Nudge deletes the versions of a config with it.
    fn undecided_deletions(&self) -> UndecidedDeletions {
        UndecidedDeletions::Deny
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<VersionedConfig>()?;
        match request.operation {
            Operation::Create => self.change(request, None).await,
            Operation::Update => self.change(request, Some(parse_object(request.required_old_object()?)?)).await,
            Operation::Delete => self.delete(request).await,
            Operation::Connect => Ok(AdmissionVerdict::allow()),
        }
    }
}

/// Returns the denial of a deletion that can't be checked.
fn deny_unchecked(name: &str, error: &LookupError) -> Denial {
    tracing::warn!(error = error as &dyn Error, "rights not checked; deletion refused");
    let message = "Nudge could not find out whether you may delete its versions and guards; try again";
    Denial::unavailable(format!("VersionedConfig {name} can't be deleted, because {message}"))
}
