//! `kubectl nudge status`: shows configs, or one config with its conditions and pods.

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_core::pods::pod_state;
use nudge_protocol::{ConfigName, labels};
use serde_json::json;

use crate::attention::{AttendedKind, may_attend};
use crate::failure::{Failure, doing};
use crate::output::Format;
use crate::output::status::{ApprovalReport, Report, SourceReport, config_table, needs_approval};
use crate::session::{NamespacedKind, Session};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge status
  kubectl nudge status game
  kubectl nudge status -A -o json")]
pub(crate) struct Status {
    /// The config; by default all configs
    pub(crate) config: Option<ConfigName>,
    /// The configs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "config")]
    pub(crate) all_namespaces: bool,
    /// The output format
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,
}

pub(crate) async fn run(session: &Session, command: &Status) -> Result<(), Failure> {
    let client = session.client.clone();
    let (configs, pods): (Api<VersionedConfig>, Api<Pod>) = if command.all_namespaces {
        (Api::all(client.clone()), Api::all(client))
    } else {
        (session.api(), session.api())
    };
    let configs = match &command.config {
        Some(name) => vec![session.config(name.as_str()).await?],
        None => configs.list(&ListParams::default()).await.map_err(doing("listing configs"))?.items,
    };
    let pods = match pods.list(&ListParams::default().labels(labels::AGENT)).await {
        Ok(pods) => pods.items.iter().filter_map(pod_state).filter(|pod| !pod.is_terminating()).collect(),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let cause = status.message.trim_end_matches('.');
            session
                .out
                .warn(&format!("pods are not shown: {cause}; ask the namespace's admin for the right to list pods"));
            Vec::new()
        }
        Err(error) => return Err(Failure::of("listing pods", &error)),
    };
    let mut reports: Vec<Report> = configs.iter().map(|config| Report::new(config, &pods)).collect();
    if let (Some(name), [config], [report]) = (&command.config, &configs[..], &mut reports[..]) {
        report.sources = sources(session, name).await?.iter().map(SourceReport::new).collect();
        if needs_approval(config) {
            report.approvals = ApprovalReport::list(config, &list_optional(session, "VersionApprovals").await?);
        }
    }
    if !command.all_namespaces && !reports.is_empty() && may_attend(session, AttendedKind::Configs).await == Some(false)
    {
        let namespace = &session.namespace;
        session.out.warn(&format!(
            "Nudge does not look at the configs of namespace {namespace}, because it may not read them; {}",
            AttendedKind::Configs.remedy(namespace)
        ));
    }
    match (command.output, &reports[..]) {
        (Some(Format::Name), reports) => {
            session.out.lines(reports.iter().map(|report| format!("versionedconfig.nudge.dev/{}", report.config)))
        }
        (Some(format), [report]) if command.config.is_some() => session.out.document(report, format),
        (Some(format), reports) => session.out.document(&json!({"items": reports}), format),
        (None, [report]) if command.config.is_some() => session.out.print(&report.text()),
        (None, []) if command.all_namespaces => {
            session.out.warn("there are no configs in any namespace; create one with kubectl nudge create");
            Ok(())
        }
        (None, []) => {
            if let Some(failure) = session.missing_namespace().await {
                return Err(failure);
            }
            let namespace = &session.namespace;
            session
                .out
                .warn(&format!("there are no configs in namespace {namespace}; create one with kubectl nudge create"));
            Ok(())
        }
        (None, reports) => session.out.print(&config_table(reports, command.all_namespaces)),
    }
}

/// Returns the sources of a config, as far as they may be read.
async fn sources(session: &Session, config: &ConfigName) -> Result<Vec<ConfigSource>, Failure> {
    let mut sources: Vec<ConfigSource> = list_optional(session, "sources").await?;
    sources.retain(|source| source.config() == config.as_str());
    Ok(sources)
}

/// Lists the objects of a kind. Returns none if the cluster does not have the kind, or the user may not list it.
async fn list_optional<K: NamespacedKind>(session: &Session, plural: &str) -> Result<Vec<K>, Failure> {
    match session.list(plural).await {
        Err(failure) if matches!(failure.status, 403 | 404) => Ok(Vec::new()),
        result => result,
    }
}
