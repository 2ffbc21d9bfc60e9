//! Finds out which version a pod should have of each of its configs, as far as this replica knows. Pure, apart from the
//! store of contents.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::index::Index;
use nudge_core::config::is_importing;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_core::restart::{StartState, starts_with_target};
use nudge_core::rollout::{assigned_version, is_same_content};
use nudge_protocol::hub::{HubProblem, HubReason, MountedSecrets, PollRequest, ReportRequest};
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use nudge_protocol::{BlockDigest, ConfigName, ConfigUid, SecretDigest, VersionName};
use tokio::sync::watch;
use tokio::time::Instant;

use super::content::{Content, problem};
use super::mounted_secrets;
use super::return_spread;
use super::store::{ContentLookup, ContentStore};

/// One config of a pod as the pod should have it.
#[derive(Clone, Debug)]
pub(crate) struct ConfigView {
    pub(crate) name: ConfigName,
    /// The uid as agents get it; `None` if there is no such config.
    pub(crate) uid: Option<ConfigUid>,
    pub(crate) revision: u64,
    pub(crate) version: Option<VersionName>,
    pub(crate) content: Result<Arc<Content>, Arc<HubProblem>>,
    /// The version that only a restart brings to this pod.
    pub(crate) restart_version: Option<VersionName>,
    /// What the pod read at its start, compared with its version.
    pub(crate) start: StartState,
    /// The delay until the pod is notified of the change, if its return is spread.
    pub(crate) spread: Option<Duration>,
    /// The timeout of the acknowledgement by the pod's containers.
    pub(crate) ack_timeout_seconds: Option<u32>,
    /// The verdict about the Secret parts that the pod has mounted, if the agent requests it.
    pub(crate) mounted_secrets: Option<MountedSecrets>,
}

impl ConfigView {
    pub(crate) fn new(name: &ConfigName, content: Result<Arc<Content>, Arc<HubProblem>>) -> Self {
        Self {
            name: name.clone(),
            uid: None,
            revision: 0,
            version: None,
            content,
            restart_version: None,
            start: StartState::Present,
            spread: None,
            ack_timeout_seconds: None,
            mounted_secrets: None,
        }
    }
}

/// All configs of a pod as the pod should have them.
pub(crate) struct ConfigViews {
    pub(crate) views: Vec<ConfigView>,
    /// The contents that are being fetched, which show as `Resolving`.
    pub(crate) fetching: Vec<watch::Receiver<()>>,
    /// The time when a problem may be gone.
    pub(crate) next_check: Option<Instant>,
}

/// An agent's copy of one config.
pub(crate) struct AgentCopy<'a> {
    /// The uid of the config as the agent has it; `None` if the copy is not from the hub.
    uid: Option<&'a ConfigUid>,
    version: &'a VersionName,
    /// The digest of the content, if the agent reports it.
    sha256: Option<&'a BlockDigest>,
    /// The digests of mounted Secret parts that were not compared with what was sealed.
    mounted_secrets: &'a [SecretDigest],
}

impl<'a> AgentCopy<'a> {
    pub(crate) fn polled(request: &'a PollRequest, name: &ConfigName) -> Option<Self> {
        let config = request.configs.iter().find(|config| config.name == *name && config.sha256.is_some())?;
        Some(Self {
            uid: config.uid.as_ref(),
            version: config.version.as_ref()?,
            sha256: config.sha256.as_ref(),
            mounted_secrets: &config.mounted_secrets,
        })
    }

    pub(crate) fn reported(report: &'a ReportRequest, name: &ConfigName) -> Option<Self> {
        let config = report.configs.iter().find(|config| config.name == *name)?;
        Some(Self { uid: config.uid.as_ref(), version: config.version.as_ref()?, sha256: None, mounted_secrets: &[] })
    }
}

