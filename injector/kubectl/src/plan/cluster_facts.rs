//! What a plan needs to know of the cluster: pods, workloads, policies, other configs and rights.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::ListParams;
use nudge_api::{PartKind, RolloutPolicy, VersionApproval, VersionedConfig};
use nudge_core::governance::Policies;
use nudge_core::restart::Workload;
use nudge_protocol::labels;

use crate::attention::{AttendedKind, may_attend};
use crate::failure::{Failure, doing};
use crate::rights::{Right, has_right};
use crate::session::Session;

/// The facts, as far as the user may read them.
pub(super) struct ClusterFacts {
    /// The pods with an agent; absent if the user may not list them.
    pub(super) pods: Option<Vec<Pod>>,
    pub(super) workloads: Vec<Workload>,
    /// The policies of the namespace.
    pub(super) policies: Policies,
    /// The decisions of users about versions.
    pub(super) approvals: Vec<VersionApproval>,
    /// All configs of the namespace.
    pub(super) configs: Vec<VersionedConfig>,
    /// The rights that somebody lacks.
    pub(super) missing_rights: Vec<MissingRight>,
    /// What the user may not read.
    pub(super) unread: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MissingRight {
    /// Nudge may not look at objects of this kind, or change them.
    OfNudge(AttendedKind),
    /// The user may not do this.
    OfUser(Right),
}

impl ClusterFacts {
    /// Reads the facts. `is_requested` says whether the user does not have to request the version any more.
    pub(super) async fn read(session: &Session, config: &VersionedConfig, is_requested: bool) -> Result<Self, Failure> {
        let mut unread = Vec::new();
        let mut optional = Optional { unread: &mut unread };
        let pods = session.api::<Pod>().list(&ListParams::default().labels(labels::AGENT)).await;
        let pods = optional.read("the pods", pods.map(|list| list.items).map_err(doing("listing pods")))?;
        let mut workloads = Vec::new();
        let deployments = optional.read("Deployments to restart", session.list::<Deployment>("Deployments").await)?;
        workloads.extend(deployments.iter().flatten().filter_map(Workload::of_deployment));
        let sets = optional.read("StatefulSets to restart", session.list::<StatefulSet>("StatefulSets").await)?;
        workloads.extend(sets.iter().flatten().filter_map(Workload::of_stateful_set));
        let daemons = optional.read("DaemonSets to restart", session.list::<DaemonSet>("DaemonSets").await)?;
        workloads.extend(daemons.iter().flatten().filter_map(Workload::of_daemon_set));
        let configs = session.list::<VersionedConfig>("configs").await;
        let configs = optional.read("whether another config is moved first", configs)?;
        let policies = optional.read("policies of the cluster", policies(session).await)?;
        let policies = Policies::Known(policies.into_iter().flatten().map(Into::into).collect());
        let approvals = session.list::<VersionApproval>("VersionApprovals").await;
        let approvals = optional.read("approvals that are given", approvals)?.unwrap_or_default();
        let mut missing_rights = rights_of_nudge(session, config, &mut unread).await;
        if !is_requested {
            missing_rights.extend(rights_of_user(session, config).await?);
        }
        let configs = configs.unwrap_or_default();
        Ok(Self { pods, workloads, policies, approvals, configs, missing_rights, unread })
    }
}

/// Reads that the user may not be allowed to make.
struct Optional<'a> {
    unread: &'a mut Vec<String>,
}

impl Optional<'_> {
    /// Returns what was read, or notes that the user may not read it.
    fn read<T>(&mut self, what: &str, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Err(failure) if failure.status == 403 => {
                self.unread.push(format!("{what}: {}", failure.message));
                Ok(None)
            }
            result => result.map(Some),
        }
    }
}

/// Reads the policies that select the namespace.
async fn policies(session: &Session) -> Result<Vec<RolloutPolicy>, Failure> {
    let policies = Api::<RolloutPolicy>::all(session.client.clone()).list(&ListParams::default()).await;
    let policies = policies.map_err(doing("listing RolloutPolicies"))?.items;
    if policies.is_empty() {
        return Ok(policies);
    }
    let namespace = Api::<Namespace>::all(session.client.clone()).get(&session.namespace).await;
    let labels = namespace.map_err(doing(format!("reading namespace {}", session.namespace)))?.metadata.labels;
    let labels = labels.unwrap_or_default();
    Ok(policies.into_iter().filter(|policy| policy.spec.namespace_selector.selects(&labels)).collect())
}

/// Returns the rights that Nudge lacks, or notes that the user may not ask.
async fn rights_of_nudge(session: &Session, config: &VersionedConfig, unread: &mut Vec<String>) -> Vec<MissingRight> {
    let mut kinds = vec![AttendedKind::Configs, AttendedKind::Workloads];
    let versions = config.status.iter().flat_map(|status| &status.versions);
    let has_secret = config.spec.owns(PartKind::Secret)
        || versions.flat_map(|version| &version.parts).any(|part| part.kind == PartKind::Secret);
    kinds.extend(has_secret.then_some(AttendedKind::Secrets));
    let mut missing = Vec::new();
    for kind in kinds {
        match may_attend(session, kind).await {
            Some(true) => {}
            Some(false) => missing.push(MissingRight::OfNudge(kind)),
            None => {
                unread.push("the rights of Nudge in this namespace: you may not request them".to_owned());
                return missing;
            }
        }
    }
    missing
}

/// Returns the rights that the user lacks to request the version.
async fn rights_of_user(session: &Session, config: &VersionedConfig) -> Result<Vec<MissingRight>, Failure> {
    let update = |resource| Right { verb: "update", group: "", resource };
    let mut rights = Vec::new();
    if !config.spec.follows_text() {
        rights.push(Right { verb: "patch", group: "nudge.dev", resource: "versionedconfigs" });
    }
    if !config.spec.follows_text() || config.spec.owns(PartKind::ConfigMap) {
        rights.push(update("configmaps"));
    }
    if config.spec.owns(PartKind::Secret) {
        rights.push(update("secrets"));
    }
    let mut missing = Vec::new();
    for right in rights {
        if !has_right(session, config, right).await? {
            missing.push(MissingRight::OfUser(right));
        }
    }
    Ok(missing)
}
