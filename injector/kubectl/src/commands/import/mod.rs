//! `kubectl nudge import`: gives a cluster the configs of an export, so that agents at work are notified of nothing.
//!
//! A config is created with the annotation `nudge.dev/importing`, and Nudge leaves it alone. Then its versions are
//! created, its status is written, and the annotation is removed. Each step recognizes the work of an earlier import,
//! so that an interrupted import can be repeated.

mod content_key;
mod import_plan;
mod restore;

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use nudge_protocol::labels;
use nudge_protocol::plural::{agreeing, counted};
use zeroize::Zeroizing;

use self::import_plan::ImportPlan;
use self::restore::{Restore, RestoreOutcome};
use crate::backup::document::DocumentKind;
use crate::backup::export::ParsedExport;
use crate::backup::stream::MAX_BYTES;
use crate::backup::{age, export_signature};
use crate::failure::{Failure, doing};
use crate::session::Session;
use crate::version::stored::label;

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Nothing is changed if an object of the export exists and differs. An import that was interrupted can be repeated.
You need the ClusterRole nudge-restore. The file decides what pods get: sign exports, and use --verify.

Examples:
  kubectl nudge import -f nudge.yaml --verify ops.pub --identity key.txt
  kubectl nudge import -f nudge.yaml --identity key.txt --content-key
  kubectl nudge import -f nudge.yaml --identity key.txt --dry-run
  kubectl nudge import -f nudge.yaml --identity key.txt"
)]
pub(crate) struct Import {
    /// The export; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,
    /// Refuse the export unless FILE.sig is its signature by one of the public keys of SSH in this file
    #[arg(long, value_name = "KEYS")]
    pub(crate) verify: Option<PathBuf>,
    /// The file with the key of age that decrypts the Secrets
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Restore the content key and nothing else, before Nudge is installed and makes one
    #[arg(long, requires = "identity")]
    pub(crate) content_key: bool,
    /// Finish configs whose Secrets are missing: versions without them can't be used
    #[arg(long)]
    pub(crate) without_secrets: bool,
    /// Print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The namespace of Nudge itself
    #[arg(long, default_value = "nudge-system", value_name = "NAMESPACE")]
    pub(crate) system_namespace: String,
}

pub(crate) async fn run(session: &Session, command: &Import) -> Result<(), Failure> {
    let text = read(command)?;
    let warning = verify_signature(session, command, &text)?;
    let mut export = ParsedExport::parse(&text)?;
    if let Some(warning) = warning {
        session.out.warn(warning);
    }
    match (&command.identity, &export.encrypted) {
        (Some(identity), Some(armored)) => {
            let plain = age::decrypt(identity, armored)?;
            export.add_secrets(&plain)?;
        }
        (Some(_), None) => session.out.warn("the export has no encrypted Secrets"),
        (None, Some(_)) => session.out.warn("the Secrets of the export are not restored: there is no --identity"),
        (None, None) => {}
    }
    if command.content_key {
        return content_key::restore(session, &export, command).await;
    }
    check_namespaces(session, &export).await?;
    let plan = ImportPlan::new(session, &export).await?;
    plan.show(session, &export, command.dry_run)?;
    if command.dry_run {
        return Ok(());
    }
    let restore = Restore { session, export: &export, plan: &plan, without_secrets: command.without_secrets };
    // Policies come first, because versions continue as soon as their config's status is restored. Sources come last:
    // they make versions.
    restore.create_all(DocumentKind::Policy).await?;
    let (count, mut waiting, mut failed) = (export.configs.len(), 0, 0);
    for ((place, config), number) in export.configs.iter().zip(1..) {
        let progress = format!("config {}/{} ({number} of {count})", place.namespace, place.name);
        match restore.config(place, config).await {
            Ok(outcome) => {
                session.out.note(&format!("{progress}: {outcome}"));
                waiting += usize::from(matches!(outcome, RestoreOutcome::WaitsForSecrets(_)));
            }
            // The API server refuses an object of this config; it may accept the other configs.
            Err(failure) if failure.status != 0 => {
                session.out.warn(&format!("{progress}: {}", failure.message));
                failed += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    let configs = counted(count, "config");
    if failed > 0 {
        return Err(Failure::new(format!(
            "{failed} of {configs}, and all ConfigSources, are not imported; do what the warnings say, and run the command \
             again"
        )));
    }
    if waiting > 0 {
        return Err(Failure::new(format!(
            "{waiting} of {configs} {} for Secrets, and Nudge does nothing until then: create the Secrets as they were and run \
             the command again, or add --without-secrets",
            agreeing(waiting, "waits", "wait")
        )));
    }
    restore.create_all(DocumentKind::Source).await?;
    session.out.line(&format!("imported {configs} of the export of {}", export.header.exported_at))?;
    for omission in export.header.left_out.iter().chain(&export.header.missing) {
        session.out.note(&format!("not in the export: {omission}"));
    }
    Ok(())
}

/// Checks who signed the export. Returns a warning if nobody has signed it, or nobody checks it.
fn verify_signature(session: &Session, command: &Import, text: &str) -> Result<Option<&'static str>, Failure> {
    let file = Some(&command.filename).filter(|file| file.as_os_str() != "-");
    let signature = file.map(|file| export_signature::signature_path(file));
    match (&command.verify, signature) {
        (Some(keys), Some(signature)) => {
            export_signature::verify(text, &signature, keys)?;
            session.out.note(&format!("the export is signed with a key of {}", keys.display()));
            Ok(None)
        }
        (Some(_), None) => Err(Failure::usage("--verify needs a file (-f FILE): the signature is read from FILE.sig")),
        (None, Some(signature)) if signature.exists() => {
            Ok(Some("nobody checks who signed the export: there is no --verify"))
        }
        (None, _) => Ok(Some("nobody signed the export: a user who can write the file decides what pods get")),
    }
}

fn read(command: &Import) -> Result<Zeroizing<String>, Failure> {
    let name = command.filename.display();
    let failure = |error: std::io::Error| Failure::new(format!("reading {name}: {error}"));
    let mut text = Zeroizing::new(String::new());
    let limit = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
    let source: Box<dyn Read> = if command.filename.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&command.filename).map_err(failure)?)
    };
    source.take(limit).read_to_string(&mut text).map_err(failure)?;
    if text.len() > MAX_BYTES {
        return Err(Failure::new(format!("{name} has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// Fails if a namespace of the export does not exist, and warns if Nudge does not work in it.
async fn check_namespaces(session: &Session, export: &ParsedExport) -> Result<(), Failure> {
    let api: Api<Namespace> = Api::all(session.client.clone());
    let mut missing = Vec::new();
    for name in export.namespaces() {
        let namespace = api.get_metadata_opt(name).await.map_err(doing(format!("reading namespace {name}")))?;
        let Some(namespace) = namespace else {
            missing.push(name);
            continue;
        };
        if label(&namespace.metadata, labels::ENABLED) != "true" {
            let message = format!("namespace {name} is not enabled; kubectl nudge enable {name} lets Nudge work in it");
            session.out.warn(&message);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("these namespaces do not exist; create and enable them first: {}", missing.join(", "))))
}