/// Returns the configs that a pod should have, given the copies that its agent has.
pub(crate) fn config_views<'a>(
    index: &Index,
    store: &Arc<ContentStore>,
    pod: &PodState,
    copy: impl Fn(&ConfigName) -> Option<AgentCopy<'a>>,
) -> ConfigViews {
    let mut views =
        ConfigViews { views: Vec::with_capacity(pod.configs.len()), fetching: Vec::new(), next_check: None };
    let secrets_allowed = index.may_read_secrets(&pod.namespace);
    for name in &pod.configs {
        let key = ConfigKey::new(&*pod.namespace, name.clone());
        let view = match index.config_since(&key) {
            // Without its status the config counts as missing, so that agents keep their copies.
            Some((config, _)) if is_importing(&config) && !has_current(&config) => {
                let message =
                    format!("kubectl nudge import has not given config {name} its versions yet; wait until it ends");
                ConfigView::new(name, unavailable(HubReason::NotFound, message))
            }
            Some((config, since)) => ConfigView {
                uid: config.metadata.uid.clone().and_then(ConfigUid::new),
                revision: config.status.as_ref().map_or(0, |status| status.internal.revision),
                spread: return_spread::remaining_delay(&config, pod, since.elapsed()),
                ack_timeout_seconds: Some(config.spec.rollout.ack_timeout_seconds),
                ..if config.spec.admits(&pod.service_account) {
                    let copy = copy(name);
                    let mounted_secrets =
                        copy.as_ref().and_then(|copy| compare_mounted(store, pod, &key, &config, copy));
                    // What is not what was sealed is replaced at once.
                    let copy = copy.filter(|_| !matches!(mounted_secrets, Some(MountedSecrets::Changed { .. })));
                    let view = view_until_restart(pod, name, &config, copy)
                        .unwrap_or_else(|| assigned_view(&mut views, store, pod, name, &config, secrets_allowed));
                    ConfigView { mounted_secrets, ..view }
                } else {
                    not_admitted_view(pod, name)
                }
            },
            None => missing_view(index, &key),
        };
        views.views.push(view);
    }
    bound_views(&mut views.views);
    views
}

fn unavailable(reason: HubReason, message: String) -> Result<Arc<Content>, Arc<HubProblem>> {
    Err(Arc::new(problem(reason, message)))
}

fn has_current(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.current_version.is_some())
}

fn missing_view(index: &Index, key: &ConfigKey) -> ConfigView {
    let ConfigKey { namespace, name } = key;
    let message = if index.is_left_out(key) {
        format!("the hub leaves config {name} out, because namespace {namespace} has too many configs; delete some")
    } else {
        format!(
            "there is no config {name} in namespace {namespace}; create a version of it, or take it out of the \
             annotation nudge.dev/configs of the pod's template"
        )
    };
    ConfigView::new(name, unavailable(HubReason::NotFound, message))
}

/// Compares the Secret parts that the pod has mounted with what was sealed.
fn compare_mounted(
    store: &ContentStore,
    pod: &PodState,
    key: &ConfigKey,
    config: &VersionedConfig,
    copy: &AgentCopy<'_>,
) -> Option<MountedSecrets> {
    let digests = Some(copy.mounted_secrets).filter(|digests| !digests.is_empty())?;
    let (status, version) = (config.status.as_ref()?, copy.version.as_str());
    let seals = mounted_secrets::seals_of(status, version, pod)?;
    mounted_secrets::compare(version, &seals, digests, &store.seals(key, Identity::of(config)))
}

/// Returns the config for the agent of a pod that changes versions only by restarts: with the version that the pod's
/// processes started with. The content is not sent, since the agent has it. `None` if the agent has no version yet, or
/// has the assigned version.
fn view_until_restart(
    pod: &PodState,
    name: &ConfigName,
    config: &VersionedConfig,
    copy: Option<AgentCopy<'_>>,
) -> Option<ConfigView> {
    let (status, copy) = (config.status.as_ref()?, copy.filter(|_| pod.is_by_restart())?);
    let version = assigned_version(status, Identity::of(config), pod)?;
    let is_of_other_config =
        copy.uid.is_some_and(|uid| uid.as_str() != config.metadata.uid.as_deref().unwrap_or_default());
    if is_of_other_config || is_same_content(status, copy.version.as_str(), version) {
        return None;
    }
    let content = Content { block: Bytes::new(), sha256: copy.sha256.cloned(), secrets: Vec::new() };
    Some(ConfigView {
        version: Some(copy.version.clone()),
        restart_version: VersionName::new(version).ok(),
        ..ConfigView::new(name, Ok(Arc::new(content)))
    })
}

