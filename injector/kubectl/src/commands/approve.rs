//! `kubectl nudge approve` and `kubectl nudge deny`: a user's decision about a version, and its withdrawal.

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use nudge_api::{Approval, ApprovalDecision, VersionApproval, VersionApprovalSpec, VersionStatus};
use nudge_core::governance::{sealed_digest, short_digest};
use nudge_protocol::labels::APPROVER_GROUPS;
use nudge_protocol::{ConfigName, VersionName};

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::reason;
use crate::session::{Session, creating, deleting};
use crate::version::digest::{self, Digest};
use crate::version::stored::sealed;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge diff game current 1.0.2
  kubectl nudge approve game 1.0.2 --digest=9e6284319d90def5d279ce441189240b --reason='read it, and it runs on staging'
  kubectl nudge approve game 1.0.2 --undo

The command makes a VersionApproval in your name, which needs the verb approve on the VersionedConfig. The approval counts for this content \
of the version only, while you have that right, and not if you have created a part of the version or requested it (unless the config lets authors approve). --digest names the content that you have read: if the version has another digest, the command approves nothing. Without a terminal, you must give --digest. If you have denied the version before, the command withdraws the denial. If your approval has run out, or your groups have changed since then, run the command again: what counts is the right of the groups that you had.")]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) decide: Decide,
    /// The digest of what you have read, as diff and versions print it
    #[arg(long, value_name = "DIGEST", value_parser = digest::parse, conflicts_with = "undo")]
    pub(crate) digest: Option<Digest>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge deny game 1.0.2 --reason='the limit is too low'
  kubectl nudge deny game 1.0.2 --undo

The command makes a VersionApproval in your name, which needs the verb approve on the VersionedConfig. A version that one user denies does \
not continue, however many approve it; what was assigned stays. If you have approved the version before, the command withdraws the approval.")]
pub(crate) struct Deny {
    #[command(flatten)]
    pub(crate) decide: Decide,
}

/// The arguments of both commands.
#[derive(Clone, Debug, Args)]
pub(crate) struct Decide {
    /// The config
    pub(crate) config: ConfigName,
    /// The version, which must be complete
    pub(crate) version: VersionName,
    /// Why
    #[arg(long, value_name = "TEXT", value_parser = reason::parse, required_unless_present = "undo")]
    pub(crate) reason: Option<String>,
    /// Withdraw what you have decided
    #[arg(long, conflicts_with = "reason")]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn approve(session: &Session, command: &Approve) -> Result<(), Failure> {
    let (Decide { config, version, undo, .. }, digest) = (&command.decide, command.digest.as_ref());
    if digest.is_none() && !undo && !session.out.is_interactive() {
        return Err(Failure::usage(format!(
            "without a terminal, give --digest, which says which content you have read; kubectl nudge diff {config} current {version} \
             prints it"
        )));
    }
    decide(session, &command.decide, ApprovalDecision::Approve, digest).await
}

pub(crate) async fn deny(session: &Session, command: &Deny) -> Result<(), Failure> {
    decide(session, &command.decide, ApprovalDecision::Deny, None).await
}

