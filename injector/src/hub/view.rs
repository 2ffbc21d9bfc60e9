//! What a pod should have of one config, by what this replica knows: pure, apart from looking at the contents kept.

use std::sync::Arc;

use nudge_protocol::hub::{HubProblem, HubReason};
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use nudge_protocol::{ConfigName, VersionName};
use tokio::sync::watch;
use tokio::time::Instant;

use super::content::{Content, problem};
use super::contents::{ContentStore, Found};
use crate::api::{PartKind, VersionedConfig};
use crate::rollout::assigned;
use crate::world::{ConfigKey, PodState, World};

/// One config of a pod as it should be.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) name: ConfigName,
    /// Empty while there is no such config.
    pub(super) uid: String,
    pub(super) revision: u64,
    pub(super) version: Option<VersionName>,
    pub(super) content: Result<Arc<Content>, Arc<HubProblem>>,
}

/// All configs of a pod.
pub(super) struct Views {
    pub(super) all: Vec<View>,
    /// One of the contents is under way, which shows as `Resolving`.
    pub(super) fetching: Option<watch::Receiver<()>>,
    /// When a problem is worth another look.
    pub(super) again: Option<Instant>,
}

/// What the pod should have.
pub(super) fn views(world: &World, contents: &Arc<ContentStore>, pod: &PodState) -> Views {
    let mut views = Views { all: Vec::with_capacity(pod.configs.len()), fetching: None, again: None };
    let allowed = world.secrets_allowed(&pod.namespace);
    for name in &pod.configs {
        let config = world.config(&ConfigKey::new(pod.namespace.clone(), name.as_str()));
        let view = if let Some(config) = config {
            view(&mut views, contents, pod, name, &config, allowed)
        } else {
            let text = format!(
                "there is no config {name} in namespace {}; create a version of it, or take it out of the annotation \
                 nudge.dev/configs of the pod's template",
                pod.namespace
            );
            let content = Err(Arc::new(problem(HubReason::NotFound, text)));
            View { name: name.clone(), uid: String::new(), revision: 0, version: None, content }
        };
        views.all.push(view);
    }
    bound(&mut views.all);
    views
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
    let revision = status.map_or(0, |status| status.rollout.revision);
    let assigned = status.and_then(|status| assigned(status, &uid, &pod.uid, &pod.workload));
    let none = |text: String| Err(Arc::new(problem(HubReason::NotFound, text)));
    let Some(version) = assigned.and_then(|version| VersionName::new(version).ok()) else {
        let content = none(format!("config {name} has no current version yet; kubectl describe vcfg {name} says why"));
        return View { name: name.clone(), uid, revision, version: None, content };
    };
    let content = match status.and_then(|status| status.version(version.as_str())) {
        None => {
            none(format!("version {version} of config {name} is not sealed; kubectl describe vcfg {name} says why"))
        }
        Some(sealed) if !secrets_allowed && sealed.parts.iter().any(|part| part.kind == PartKind::Secret) => {
            let text = format!(
                "version {version} of config {name} has a Secret part, and namespace {} does not let Nudge read \
                 Secrets; its admin allows it by binding the ClusterRole nudge-secrets there",
                pod.namespace
            );
            Err(Arc::new(problem(HubReason::NotAllowed, text)))
        }
        Some(sealed) => match contents.look(&pod.namespace, &uid, sealed) {
            Found::Content(content) => Ok(content),
            Found::Problem(problem, again) => {
                views.again = views.again.into_iter().chain([again]).min();
                Err(problem)
            }
            Found::Fetching(landed) => {
                views.fetching.get_or_insert(landed);
                let text = format!("version {version} of config {name} is being read");
                Err(Arc::new(problem(HubReason::Resolving, text)))
            }
        },
    };
    View { name: name.clone(), uid, revision, version: Some(version), content }
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
