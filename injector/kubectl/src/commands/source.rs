//! `kubectl nudge source`: lists the sources of a namespace, and syncs, suspends or resumes them.

use clap::{Args, Subcommand};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use nudge_api::{ConditionType, ConfigSource, SourcePlace, VersionedConfig, find_condition};
use nudge_core::sources::{release_version_field, version_manager};
use nudge_protocol::labels;
use serde_json::{Value, json};

use crate::attention::{AttendedKind, may_attend};
use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::output::table::{or_none, table};
use crate::session::{Session, names_an_object};

/// The time that a new source may be without a status.
const FIRST_STATUS_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    #[command(subcommand)]
    pub(crate) command: SourceCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// List the sources with their objects and versions
    List,
    /// Let a source make a version of its object now, also of content that failed before
    Sync(Named),
    /// Stop a source; its versions stay
    Suspend(Named),
    /// Let a source continue, and give it back spec.version of its config
    Resume(Named),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Named {
    /// The source
    pub(crate) source: String,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Source) -> Result<(), Failure> {
    match &command.command {
        SourceCommand::List => list(session).await,
        SourceCommand::Sync(named) => sync(session, named).await,
        SourceCommand::Suspend(named) => suspend(session, named).await,
        SourceCommand::Resume(named) => resume(session, named).await,
    }
}

/// Returns the failure of a call about sources. A cluster without the component does not know the kind.
fn source_failure(context: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 404 && !names_an_object(status) => {
            Failure::new("this cluster has no sources; an admin installs them with deploy/components/sources")
        }
        error => Failure::of(context, error),
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let sources = session.api::<ConfigSource>().list(&ListParams::default()).await;
    let sources = sources.map_err(|error| source_failure("listing sources", &error))?.items;
    if sources.is_empty() {
        return session.out.line(&format!("there are no sources in namespace {}", session.namespace));
    }
    let rows: Vec<Vec<String>> = sources.iter().map(row).collect();
    session.out.print(&table(&["NAME", "FROM", "CONFIG", "VERSION", "WAITING", "READY", "REASON"], &rows))?;
    let messages = sources.iter().filter_map(message);
    session.out.lines(messages)?;
    check_attended(session, &sources).await
}

/// Fails if a source is unattended.
async fn check_attended(session: &Session, sources: &[ConfigSource]) -> Result<(), Failure> {
    let (attended, now, namespace) =
        (may_attend(session, AttendedKind::Sources).await, Timestamp::now(), &session.namespace);
    let names: Vec<&str> = sources
        .iter()
        .filter(|source| is_unattended(source, attended, now))
        .filter_map(|source| source.metadata.name.as_deref())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let remedy = AttendedKind::Sources.remedy(namespace);
    let cause = if attended == Some(true) {
        "Nudge has not read it since it was created; check that the Deployment nudge-sources in namespace nudge-system runs"
            .to_owned()
    } else if attended == Some(false) {
        format!("ClusterRole nudge-sources is not bound in namespace {namespace}; {remedy}")
    } else {
        format!("check that ClusterRole nudge-sources is bound in namespace {namespace}; if not: {remedy}")
    };
    Err(Failure::new(format!("Nudge does not look at source {}: {cause}", names.join(", "))))
}

/// Returns whether nobody looks at a source: the role `sources` may not, or has not written a status in time.
fn is_unattended(source: &ConfigSource, attended: Option<bool>, now: Timestamp) -> bool {
    let lacks_status = source.status.as_ref().is_none_or(|status| status.observed_generation.is_none());
    let is_new = source
        .metadata
        .creation_timestamp
        .as_ref()
        .is_none_or(|created| now.duration_since(created.0) < FIRST_STATUS_TIMEOUT);
    attended == Some(false) || (lacks_status && !is_new)
}

fn row(source: &ConfigSource) -> Vec<String> {
    let place_words = source.spec.from.place().map(|from| match from {
        SourcePlace::Git(git) => git.url.clone(),
        SourcePlace::Oci(oci) => oci.url.clone(),
        SourcePlace::Vault(vault) => format!("{} {}/{}", vault.address, vault.kv.mount, vault.kv.path),
    });
    let status = source.status.clone().unwrap_or_default();
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    vec![
        source.metadata.name.clone().unwrap_or_default(),
        or_none(place_words.as_deref()),
        source.config().to_owned(),
        or_none(status.version.as_deref()),
        or_none(status.waiting.as_ref().map(|waiting| waiting.version.as_str())),
        or_none(ready.map(|ready| ready.status.as_str())),
        or_none(ready.map(|ready| ready.reason.as_str())),
    ]
}

/// Returns the action that the source requires.
fn message(source: &ConfigSource) -> Option<String> {
    let status = source.status.as_ref()?;
    let stalled =
        find_condition(&status.conditions, ConditionType::Stalled).filter(|stalled| stalled.status == "True")?;
    Some(format!("{}: {}", source.metadata.name.as_deref().unwrap_or_default(), stalled.message))
}

