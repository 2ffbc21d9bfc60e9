//! The webhooks of `VersionApproval`s. The approver is the user who creates the approval, and must have the right to
//! approve. The approval does not change. Only its approver, or a user who may override the config, withdraws it.

use std::sync::Arc;

use async_trait::async_trait;
use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::{VersionApproval, VersionApprovalSpec};
use nudge_core::derived_keys::NoteKey;
use nudge_core::governance::{
    PastDecision, TooManyDecisions, approval_faults, check_decision_count, sign_approver_groups,
};
use nudge_protocol::labels::APPROVER_GROUPS;
use serde_json::json;

use super::webhook::{Webhook, WebhookError};
use crate::audit;
use crate::faults::check_faults;
use crate::lookups::{Lookups, Right};
use crate::patch::{add, set_annotations};
use crate::review::{ReviewRequest, parse_object};
use crate::system_users::{collects_garbage, empties_namespace};
use crate::verdict::{AdmissionVerdict, Denial};

/// The webhook that writes the approver into an approval, with that user's groups.
#[derive(Clone, Debug)]
pub(crate) struct MutateApprovals {
    pub(crate) key: Arc<NoteKey>,
}

impl MutateApprovals {
    fn create(&self, request: &ReviewRequest) -> Result<Vec<PatchOperation>, WebhookError> {
        let new = request.required_object()?;
        let user = request.user_info.username.as_deref().unwrap_or_default();
        let mut spec = new.data["spec"].clone();
        let mut changes = Vec::new();
        if spec.is_object() && spec["approver"].as_str().unwrap_or_default().is_empty() {
            spec["approver"] = json!(user);
            changes.push(add(&["spec", "approver"], json!(user)));
        }
        // An object that is not an approval is refused by the schema afterwards.
        let note = serde_json::from_value::<VersionApprovalSpec>(spec).ok().and_then(|spec| {
            let groups = request.user_info.groups.as_deref().unwrap_or_default();
            sign_approver_groups(&self.key, request.namespace.as_deref()?, &spec, groups, Timestamp::now())
        });
        changes.extend(set_note(new, note));
        Ok(changes)
    }
}

#[async_trait]
impl Webhook for MutateApprovals {
    fn path(&self) -> &'static str {
        "/mutate/approvals"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<VersionApproval>()?;
        Ok(AdmissionVerdict::patch(match request.operation {
            Operation::Create => self.create(request)?,
            Operation::Update => {
                let note = request.required_old_object()?.annotations().get(APPROVER_GROUPS);
                set_note(request.required_object()?, note.cloned())
            }
            Operation::Delete | Operation::Connect => Vec::new(),
        }))
    }
}

/// Returns the operations that set the note of the approver's groups, or remove it.
fn set_note(object: &DynamicObject, note: Option<String>) -> Vec<PatchOperation> {
    set_annotations(object.metadata.annotations.as_ref(), [(APPROVER_GROUPS, note)])
}

/// The webhook that checks requests about approvals.
#[derive(Clone, Debug)]
pub(crate) struct ValidateApprovals<L> {
    pub(crate) lookups: Arc<L>,
}

