//! What a pod should have of one config, by what this replica knows: pure, apart from looking at the contents kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nudge_api::{PartKind, RolloutStage, VersionedConfig};
use nudge_cluster::index::Index;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_core::rollout::{assigned_version, is_same, pod_number};
use nudge_core::versions::is_importing;
use nudge_protocol::hub::{HubProblem, HubReason, PollRequest, ReportRequest};
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use nudge_protocol::{ConfigName, VersionName};
use tokio::sync::watch;
use tokio::time::Instant;

use super::content::{Content, problem};
use super::contents::{ContentStore, Found};

/// One config of a pod as it should be.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) name: ConfigName,
    /// Empty while there is no such config.
    pub(super) uid: String,
    pub(super) revision: u64,
    pub(super) version: Option<VersionName>,
    pub(super) content: Result<Arc<Content>, Arc<HubProblem>>,
    /// The version that only a restart brings to this pod.
    pub(super) due: Option<VersionName>,
    /// For how long the pod is not notified yet of what changed.
    pub(super) spread: Option<Duration>,
    /// How long the pod's containers have for their acknowledgement, in seconds.
    pub(super) ack_timeout_seconds: Option<u32>,
}

/// What an agent has of one config.
pub(super) struct Has<'a> {
    /// Empty where it is not from the hub.
    uid: &'a str,
    version: &'a VersionName,
    /// Empty where the agent does not say.
    sha256: &'a str,
}

/// By what the agent polls with.
pub(super) fn polled<'a>(request: &'a PollRequest, name: &ConfigName) -> Option<Has<'a>> {
    let held = request.configs.iter().find(|held| held.name == *name && !held.sha256.is_empty())?;
    Some(Has { uid: &held.uid, version: held.version.as_ref()?, sha256: &held.sha256 })
}

/// By what it has reported.
pub(super) fn reported<'a>(report: &'a ReportRequest, name: &ConfigName) -> Option<Has<'a>> {
    let config = report.configs.iter().find(|config| config.name == *name)?;
    Some(Has { uid: &config.uid, version: config.version.as_ref()?, sha256: "" })
}

/// All configs of a pod.
pub(super) struct Views {
    pub(super) all: Vec<View>,
    /// The contents that are under way, which show as `Resolving`.
    pub(super) fetching: Vec<watch::Receiver<()>>,
    /// When a problem is worth another look.
    pub(super) again: Option<Instant>,
}

/// Where the spec does not say how long a way back is spread: so long for each pod that restarts in place for it.
const SPREAD_EACH: Duration = Duration::from_secs(2);
const SPREAD_MOST: Duration = Duration::from_secs(30);

/// For how long a pod that was not harmed is not notified yet that pods return to another version (`spec.rollout.rollbackSpreadSeconds`). `passed`:
/// since this replica first saw that. No clock is compared with another.
fn spread(config: &VersionedConfig, pod: &PodState, passed: Duration) -> Option<Duration> {
    let status = config.status.as_ref()?;
    let returns = matches!(
        status.rollout.stage,
        Some(RolloutStage::RollingBack | RolloutStage::Returning | RolloutStage::Leaving)
    );
    let within = match config.spec.rollout.rollback_spread_seconds {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None if pod.in_place => (SPREAD_EACH * status.pods.total).min(SPREAD_MOST),
        None => Duration::ZERO,
    };
    if !returns || within.is_zero() || !pod.ready || !pod.containers_ready {
        return None;
    }
    let share = f64::from(pod_number(Identity::of(config), pod.uid.as_str())) / f64::from(u32::MAX);
    within.mul_f64(share).checked_sub(passed).filter(|left| !left.is_zero())
}

