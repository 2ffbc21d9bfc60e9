//! `kubectl nudge approve` and `kubectl nudge deny`: what the user decides about a version, and withdrawing that.

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, ObjectMeta};
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
of the version only, while you have that right, and not if you have created a part of the version or asked for it (unless the config lets authors approve). --digest names the content that you have read: if the version has another digest, the command approves nothing. Without a terminal, you must give --digest. If you have denied the version before, the command withdraws the denial. If your approval has run out, or your groups have changed since then, run the command again: what counts is the right of the groups that you had.")]
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
not go on, however many approve it; what was assigned stays. If you have approved the version before, the command withdraws the approval.")]
pub(crate) struct Deny {
    #[command(flatten)]
    pub(crate) decide: Decide,
}

/// What both have.
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

/// Decides about the version as it is. With a digest, it must be the one of what was read.
async fn decide(
    session: &Session,
    command: &Decide,
    decision: ApprovalDecision,
    read: Option<&Digest>,
) -> Result<(), Failure> {
    let (name, version, dry) = (command.config.as_str(), command.version.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    let status = sealed(&config, version)?;
    check_digest(name, status, read)?;
    let reason = command.reason.clone().unwrap_or_else(|| "undo".to_owned());
    let object = object(name, status, decision, reason);
    // Admission says who the user is.
    let preview = session.api::<VersionApproval>().create(&creating(DryRun::Server), &object).await;
    let (word, doing_it) = words(decision);
    let preview = preview.map_err(doing(format!("{doing_it} version {version} of config {name}")))?;
    let me = preview.spec.approver.as_str();
    let listed = session.api::<VersionApproval>().list(&ListParams::default()).await;
    let mut own = listed.map_err(doing("listing VersionApprovals"))?.items;
    own.retain(|one| one.spec.config_name == name && one.spec.version == version && one.spec.approver == me);
    if command.undo {
        own.retain(|one| one.spec.decision == decision);
        if own.is_empty() {
            return Err(Failure::new(format!("config {name}: user {me} has not {word} version {version}")));
        }
        withdraw(session, &own, dry).await?;
        return session
            .out
            .line(&format!("config {name}: version {version} is not {word} by {me} any more{}", dry.suffix()));
    }
    // Who has named no digest sees which one it is.
    let unread = decision == ApprovalDecision::Approve && read.is_none();
    let which = if unread { format!(" with the digest {}", short_digest(status)) } else { String::new() };
    let same = |one: &VersionApproval| one.spec.decision == decision && one.spec.digest == object.spec.digest;
    let is_known = own.iter().any(same) && own.iter().all(|one| one.spec.decision == decision);
    // The right is that of the user with the groups of that time: those of today have it, and the others may have lost
    // it.
    let is_of_today = |one: &VersionApproval| same(one) && groups(one) == groups(&preview);
    let now = Timestamp::now();
    if is_known && own.iter().any(|one| is_of_today(one) && lasts(one, now)) {
        return session.out.line(&format!("config {name}: version {version}{which} is already {word} by {me}"));
    }
    let anew = match (is_known, own.iter().any(is_of_today)) {
        (true, true) => ", in place of an approval that may have run out",
        (true, false) => ", with the groups that you have now in place of the earlier ones",
        (false, _) => "",
    };
    if dry == DryRun::None {
        let result = session.api::<VersionApproval>().create(&creating(dry), &object).await;
        result.map_err(doing(format!("{doing_it} version {version} of config {name}")))?;
    }
    withdraw(session, &own, dry).await?;
    session.out.line(&format!("config {name}: version {version}{which} {word} by {me}{anew}{}", dry.suffix()))
}

/// Fails where the version is not what the user has read.
fn check_digest(config: &str, version: &VersionStatus, read: Option<&Digest>) -> Result<(), Failure> {
    let Some(other) = read.filter(|read| !read.is_of(version)) else { return Ok(()) };
    let (name, has) = (&version.version, other.beside(version));
    Err(Failure::new(format!(
        "version {name} of config {config} has the digest {has}, not {other}: its content is not what you have read; read it again with \
         kubectl nudge diff {config} current {name}"
    )))
}

/// Returns whether the decision counts at this time, whatever the rules say of how long approvals count.
fn lasts(one: &VersionApproval, now: Timestamp) -> bool {
    let made = one.metadata.creation_timestamp.as_ref();
    one.spec.decision == ApprovalDecision::Deny
        || made.is_some_and(|made| now.duration_since(made.0) < Approval::SHORTEST)
}

/// The groups of the user, as admission has noted them; behind when, and what proves that, which differ in each.
fn groups(approval: &VersionApproval) -> Option<&str> {
    let note = approval.metadata.annotations.as_ref()?.get(APPROVER_GROUPS)?;
    note.splitn(3, ' ').nth(2)
}

/// The word for what was done, and that for doing it.
fn words(decision: ApprovalDecision) -> (&'static str, &'static str) {
    match decision {
        ApprovalDecision::Approve => ("approved", "approving"),
        ApprovalDecision::Deny => ("denied", "denying"),
    }
}

/// What is created. An approval goes with the objects of the version. A denial stays: who may delete these objects and
/// create them again as they were must not get rid of it.
fn object(config: &str, version: &VersionStatus, decision: ApprovalDecision, reason: String) -> VersionApproval {
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

async fn withdraw(session: &Session, all: &[VersionApproval], dry: DryRun) -> Result<(), Failure> {
    if dry == DryRun::Client {
        return Ok(());
    }
    for one in all {
        let name = one.metadata.name.as_deref().unwrap_or_default();
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

    fn parsed(words: &[&str]) -> Result<Decide, clap::error::ErrorKind> {
        let arguments = ["kubectl-nudge"].into_iter().chain(words.iter().copied());
        match Arguments::try_parse_from(arguments).map_err(|error| error.kind())?.command {
            Command::Approve(command) => Ok(command.decide),
            Command::Deny(command) => Ok(command.decide),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_approval_that_may_have_run_out_is_given_again_and_no_denial_is() {
        let of = |decision: &str| -> VersionApproval {
            let spec = json!({"configName": "game", "version": "2", "digest": "", "decision": decision, "reason": "r", "approver": "bob"});
            let metadata = json!({"name": "one", "creationTimestamp": "2026-11-26T10:00:00Z"});
            let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": metadata, "spec": spec});
            serde_json::from_value(object).unwrap()
        };
        for (time, expected) in [("10:59:59", true), ("11:00:00", false)] {
            let now = format!("2026-11-26T{time}Z").parse().unwrap();
            assert_eq!((lasts(&of("Approve"), now), lasts(&of("Deny"), now)), (expected, true), "{time}");
        }
    }

    #[test]
    fn a_decision_has_a_reason_and_undoing_it_none() {
        use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument, ValueValidation};
        for act in ["approve", "deny"] {
            assert_eq!(
                parsed(&[act, "game", "2", "--reason", " read it "]).unwrap().reason.as_deref(),
                Some("read it")
            );
            assert!(parsed(&[act, "game", "2", "--undo"]).unwrap().undo);
            assert_eq!(parsed(&[act, "game", "2"]).unwrap_err(), MissingRequiredArgument);
            assert_eq!(parsed(&[act, "game", "2", "--undo", "--reason=x"]).unwrap_err(), ArgumentConflict);
            for bad in [" ", &"x".repeat(reason::MAX_CHARACTERS + 1)] {
                assert_eq!(parsed(&[act, "game", "2", "--reason", bad]).unwrap_err(), ValueValidation);
            }
            assert_eq!(parsed(&[act, "game", "current", "--reason=x"]).unwrap_err(), ValueValidation);
        }
    }

    #[test]
    fn an_approval_names_what_was_read_and_a_denial_does_not() {
        use clap::error::ErrorKind::{ArgumentConflict, UnknownArgument, ValueValidation};
        let read = |words: &[&str]| parsed(&[&["approve", "game", "2"][..], words].concat());
        assert!(read(&["--reason=x", "--digest=sha256:4967c54464734967c54464734967c544"]).is_ok());
        assert_eq!(read(&["--reason=x", "--digest=4967c54464734967c54464734967c54"]).unwrap_err(), ValueValidation);
        assert_eq!(read(&["--undo", "--digest=4967c54464734967c54464734967c544"]).unwrap_err(), ArgumentConflict);
        assert_eq!(
            parsed(&["deny", "game", "2", "--reason=x", "--digest=4967c54464734967c54464734967c544"]).unwrap_err(),
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
        let (is, was) = (version("sha256:a"), version("sha256:b"));
        let check = |digest: &str| check_digest("game", &is, Some(&digest::parse(digest).unwrap()));
        assert_eq!(check(&short_digest(&is)), Ok(()));
        assert_eq!(check(&sealed_digest(&is)), Ok(()));
        assert_eq!(check_digest("game", &is, None), Ok(()));
        let said = format!(
            "version 2 of config game has the digest {}, not {}: its content is not what you have read; read it again with kubectl nudge \
             diff game current 2",
            short_digest(&is),
            short_digest(&was)
        );
        assert_eq!(check(&short_digest(&was)), Err(Failure::new(said)));
    }

    #[test]
    fn an_approval_goes_with_the_version_and_a_denial_stays_and_neither_names_anybody() {
        let part = json!({"kind": "Secret", "name": "game-keys", "uid": "u", "digest": "seal:00"});
        let version = json!({"version": "1.0_RC", "state": "Available", "parts": [part], "keys": 1, "bytes": 1});
        let version: VersionStatus = serde_json::from_value(version).unwrap();
        let made = |decision| object("game", &version, decision, "x".to_owned());
        let approval = made(ApprovalDecision::Approve);
        assert_eq!(approval.metadata.generate_name.as_deref(), Some("game-1.0-rc-"));
        let owner = &approval.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Secret", "u"));
        assert_eq!((approval.spec.approver.as_str(), approval.spec.digest), ("", sealed_digest(&version)));
        // Who deletes the objects and creates them again as they were has the same version, and the same digest.
        assert_eq!(made(ApprovalDecision::Deny).metadata.owner_references, None);
    }
}