impl<L: Lookups> ValidateApprovals<L> {
    async fn create(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let new = request.required_object()?;
        let approval: VersionApproval = parse_object(new)?;
        let VersionApprovalSpec { config_name: config, version, decision, approver, reason, .. } = &approval.spec;
        let (title, namespace) = (title(request), request.required_namespace()?);
        if let Err(denial) = check_faults(&title, &[], &approval_faults(&approval.spec)) {
            return Ok(AdmissionVerdict::Deny(denial));
        }
        let user = request.user_info.username.as_deref().unwrap_or_default();
        if user != approver {
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
                "{title}: spec.approver is {approver:?}, and you are {:?}; leave it out, and Nudge fills it in",
                request.user()
            ))));
        }
        if !new.annotations().contains_key(APPROVER_GROUPS) {
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
                "{title}: user {:?} has too many groups for Nudge to keep, so the approval could not count; decide as a user with fewer groups",
                request.user()
            ))));
        }
        let right = Right::Approve(config);
        if !self.lookups.may(request, namespace, right).await? {
            audit::right_refused(request, config, "approve or deny a version", right);
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
                "{title}: user {:?} may not approve or deny versions of config {config}; this needs the right to {right} in namespace \
                 {namespace}",
                request.user()
            ))));
        }
        // A dry run stores nothing: kubectl nudge withdraws older decisions after a dry run.
        if !request.dry_run
            && let Err(full) = self.check_room(namespace, config, user)
        {
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!("{title}: {full}"))));
        }
        audit::approval_decided(request, config, version, decision.as_str(), reason);
        Ok(AdmissionVerdict::allow())
    }

    /// Checks that the user may decide once more about versions of the config.
    fn check_room(&self, namespace: &str, config: &str, user: &str) -> Result<(), TooManyDecisions> {
        let approvals = self.lookups.index().approvals(namespace, config);
        let made = approvals.iter().map(|approval| PastDecision {
            at: approval.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            name: approval.metadata.name.as_deref().unwrap_or_default(),
            user: &approval.spec.approver,
        });
        check_decision_count(config, user, &made.collect::<Vec<_>>())
    }

    /// Denies a change of the decision, and a new owner whose deletion would delete the approval.
    fn update(request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let (old, new) = (request.required_old_object()?, request.required_object()?);
        parse_object::<VersionApproval>(old)?;
        let approval_title = title(request);
        if old.data.get("spec") != new.data.get("spec") {
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
                "{approval_title}: its spec can't be changed; withdraw it (kubectl nudge approve or deny with --undo), and decide again"
            ))));
        }
        if new.owner_references().iter().any(|owner| !old.owner_references().contains(owner)) {
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
                "{approval_title}: it must not have an owner, because it would be deleted with its owner; remove metadata.ownerReferences"
            ))));
        }
        Ok(AdmissionVerdict::allow())
    }

    async fn delete(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        let old = request.required_old_object()?;
        let user = request.user_info.username.as_deref().unwrap_or_default();
        // Only the approver gives it an owner whose deletion deletes it.
        if empties_namespace(&request.user_info) || collects_garbage(&request.user_info) {
            return Ok(AdmissionVerdict::allow());
        }
        let approval: VersionApproval = parse_object(old)?;
        let VersionApprovalSpec { config_name: config, version, decision, approver, .. } = &approval.spec;
        let namespace = request.required_namespace()?;
        let right = Right::Override(config);
        if user == approver || self.lookups.may(request, namespace, right).await? {
            audit::approval_withdrawn(request, config, version, decision.as_str(), approver);
            return Ok(AdmissionVerdict::allow());
        }
        if matches!(self.lookups.is_terminating(namespace).await, Ok(true)) {
            return Ok(AdmissionVerdict::allow());
        }
        audit::right_refused(request, config, "withdraw what another user has decided", right);
        Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
            "{}: user {:?} may not withdraw what user {approver:?} has decided; this needs the right to {right} in namespace {namespace}",
            title(request),
            request.user()
        ))))
    }
}

#[async_trait]
impl<L: Lookups> Webhook for ValidateApprovals<L> {
    fn path(&self) -> &'static str {
        "/validate/approvals"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<VersionApproval>()?;
        match request.operation {
            Operation::Create => self.create(request).await,
            Operation::Update => Self::update(request),
            Operation::Delete => self.delete(request).await,
            Operation::Connect => Ok(AdmissionVerdict::allow()),
        }
    }
}