/// What the pod should have, whose agent `has` that.
pub(super) fn views<'a>(
    index: &Index,
    contents: &Arc<ContentStore>,
    pod: &PodState,
    has: impl Fn(&ConfigName) -> Option<Has<'a>>,
) -> Views {
    let mut views = Views { all: Vec::with_capacity(pod.configs.len()), fetching: Vec::new(), again: None };
    let allowed = index.secrets_allowed(&pod.namespace);
    for name in &pod.configs {
        let key = ConfigKey::new(&*pod.namespace, name.clone());
        let (config, since) = index.config_since(&key).unzip();
        let (config, is_empty) = match config {
            // Until its status is there it is as if the config were not: agents keep what they have.
            Some(config) if is_importing(&config) && !has_current(&config) => (None, true),
            config => (config, false),
        };
        let ack_timeout_seconds = config.as_ref().map(|config| config.spec.rollout.ack_timeout_seconds);
        let spread = config.as_ref().zip(since).and_then(|(config, since)| spread(config, pod, since.elapsed()));
        let view = if let Some(config) = config.as_ref().filter(|config| !config.spec.admits(&pod.service_account)) {
            not_admitted(pod, name, config)
        } else if let Some(config) = config {
            kept(pod, name, &config, has(name))
                .unwrap_or_else(|| view(&mut views, contents, pod, name, &config, allowed))
        } else {
            let text = if is_empty {
                format!("config {name} is being imported; kubectl nudge import gives it its versions back")
            } else if index.is_left_out(&key) {
                format!(
                    "config {name} is left out, because namespace {} has too many configs; delete some",
                    pod.namespace
                )
            } else {
                format!(
                    "there is no config {name} in namespace {}; create a version of it, or take it out of the \
                     annotation nudge.dev/configs of the pod's template",
                    pod.namespace
                )
            };
            let content = Err(Arc::new(problem(HubReason::NotFound, text)));
            View {
                name: name.clone(),
                uid: String::new(),
                revision: 0,
                version: None,
                content,
                due: None,
                spread: None,
                ack_timeout_seconds: None,
            }
        };
        views.all.push(View { spread, ack_timeout_seconds, ..view });
    }
    bound(&mut views.all);
    views
}

fn has_current(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.current_version.is_some())
}

/// The config as an agent keeps it whose pod takes versions by restarts alone: what its processes were born with, for as long as it lives. The
/// content is there and is not sent again. `None` where there is nothing of it yet, or nothing else to take.
fn kept(pod: &PodState, name: &ConfigName, config: &VersionedConfig, has: Option<Has<'_>>) -> Option<View> {
    let (status, has) = (config.status.as_ref()?, has.filter(|_| pod.by_restart)?);
    let uid = config.metadata.uid.clone().unwrap_or_default();
    let due = assigned_version(status, Identity::of(config), pod)?;
    if (!has.uid.is_empty() && has.uid != uid) || is_same(status, has.version.as_str(), due) {
        return None;
    }
    let content = Content { block: Bytes::new(), sha256: has.sha256.to_owned(), secrets: Vec::new() };
    Some(View {
        name: name.clone(),
        uid,
        revision: status.internal.revision,
        version: Some(has.version.clone()),
        content: Ok(Arc::new(content)),
        due: VersionName::new(due).ok(),
        spread: None,
        ack_timeout_seconds: None,
    })
}

/// The config as a pod sees it whose service account the config does not list: nothing of its versions.
fn not_admitted(pod: &PodState, name: &ConfigName, config: &VersionedConfig) -> View {
    let account = &pod.service_account;
    let text = format!(
        "config {name} does not admit the service account {account} of this pod; add it to spec.allowedServiceAccounts of \
         VersionedConfig {name}, or take {name} out of the annotation nudge.dev/configs of the pod's template"
    );
    View {
        name: name.clone(),
        uid: config.metadata.uid.clone().unwrap_or_default(),
        revision: config.status.as_ref().map_or(0, |status| status.internal.revision),
        version: None,
        content: Err(Arc::new(problem(HubReason::NotAllowed, text))),
        due: None,
        spread: None,
        ack_timeout_seconds: None,
    }
}

fn view(
    views: &mut Views,
    contents: &Arc<ContentStore>,
    pod: &PodState,
    name: &ConfigName,
    config: &VersionedConfig,
    secrets_allowed: bool,
) -> View {
    let uid = config.metadata.uid.clone().unwrap_or_default();
    let status = config.status.as_ref();
    let revision = status.map_or(0, |status| status.internal.revision);
    let identity = Identity::of(config);
    let assigned = status.and_then(|status| assigned_version(status, identity, pod));
    let none = |text: String| Err(Arc::new(problem(HubReason::NotFound, text)));
    let Some(version) = assigned.and_then(|version| VersionName::new(version).ok()) else {
        let content = none(format!("config {name} has no current version yet; kubectl describe vcfg {name} says why"));
        return of_version(name, uid, revision, content);
    };
    let content = match status.and_then(|status| status.version(version.as_str())) {
        None => {
            none(format!("version {version} of config {name} is not sealed; kubectl describe vcfg {name} says why"))
        }
        Some(sealed) if !secrets_allowed && sealed.parts.iter().any(|part| part.kind == PartKind::Secret) => {
            let text = format!(
                "version {version} of config {name} has a Secret part, and namespace {} does not let Nudge read \
                 Secrets; bind the ClusterRoles nudge-secrets and nudge-secrets-hub there (kubectl nudge enable {} --secrets)",
                pod.namespace, pod.namespace
            );
            Err(Arc::new(problem(HubReason::NotAllowed, text)))
        }
        Some(sealed) => match contents.look(&ConfigKey::new(&*pod.namespace, name.clone()), &uid, identity, sealed) {
            Found::Content(content) => Ok(content),
            Found::Problem(problem, again) => {
                views.again = views.again.into_iter().chain([again]).min();
                Err(problem)
            }
            Found::Fetching(landed) => {
                views.fetching.push(landed);
                let text = format!("version {version} of config {name} is being read");
                Err(Arc::new(problem(HubReason::Resolving, text)))
            }
        },
    };
    View { version: Some(version), ..of_version(name, uid, revision, content) }
}