/// Decides about the version as it is. A digest must be that of the content that the user has read.
async fn decide(
    session: &Session,
    command: &Decide,
    decision: ApprovalDecision,
    read_digest: Option<&Digest>,
) -> Result<(), Failure> {
    let (name, version, dry) = (command.config.as_str(), command.version.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    let status = sealed(&config, version)?;
    check_digest(name, status, read_digest)?;
    let reason = command.reason.clone().unwrap_or_else(|| "undo".to_owned());
    let object = version_approval(name, status, decision, reason);
    // The answer of admission names the user.
    let preview = session.api::<VersionApproval>().create(&creating(DryRun::Server), &object).await;
    let (past, present) = match decision {
        ApprovalDecision::Approve => ("approved", "approving"),
        ApprovalDecision::Deny => ("denied", "denying"),
    };
    let context = format!("{present} version {version} of config {name}");
    let preview = preview.map_err(doing(&*context))?;
    let me = preview.spec.approver.as_str();
    let mut decisions = session.list::<VersionApproval>("VersionApprovals").await?;
    decisions.retain(|VersionApproval { spec, .. }| {
        spec.config_name == name && spec.version == version && spec.approver == me
    });
    if command.undo {
        decisions.retain(|other| other.spec.decision == decision);
        if decisions.is_empty() {
            return Err(Failure::new(format!("config {name}: user {me} has not {past} version {version}")));
        }
        withdraw(session, &decisions, dry).await?;
        return session
            .out
            .line(&format!("config {name}: version {version} is not {past} by {me} any more{}", dry.suffix()));
    }
    // A user who has named no digest sees which content this is.
    let is_unread = decision == ApprovalDecision::Approve && read_digest.is_none();
    let shown_digest = if is_unread { format!(" with the digest {}", short_digest(status)) } else { String::new() };
    let is_same = |other: &VersionApproval| other.spec.decision == decision && other.spec.digest == object.spec.digest;
    let is_known = decisions.iter().any(is_same) && decisions.iter().all(|other| other.spec.decision == decision);
    // An approval counts by the right of the user with the groups of its time, which may have lost the right since
    // then.
    let is_of_today = |other: &VersionApproval| is_same(other) && approver_groups(other) == approver_groups(&preview);
    let now = Timestamp::now();
    if is_known && decisions.iter().any(|other| is_of_today(other) && counts_at(other, now)) {
        return session.out.line(&format!("config {name}: version {version}{shown_digest} is already {past} by {me}"));
    }
    let replaced = match (is_known, decisions.iter().any(is_of_today)) {
        (true, true) => ", in place of an approval that may have run out",
        (true, false) => ", with the groups that you have now in place of the earlier ones",
        (false, _) => "",
    };
    if dry == DryRun::None {
        let result = session.api::<VersionApproval>().create(&creating(dry), &object).await;
        result.map_err(doing(context))?;
    }
    withdraw(session, &decisions, dry).await?;
    let suffix = dry.suffix();
    session.out.line(&format!("config {name}: version {version}{shown_digest} {past} by {me}{replaced}{suffix}"))
}

/// Fails if the version is not the one that the user has read.
fn check_digest(config: &str, version: &VersionStatus, read_digest: Option<&Digest>) -> Result<(), Failure> {
    let Some(other) = read_digest.filter(|digest| !digest.is_of(version)) else { return Ok(()) };
    let (name, digest) = (&version.version, other.same_length_of(version));
    Err(Failure::new(format!(
        "version {name} of config {config} has the digest {digest}, not {other}: its content is not what you have read; read it again with \
         kubectl nudge diff {config} current {name}"
    )))
}

/// Returns whether the decision counts at this time, however short the rules let approvals count.
fn counts_at(approval: &VersionApproval, now: Timestamp) -> bool {
    let created = approval.metadata.creation_timestamp.as_ref();
    approval.spec.decision == ApprovalDecision::Deny
        || created.is_some_and(|created| now.duration_since(created.0) < Approval::MIN_VALIDITY)
}

/// Returns the groups of the user as admission has noted them. The note begins with a time and a proof, which differ in
/// each approval.
fn approver_groups(approval: &VersionApproval) -> Option<&str> {
    let note = approval.metadata.annotations.as_ref()?.get(APPROVER_GROUPS)?;
    note.splitn(3, ' ').nth(2)
}

/// Returns the object to create. An approval is deleted with the objects of the version. A denial stays: a user who may
/// delete these objects and create them again as they were must not get rid of it.
fn version_approval(
    config: &str,
    version: &VersionStatus,
    decision: ApprovalDecision,
    reason: String,
) -> VersionApproval {
    let owners = version.parts.iter().map(|part| OwnerReference {
        api_version: "v1".to_owned(),
        kind: part.kind.to_string(),
        name: part.name.clone(),
        uid: part.uid.clone(),
        ..OwnerReference::default()
    });
    let metadata = ObjectMeta {
        // Names of versions may have capitals.
        generate_name: Some(format!("{config}-{}-", version.version.to_ascii_lowercase().replace('_', "-"))),
        owner_references: (decision == ApprovalDecision::Approve).then(|| owners.collect()),
        ..ObjectMeta::default()
    };
    let spec = VersionApprovalSpec {
        config_name: config.to_owned(),
        version: version.version.clone(),
        digest: sealed_digest(version),
        decision,
        reason,
        approver: String::new(),
    };
    VersionApproval { metadata, spec, status: None }
}

async fn withdraw(session: &Session, approvals: &[VersionApproval], dry: DryRun) -> Result<(), Failure> {
    if dry == DryRun::Client {
        return Ok(());
    }
    for approval in approvals {
        let name = approval.metadata.name.as_deref().unwrap_or_default();
        match session.api::<VersionApproval>().delete(name, &deleting(dry)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(Failure::of(&format!("deleting VersionApproval {name}"), &error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::commands::arguments::{Arguments, Command};

    fn parse(words: &[&str]) -> Result<Decide, clap::error::ErrorKind> {
        let arguments = ["kubectl-nudge"].into_iter().chain(words.iter().copied());
        match Arguments::try_parse_from(arguments).map_err(|error| error.kind())?.command {
            Command::Approve(command) => Ok(command.decide),
            Command::Deny(command) => Ok(command.decide),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_approval_that_may_have_run_out_is_given_again_and_no_denial_is() {
        let approval = |decision: &str| -> VersionApproval {
            let spec = json!({"configName": "game", "version": "2", "digest": "", "decision": decision, "reason": "r", "approver": "bob"});
            let metadata = json!({"name": "one", "creationTimestamp": "2026-11-26T10:00:00Z"});
            let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": metadata, "spec": spec});
            serde_json::from_value(object).unwrap()
        };
        for (time, expected) in [("10:59:59", true), ("11:00:00", false)] {
            let now = format!("2026-11-26T{time}Z").parse().unwrap();
            assert_eq!(
                (counts_at(&approval("Approve"), now), counts_at(&approval("Deny"), now)),
                (expected, true),
                "{time}"
            );
        }
    }

    #[test]
    fn a_decision_has_a_reason_and_undoing_it_none() {
        use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument, ValueValidation};
        for act in ["approve", "deny"] {
            assert_eq!(parse(&[act, "game", "2", "--reason", " read it "]).unwrap().reason.as_deref(), Some("read it"));
            assert!(parse(&[act, "game", "2", "--undo"]).unwrap().undo);
            assert_eq!(parse(&[act, "game", "2"]).unwrap_err(), MissingRequiredArgument);
            assert_eq!(parse(&[act, "game", "2", "--undo", "--reason=x"]).unwrap_err(), ArgumentConflict);
            for bad in [" ", &"x".repeat(reason::MAX_CHARACTERS + 1)] {
                assert_eq!(parse(&[act, "game", "2", "--reason", bad]).unwrap_err(), ValueValidation);
            }
            assert_eq!(parse(&[act, "game", "current", "--reason=x"]).unwrap_err(), ValueValidation);
        }
    }

    #[test]
    fn an_approval_names_what_was_read_and_a_denial_does_not() {
        use clap::error::ErrorKind::{ArgumentConflict, UnknownArgument, ValueValidation};
        let parse_approve = |words: &[&str]| parse(&[&["approve", "game", "2"][..], words].concat());
        assert!(parse_approve(&["--reason=x", "--digest=sha256:4967c54464734967c54464734967c544"]).is_ok());
        assert_eq!(
            parse_approve(&["--reason=x", "--digest=4967c54464734967c54464734967c54"]).unwrap_err(),
            ValueValidation
        );
        assert_eq!(
            parse_approve(&["--undo", "--digest=4967c54464734967c54464734967c544"]).unwrap_err(),
            ArgumentConflict
        );
        assert_eq!(
            parse(&["deny", "game", "2", "--reason=x", "--digest=4967c54464734967c54464734967c544"]).unwrap_err(),
            UnknownArgument
        );
    }

    #[test]
    fn content_that_was_not_read_is_refused_and_says_so() {
        let version = |digest: &str| -> VersionStatus {
            let part = json!({"kind": "ConfigMap", "name": "game-2", "uid": "u", "digest": digest});
            let version = json!({"version": "2", "state": "Available", "parts": [part], "keys": 1, "bytes": 1});
            serde_json::from_value(version).unwrap()
        };
        let (current, earlier) = (version("sha256:a"), version("sha256:b"));
        let check = |digest: &str| check_digest("game", &current, Some(&digest::parse(digest).unwrap()));
        assert_eq!(check(&short_digest(&current)), Ok(()));
        assert_eq!(check(&sealed_digest(&current)), Ok(()));
        assert_eq!(check_digest("game", &current, None), Ok(()));
        let message = format!(
            "version 2 of config game has the digest {}, not {}: its content is not what you have read; read it again with kubectl nudge \
             diff game current 2",
            short_digest(&current),
            short_digest(&earlier)
        );
        assert_eq!(check(&short_digest(&earlier)), Err(Failure::new(message)));
    }

    #[test]
    fn an_approval_goes_with_the_version_and_a_denial_stays_and_neither_names_anybody() {
        let part = json!({"kind": "Secret", "name": "game-keys", "uid": "u", "digest": "seal:00"});
        let version = json!({"version": "1.0_RC", "state": "Available", "parts": [part], "keys": 1, "bytes": 1});
        let version: VersionStatus = serde_json::from_value(version).unwrap();
        let create = |decision| version_approval("game", &version, decision, "x".to_owned());
        let approval = create(ApprovalDecision::Approve);
        assert_eq!(approval.metadata.generate_name.as_deref(), Some("game-1.0-rc-"));
        let owner = &approval.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Secret", "u"));
        assert_eq!((approval.spec.approver.as_str(), approval.spec.digest), ("", sealed_digest(&version)));
        // A user who deletes the objects and creates them again as they were has the same version, and the same digest.
        assert_eq!(create(ApprovalDecision::Deny).metadata.owner_references, None);
    }
}