fn title(request: &ReviewRequest) -> String {
    format!("VersionApproval {}", request.object_name())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nudge_core::governance::read_approver_groups;

    use serde_json::Value;

    use super::*;
    use crate::fixtures::{FakeLookups, request};

    fn approval(approver: Option<&str>) -> Value {
        let mut spec = json!({
            "configName": "shop", "version": "2", "digest": format!("sha256:{}", "0".repeat(48)), "decision": "Approve", "reason": "read it"
        });
        if let Some(approver) = approver {
            spec["approver"] = json!(approver);
        }
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": {"name": "one", "namespace": "team"}, "spec": spec})
    }

    fn key() -> Arc<NoteKey> {
        Arc::new(NoteKey::new(b"key"))
    }

    /// The object as it is stored if the request passes.
    async fn mutated(operation: &str, old: Option<&Value>, new: &Value) -> Value {
        let verdict = MutateApprovals { key: key() }
            .review(&request("VersionApproval", operation, old, Some(new)))
            .await
            .unwrap();
        let AdmissionVerdict::Allow { patch, .. } = verdict else { panic!("{verdict:?}") };
        let mut stored = new.clone();
        json_patch::patch(&mut stored, &patch.unwrap_or_default()).unwrap();
        stored
    }

    async fn reviewed(
        lookups: FakeLookups,
        operation: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Option<String> {
        let request = request("VersionApproval", operation, old, new);
        match (ValidateApprovals { lookups: Arc::new(lookups) }).review(&request).await.unwrap() {
            AdmissionVerdict::Deny(denial) => Some(denial.message),
            AdmissionVerdict::Allow { .. } => None,
        }
    }

    fn groups(stored: &Value) -> Option<Vec<String>> {
        let mut approval: VersionApproval = serde_json::from_value(stored.clone()).unwrap();
        // The API server sets it afterwards.
        approval.metadata.creation_timestamp = Some(Time(Timestamp::now()));
        read_approver_groups(&key(), &approval)
    }

    fn may() -> FakeLookups {
        FakeLookups { may_approve: true, ..FakeLookups::default() }
    }

    #[tokio::test]
    async fn an_approval_is_by_the_user_who_creates_it() {
        for approver in [None, Some(""), Some("eve")] {
            let stored = mutated("CREATE", None, &approval(approver)).await;
            assert_eq!((&stored["spec"]["approver"], groups(&stored)), (&json!("eve"), Some(vec!["devs".to_owned()])));
            assert_eq!(reviewed(may(), "CREATE", None, Some(&stored)).await, None);
            let denied = reviewed(FakeLookups::default(), "CREATE", None, Some(&stored)).await;
            assert_eq!(
                denied.unwrap(),
                "VersionApproval one: user \"eve\" may not approve or deny versions of config shop; this needs the right to approve \
                 versions of VersionedConfig shop in namespace team"
            );
        }
        let stored = mutated("CREATE", None, &approval(Some("bob"))).await;
        let denied = reviewed(may(), "CREATE", None, Some(&stored)).await.unwrap();
        assert!(denied.starts_with("VersionApproval one: spec.approver is \"bob\", and you are \"eve\";"), "{denied}");
        // A note that came with the request is replaced.
        let mut forged = approval(None);
        forged["metadata"]["annotations"] = json!({APPROVER_GROUPS: "x [\"system:masters\"]", "note": "b"});
        let stored = mutated("CREATE", None, &forged).await;
        assert_eq!(
            (groups(&stored).unwrap(), &stored["metadata"]["annotations"]["note"]),
            (vec!["devs".to_owned()], &json!("b"))
        );
        // A note that can't be stored would not count.
        assert!(
            reviewed(may(), "CREATE", None, Some(&approval(Some("eve"))))
                .await
                .unwrap()
                .contains("too many groups for Nudge to keep")
        );
        for odd in [json!(null), json!(1), json!({"decision": "Perhaps"})] {
            let mut object = forged.clone();
            object["spec"] = odd;
            assert_eq!(mutated("CREATE", None, &object).await["metadata"]["annotations"], json!({"note": "b"}));
        }
    }

    #[tokio::test]
    async fn one_user_does_not_fill_the_namespace() {
        let stored = mutated("CREATE", None, &approval(None)).await;
        let made = |number: usize, config: &str| {
            let mut one: VersionApproval = serde_json::from_value(stored.clone()).unwrap();
            (one.metadata.name, one.spec.config_name) = (Some(format!("one-{number:02}")), config.to_owned());
            one
        };
        let full = |config: &str| FakeLookups { approvals: (0..16).map(|at| made(at, config)).collect(), ..may() };
        let denied = reviewed(full("shop"), "CREATE", None, Some(&stored)).await.unwrap();
        let begins = "VersionApproval one: you have 16 VersionApprovals of config shop,";
        assert!(denied.starts_with(begins) && denied.contains("kubectl delete versionapproval one-00"), "{denied}");
        assert_eq!(reviewed(full("game"), "CREATE", None, Some(&stored)).await, None, "of another config");
        let mut tried = request("VersionApproval", "CREATE", None, Some(&stored));
        tried.dry_run = true;
        let verdict = ValidateApprovals { lookups: Arc::new(full("shop")) }.review(&tried).await.unwrap();
        assert!(matches!(verdict, AdmissionVerdict::Allow { .. }), "it stores nothing");
    }

    #[tokio::test]
    async fn it_does_not_change() {
        let stored = mutated("CREATE", None, &approval(None)).await;
        for (field, value) in [("decision", "Deny"), ("version", "3"), ("approver", "bob"), ("reason", "another")] {
            let mut other = stored.clone();
            other["spec"][field] = json!(value);
            assert!(
                reviewed(may(), "UPDATE", Some(&stored), Some(&other)).await.unwrap().contains("spec can't be changed")
            );
        }
        let mut owned = stored.clone();
        owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "gone"}]);
        assert!(
            reviewed(may(), "UPDATE", Some(&stored), Some(&owned)).await.unwrap().contains("must not have an owner")
        );
        assert_eq!(reviewed(may(), "UPDATE", Some(&owned), Some(&stored)).await, None);
        let mut noted = stored.clone();
        noted["metadata"]["annotations"] = json!({"note": "b", APPROVER_GROUPS: "forged"});
        assert_eq!(reviewed(may(), "UPDATE", Some(&stored), Some(&noted)).await, None);
        let after = mutated("UPDATE", Some(&stored), &noted).await;
        assert_eq!((groups(&after), &after["metadata"]["annotations"]["note"]), (groups(&stored), &json!("b")));
        noted["metadata"]["annotations"] = Value::Null;
        assert_eq!(groups(&mutated("UPDATE", Some(&stored), &noted).await), groups(&stored));
    }

    #[tokio::test]
    async fn it_is_withdrawn_by_its_approver_or_who_may_override() {
        let by = async |user: &str, lookups: FakeLookups| {
            reviewed(lookups, "DELETE", Some(&approval(Some(user))), None).await
        };
        assert_eq!(by("eve", FakeLookups::default()).await, None, "also without the right to approve");
        let denied = by("bob", may()).await.unwrap();
        assert_eq!(
            denied,
            "VersionApproval one: user \"eve\" may not withdraw what user \"bob\" has decided; this needs the right to override \
             VersionedConfig shop in namespace team"
        );
        assert_eq!(by("bob", FakeLookups { may_override: true, ..FakeLookups::default() }).await, None);
        assert_eq!(by("bob", FakeLookups { terminating: true, ..FakeLookups::default() }).await, None);
        for user in ["namespace-controller", "generic-garbage-collector"] {
            let mut request = request("VersionApproval", "DELETE", Some(&approval(Some("bob"))), None);
            request.user_info.username = Some(format!("system:serviceaccount:kube-system:{user}"));
            let verdict =
                ValidateApprovals { lookups: Arc::new(FakeLookups::default()) }.review(&request).await.unwrap();
            assert_eq!(verdict, AdmissionVerdict::allow());
        }
    }
}