async fn get(session: &Session, name: &str) -> Result<ConfigSource, Failure> {
    let namespace = &session.namespace;
    let source = session.api::<ConfigSource>().get(name).await;
    source.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 404 && names_an_object(status) => {
            Failure::new(format!("there is no source {name} in namespace {namespace}; see kubectl nudge source list"))
        }
        error => source_failure(&format!("reading source {name}"), error),
    })
}

async fn patch(session: &Session, named: &Named, patch: &Value) -> Result<(), Failure> {
    let (name, dry) = (&named.source, named.dry.dry_run);
    session.merge::<ConfigSource>(name, patch, dry, format!("changing source {name}")).await
}

async fn sync(session: &Session, named: &Named) -> Result<(), Failure> {
    let source = get(session, &named.source).await?;
    check_attended(session, &[source]).await?;
    let now = Timestamp::now().to_string();
    patch(session, named, &json!({"metadata": {"annotations": {labels::SYNC: now}}})).await?;
    let (name, suffix) = (&named.source, named.dry.dry_run.suffix());
    session.out.line(&format!("source {name} reads its content again{suffix}"))
}

async fn suspend(session: &Session, named: &Named) -> Result<(), Failure> {
    let name = &named.source;
    if get(session, name).await?.spec.suspend {
        return session.out.line(&format!("source {name} is already suspended"));
    }
    patch(session, named, &json!({"spec": {"suspend": true}})).await?;
    session.out.line(&format!("source {name} suspended{}", named.dry.dry_run.suffix()))
}

async fn resume(session: &Session, named: &Named) -> Result<(), Failure> {
    let (name, dry) = (&named.source, named.dry.dry_run);
    let source = get(session, name).await?;
    let config = session.find_config(source.config()).await?;
    let foreign_config = config.as_ref().and_then(|config| Some((config, version_manager(&config.metadata)?)));
    if foreign_config.is_none() && !source.spec.suspend {
        return session.out.line(&format!("source {name} is neither suspended nor held by somebody else"));
    }
    if source.spec.suspend {
        patch(session, named, &json!({"spec": {"suspend": false}})).await?;
    }
    session.out.line(&format!("source {name} resumed{}", dry.suffix()))?;
    let Some((config, other)) = foreign_config else { return Ok(()) };
    // The version of the resource keeps the entry of anybody who changes the config meanwhile.
    let version = &config.metadata.resource_version;
    let patch = json!({"metadata": {"resourceVersion": version, "managedFields": release_version_field(config)}});
    let context = format!("giving back spec.version of config {}", source.config());
    session.merge::<VersionedConfig>(source.config(), &patch, dry, context).await?;
    session.out.line(&format!(
        "the source sets spec.version of config {} again, which {other} had set{}",
        source.config(),
        dry.suffix()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(status: &Value) -> ConfigSource {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"},
            "spec": {"from": {"git": {"url": "https://git.example.com/shop"}}}, "status": status
        }))
        .unwrap()
    }

    #[test]
    fn a_source_that_nobody_looks_at_is_known_by_the_rights_or_by_its_silence() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let source_of = |time: &str, status: &Value| {
            let mut source = source(status);
            source.metadata.creation_timestamp = serde_json::from_value(json!(time)).unwrap();
            source
        };
        let (old, new, seen) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:50Z", json!({"observedGeneration": 1}));
        for (time, status, attended, expected) in [
            (old, &json!({}), None, true),
            (old, &json!({}), Some(true), true),
            (new, &json!({}), None, false),
            (new, &json!({}), Some(false), true),
            (old, &seen, None, false),
            (old, &seen, Some(true), false),
            (old, &seen, Some(false), true),
        ] {
            assert_eq!(
                is_unattended(&source_of(time, status), attended, now),
                expected,
                "{time} {status} {attended:?}"
            );
        }
    }

    #[test]
    fn a_row_says_what_the_source_is_at_and_a_line_what_is_to_be_done() {
        let fresh = source(&json!({}));
        assert_eq!(
            row(&fresh),
            ["shop", "https://git.example.com/shop", "shop", "<none>", "<none>", "<none>", "<none>"]
        );
        assert_eq!(message(&fresh), None);
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "FieldConflict", "message": "it is held", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let held = source(&json!({
            "version": "src-1", "waiting": {"version": "src-2", "startTime": "2026-01-01T00:00:00Z", "reason": "TooSoon"},
            "conditions": [condition("Ready", "False"), condition("Stalled", "True")],
        }));
        assert_eq!(row(&held)[3..], ["src-1", "src-2", "False", "FieldConflict"]);
        assert_eq!(message(&held).unwrap(), "shop: it is held");
    }
}