/// Returns the config for a pod whose service account the config does not list: nothing of its versions.
fn not_admitted_view(pod: &PodState, name: &ConfigName) -> ConfigView {
    let account = &pod.service_account;
    let message = format!(
        "config {name} does not admit the service account {account} of this pod; add it to \
         spec.allowedServiceAccounts of the config, or remove {name} from annotation nudge.dev/configs of the pod's \
         template"
    );
    ConfigView::new(name, unavailable(HubReason::NotAllowed, message))
}

/// Returns the config with the version that the pod is assigned.
fn assigned_view(
    views: &mut ConfigViews,
    store: &Arc<ContentStore>,
    pod: &PodState,
    name: &ConfigName,
    config: &VersionedConfig,
    secrets_allowed: bool,
) -> ConfigView {
    let (status, identity) = (config.status.as_ref(), Identity::of(config));
    let version = status.and_then(|status| assigned_version(status, identity, pod));
    let Some(version) = version.and_then(|version| VersionName::new(version).ok()) else {
        let message = format!("config {name} has no current version yet; kubectl describe vcfg {name} says why");
        return ConfigView::new(name, unavailable(HubReason::NotFound, message));
    };
    let namespace = &pod.namespace;
    let content = match status.and_then(|status| status.version(version.as_str())) {
        None => {
            let message =
                format!("version {version} of config {name} is not sealed; kubectl describe vcfg {name} says why");
            unavailable(HubReason::NotFound, message)
        }
        Some(sealed) if !secrets_allowed && sealed.parts.iter().any(|part| part.kind == PartKind::Secret) => {
            let message = format!(
                "version {version} of config {name} has a Secret part, and namespace {namespace} does not let Nudge \
                 read Secrets; bind the ClusterRoles nudge-secrets and nudge-secrets-hub there (kubectl nudge enable \
                 {namespace} --secrets)"
            );
            unavailable(HubReason::NotAllowed, message)
        }
        Some(sealed) => {
            let key = ConfigKey::new(&**namespace, name.clone());
            match store.find_or_fetch(&key, config.metadata.uid.as_deref().unwrap_or_default(), identity, sealed) {
                ContentLookup::Content(content) => Ok(content),
                ContentLookup::Problem(problem, next_check) => {
                    views.next_check = views.next_check.into_iter().chain([next_check]).min();
                    Err(problem)
                }
                ContentLookup::Fetching(fetch_end) => {
                    views.fetching.push(fetch_end);
                    let message = format!("version {version} of config {name} is being read");
                    unavailable(HubReason::Resolving, message)
                }
            }
        }
    };
    let is_target = status.is_some_and(|status| status.target_version.as_deref() == Some(version.as_str()));
    let start_of = status.filter(|_| is_target).map(|status| starts_with_target(config, status));
    let start = start_of.map_or(StartState::Present, |start_of| start_of(pod));
    ConfigView { version: Some(version), start, ..ConfigView::new(name, content) }
}

/// Leaves out the contents that would make the pod's dictionary too large for the agent.
fn bound_views(views: &mut [ConfigView]) {
    let mut bytes = 0;
    for view in views {
        let Ok(content) = &view.content else { continue };
        if bytes + content.block.len() > MAX_DICTIONARY_BYTES {
            let message = format!(
                "with config {} the pod's configs have more than {MAX_DICTIONARY_BYTES} bytes together; divide them \
                 among several pods",
                view.name
            );
            view.content = unavailable(HubReason::TooLarge, message);
        } else {
            bytes += content.block.len();
        }
    }
}