fn of_version(name: &ConfigName, uid: String, revision: u64, content: Result<Arc<Content>, Arc<HubProblem>>) -> View {
    let name = name.clone();
    View { name, uid, revision, version: None, content, due: None, spread: None, ack_timeout_seconds: None }
}

/// Leaves out what would push the pod's dictionary over its bound: the agent could not serve it.
fn bound(views: &mut [View]) {
    let mut sum = 0;
    for view in views {
        let Ok(content) = &view.content else { continue };
        if sum + content.block.len() > MAX_DICTIONARY_BYTES {
            let text = format!(
                "with config {} the pod's configs have more than {MAX_DICTIONARY_BYTES} bytes together; divide them \
                 among several pods",
                view.name
            );
            view.content = Err(Arc::new(problem(HubReason::TooLarge, text)));
        } else {
            sum += content.block.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::{VersionedConfigSpec, VersionedConfigStatus};
    use nudge_core::keys::PodUid;

    use super::*;

    #[test]
    fn pods_that_were_not_harmed_are_notified_of_a_return_one_after_the_other() {
        let after = Duration::from_secs;
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status = VersionedConfigStatus::default();
        status.rollout.stage = Some(RolloutStage::RollingBack);
        config.status = Some(status);
        config.spec.rollout.rollback_spread_seconds = Some(10);
        let pod = |number: u32| PodState {
            uid: PodUid::new(&format!("pod-{number}")).unwrap(),
            ready: true,
            containers_ready: true,
            ..PodState::default()
        };
        let delays = |config: &VersionedConfig, seconds| -> Vec<Option<Duration>> {
            (0..100).map(|number| spread(config, &pod(number), after(seconds))).collect()
        };
        let all: Vec<Duration> = delays(&config, 0).into_iter().flatten().collect();
        assert!(all.len() == 100 && all.iter().all(|delay| *delay < Duration::from_secs(10)));
        let early = all.iter().filter(|delay| **delay < Duration::from_secs(5)).count();
        assert!((30..70).contains(&early), "{early}");
        assert_eq!(delays(&config, 5).iter().flatten().count(), 100 - early);
        assert_eq!(delays(&config, 10).iter().flatten().count(), 0);
        let harmed = PodState { containers_ready: false, ..pod(1) };
        assert_eq!(spread(&config, &harmed, after(0)), None, "it is notified at once");
        config.status.as_mut().unwrap().rollout.stage = Some(RolloutStage::Moving);
        assert_eq!(spread(&config, &pod(1), after(0)), None);
    }

    #[test]
    fn without_a_word_only_pods_that_restart_in_place_return_one_after_the_other() {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status = VersionedConfigStatus::default();
        status.rollout.stage = Some(RolloutStage::RollingBack);
        config.status = Some(status);
        let longest = |config: &VersionedConfig, in_place| {
            let pod = |number: u32| PodState {
                uid: PodUid::new(&format!("pod-{number}")).unwrap(),
                ready: true,
                containers_ready: true,
                in_place,
                ..PodState::default()
            };
            (0..100).filter_map(|number| spread(config, &pod(number), Duration::ZERO)).max()
        };
        for (total, within) in [(1, 2), (5, 10), (10_000, 30)] {
            config.status.as_mut().unwrap().pods.total = total;
            assert_eq!(longest(&config, false), None);
            let longest = longest(&config, true).unwrap();
            let within = Duration::from_secs(within);
            assert!(longest < within && longest > within.mul_f64(0.8), "{total}: {longest:?}");
        }
        config.spec.rollout.rollback_spread_seconds = Some(0);
        assert_eq!(longest(&config, true), None);
    }
}
