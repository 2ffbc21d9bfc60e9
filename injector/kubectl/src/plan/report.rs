//! The plan of a version: the pods of each step, what happens to their containers, how long it takes, what blocks it,
//! and what nobody would see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{AgentlessPolicy, PartKind, RolloutStage, Watch};
use nudge_core::config::PlannedMove;
use nudge_core::identity::Identity;
use nudge_core::injection::{PodReads, Uptake, stated_keys};
use nudge_core::pods::{PodState, pod_state, unprobed_containers};
use nudge_core::restart::{ReadKeys, Workload};
use nudge_core::rollout::{Now, PlannedStep, SteadyTime, Subjects, is_same_content, move_time};
use nudge_core::versions::object_name;
use nudge_protocol::Notify;
use serde::Serialize;

use super::blockers::{Blocker, ConfigPods, blockers};
use super::cluster_facts::ClusterFacts;
use super::planned_version::PlannedVersion;
use crate::output::changes;
use crate::version::stored::ContentsByKind;

/// What a plan is made of.
pub(super) struct Subject {
    pub(super) planned: PlannedVersion,
    pub(super) facts: ClusterFacts,
    /// The contents of the current version, if the user may read them; empty without a current version.
    pub(super) before: Option<ContentsByKind>,
}

/// The plan of a version.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionPlan {
    pub(super) namespace: String,
    pub(crate) config: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<String>,
    /// The version; absent for one that Nudge would make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    pub(super) movement: Movement,
    /// The number of pods that steps move; absent if the user may not list pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pods: Option<usize>,
    /// The changed keys; absent if the user may not read one of the versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keys: Option<Vec<KeyPlan>>,
    /// The stage of a move to the version that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<RolloutStage>,
    /// The time; absent if nothing is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<TimePlan>,
    pub(super) steps: Vec<StepPlan>,
    pub(super) containers: Vec<ContainerPlan>,
    pub(super) restarts: Vec<RestartPlan>,
    pub(super) blockers: Vec<Blocker>,
    pub(super) unprobed: Vec<UnprobedPlan>,
    /// What the user may not read.
    pub(super) unread: Vec<String>,
}

/// The way pods come to the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Movement {
    /// No pod moves.
    Nothing,
    /// The version is the first one, and current at once.
    First,
    /// Pods go back all at once.
    Return,
    /// An override assigns the version to all pods at once.
    AtOnce,
    /// Pods move in steps.
    Steps,
}

/// A key whose value changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyPlan {
    pub(super) key: String,
    pub(super) change: &'static str,
}

/// The time that a move takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the document says the unit")]
pub(super) struct TimePlan {
    /// The minimum time, in seconds: watches, pauses, analyses and the bake.
    pub(super) least_seconds: u64,
    /// The time that pods have in addition to acknowledge the version, in seconds.
    pub(super) acknowledgement_seconds: u64,
    pub(super) bake_seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepPlan {
    pub(super) number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) pods: Vec<String>,
    /// The number of parts that go out one after the other, because pods restart in place.
    pub(super) parts: u32,
    pub(super) watch: Watch,
    pub(super) pause_seconds: u32,
}

/// What happens to a container of some pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerPlan {
    /// Empty for pods without a workload.
    pub(super) workload: String,
    pub(super) container: String,
    pub(super) effect: Effect,
    pub(super) reason: String,
    pub(super) pods: usize,
}

/// What happens to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Effect {
    Notified,
    Restarted,
    Untouched,
}

/// A workload that takes the version by a restart, after the bake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RestartPlan {
    pub(super) workload: String,
    pub(super) pods: i32,
    pub(super) effect: Effect,
    pub(super) reason: String,
}

/// The containers of a workload whose unreadiness nobody sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnprobedPlan {
    pub(super) workload: String,
    pub(super) containers: Vec<String>,
}

/// A pod of the config with what Nudge knows of it.
struct ConfigPod<'a> {
    object: &'a Pod,
    state: Arc<PodState>,
}

impl VersionPlan {
    pub(super) fn new(subject: &Subject, now: Timestamp) -> Self {
        let Subject { planned, facts, before } = subject;
        let config = &planned.config;
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let status = config.status.clone().unwrap_or_default();
        let pods = pods_of(subject);
        let states: Vec<Arc<PodState>> = pods.iter().map(|pod| Arc::clone(&pod.state)).collect();
        let subjects = Subjects::of(&states, name, Identity::of(config), &BTreeSet::new());
        let time = Time(now);
        let clocks = Now { time: &time, steady: SteadyTime(0) };
        let version = planned.version.as_deref();
        let mut course = PlannedMove::of(config, version.unwrap_or_default(), subjects.by_steps(), clocks);
        if version.is_none() && !planned.faults.is_empty() {
            course = PlannedMove::Nothing;
        }
        let moves = !matches!(course, PlannedMove::Nothing);
        let current = status.current_version.clone();
        let is_same = version.zip(current.as_deref()).is_some_and(|(new, old)| is_same_content(&status, new, old));
        let keys = if is_same { Some(Vec::new()) } else { keys(before.as_ref(), planned.contents.as_ref()) };
        let restarts = if moves { restarts(subject, keys.as_deref()) } else { Vec::new() };
        let is_restarted = restarts.iter().any(|restart| restart.effect == Effect::Restarted);
        let live: Vec<&PodState> = states.iter().map(|state| &**state).collect();
        let config_pods = ConfigPods { live: &live, by_steps: subjects.by_steps() };
        let steps = course.steps();
        let stage = status.rollout.stage.filter(|_| version.is_some() && status.target_version.as_deref() == version);
        let step = |step: &PlannedStep| StepPlan {
            number: step.number,
            name: step.name.clone(),
            pods: step.pods.iter().map(|index| subjects.by_steps()[*index].name.clone()).collect(),
            parts: step.parts,
            watch: step.watch.clone(),
            pause_seconds: step.pause_seconds,
        };
        // Without pods nothing is watched.
        let has_pods = !subjects.by_steps().is_empty();
        let is_watched = steps.iter().any(|step| step.healthy > 0);
        let bake_seconds = if is_watched { config.spec.rollout.bake_seconds } else { 0 };
        let move_time = move_time(&config.spec.rollout, steps);
        let time = TimePlan {
            least_seconds: move_time.least.as_secs(),
            acknowledgement_seconds: move_time.acknowledgement.as_secs(),
            bake_seconds,
        };
        Self {
            namespace: config.metadata.namespace.clone().unwrap_or_default(),
            config: name.to_owned(),
            version: planned.version.clone(),
            movement: match course {
                PlannedMove::Nothing => Movement::Nothing,
                PlannedMove::First => Movement::First,
                PlannedMove::Return => Movement::Return,
                PlannedMove::AtOnce(_) => Movement::AtOnce,
                PlannedMove::Steps(_) => Movement::Steps,
            },
            pods: facts.pods.as_ref().map(|_| subjects.by_steps().len()),
            stage,
            time: (has_pods && !steps.is_empty()).then_some(time),
            steps: if has_pods { steps.iter().map(step).collect() } else { Vec::new() },
            containers: if moves { containers(subject, &pods, keys.as_deref()) } else { Vec::new() },
            keys,
            blockers: blockers(planned, facts, &course, &config_pods, is_restarted, now),
            restarts,
            unprobed: if moves { unprobed(&pods) } else { Vec::new() },
            unread: planned.unread.iter().chain(&facts.unread).cloned().collect(),
            current,
        }
    }
}

/// Returns the pods that the version is assigned to, sorted by workload and name.
fn pods_of(subject: &Subject) -> Vec<ConfigPod<'_>> {
    let config = &subject.planned.config;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let has_config = |pod: &PodState| {
        let reads = pod.configs.iter().any(|config| config.as_str() == name);
        pod.is_live() && reads && config.spec.admits(&pod.service_account)
    };
    let with_state = |object| Some(ConfigPod { object, state: Arc::new(pod_state(object)?) });
    let mut pods: Vec<ConfigPod<'_>> = subject.facts.pods.iter().flatten().filter_map(with_state).collect();
    pods.retain(|pod| has_config(&pod.state));
    pods.sort_by(|one, other| (&one.state.workload, &one.state.name).cmp(&(&other.state.workload, &other.state.name)));
    pods
}

/// Returns the keys that change.
fn keys(before: Option<&ContentsByKind>, after: Option<&ContentsByKind>) -> Option<Vec<KeyPlan>> {
    let changes = changes::list(before?.clone(), after?.clone(), ("", ""));
    Some(changes.into_iter().map(|change| KeyPlan { key: change.key, change: change.what }).collect())
}

/// Returns whether one of these keys changes, or it is not known which do.
fn may_change(changed: Option<&[KeyPlan]>, is_read: impl Fn(&str) -> bool) -> bool {
    changed.is_none_or(|changed| changed.iter().any(|change| is_read(&change.key)))
}

/// Returns what happens to the containers of pods with an agent.
fn containers(subject: &Subject, pods: &[ConfigPod<'_>], changed: Option<&[KeyPlan]>) -> Vec<ContainerPlan> {
    let config = &subject.planned.config;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let default = PodSpec::default();
    let mut counts: BTreeMap<(String, String, Effect, String), usize> = BTreeMap::new();
    for ConfigPod { object, state } in pods {
        let reads = PodReads::of(&object.metadata, object.spec.as_ref().unwrap_or(&default));
        for uptake in reads.uptakes_of(name, |kind| config.spec.owns(kind)) {
            let keys = stated_keys(&object.metadata, uptake.container);
            let is_read = |key: &str| keys.iter().flatten().any(|pattern| pattern.matches(key));
            let (effect, reason) = match (effect(uptake.uptake), uptake.describe(&object.metadata)) {
                (Effect::Notified, reason) if keys.is_some() && !may_change(changed, is_read) => {
                    (Effect::Untouched, format!("{reason}, but it reads no key that changes"))
                }
                effect => effect,
            };
            let row = (state.workload_name().to_owned(), uptake.container.to_owned(), effect, reason);
            *counts.entry(row).or_default() += 1;
        }
    }
    let plan =
        |((workload, container, effect, reason), pods)| ContainerPlan { workload, container, effect, reason, pods };
    counts.into_iter().map(plan).collect()
}

/// Returns what happens to a container that takes a version in this way.
fn effect(uptake: Uptake) -> Effect {
    match uptake {
        Uptake::Notified(Notify::InPlace) | Uptake::Restart(_) => Effect::Restarted,
        Uptake::Notified(_) => Effect::Notified,
        Uptake::WatchesFiles | Uptake::Asks | Uptake::Itself => Effect::Untouched,
    }
}

/// Returns the workloads that take the version by a restart, and those that would if the config let them.
fn restarts(subject: &Subject, changed: Option<&[KeyPlan]>) -> Vec<RestartPlan> {
    let config = &subject.planned.config;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let owned: &[PartKind] = &config.spec.objects;
    let published = match config.spec.agentless_policy {
        AgentlessPolicy::Restart => owned,
        AgentlessPolicy::Ignore => &[],
    };
    let plan = |workload: &Workload| {
        let reads = reading(workload, name, owned);
        let (effect, reason) = match workload.foreseen_report() {
            _ if !workload.uses.takes(name, owned) => return None,
            _ if !workload.uses.has_live_agent && !workload.uses.takes(name, published) => {
                (Effect::Untouched, format!("{reads}, and spec.agentlessPolicy is Ignore"))
            }
            _ if is_unaffected(workload, name, published, changed) => {
                (Effect::Untouched, format!("{reads}, but no key that changes"))
            }
            Some(report) => (Effect::Untouched, format!("{reads}, but {}", report.why.message)),
            None => (Effect::Restarted, reads),
        };
        let pods = workload.replicas.map_or(0, |counts| counts.total);
        Some(RestartPlan { workload: workload.id().to_string(), pods, effect, reason })
    };
    let mut restarts: Vec<RestartPlan> = subject.facts.workloads.iter().filter_map(plan).collect();
    restarts.sort();
    restarts
}

/// Returns whether the pods of the workload read single keys of the objects alone, and none of these changes.
fn is_unaffected(workload: &Workload, config: &str, published: &[PartKind], changed: Option<&[KeyPlan]>) -> bool {
    let uses = &workload.uses;
    let read: Vec<&ReadKeys> = published.iter().filter_map(|kind| uses.keys_of(*kind, config)).collect();
    let is_same = |keys: &ReadKeys| match keys {
        ReadKeys::All => false,
        ReadKeys::Named(keys) => !may_change(changed, |key| keys.contains(key)),
    };
    !uses.configs.contains(config) && !read.is_empty() && read.into_iter().all(is_same)
}

/// Describes why the workload takes the version only by a restart.
fn reading(workload: &Workload, config: &str, owned: &[PartKind]) -> String {
    if workload.uses.configs.contains(config) {
        return "its pods have notify: rollout".to_owned();
    }
    let is_read = |kind: &PartKind| owned.contains(kind) && workload.uses.keys_of(*kind, config).is_some();
    let objects = PartKind::ALL.into_iter().filter(is_read).map(|kind| object_name(kind, config));
    let objects: Vec<String> = objects.collect();
    let agent = if workload.uses.has_live_agent { "" } else { " without an agent" };
    format!("its pods read {}{agent}", objects.join(" and "))
}

/// Returns the containers without a readiness probe, by workload.
fn unprobed(pods: &[ConfigPod<'_>]) -> Vec<UnprobedPlan> {
    let mut unprobed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for ConfigPod { object, state } in pods {
        let names = object.spec.iter().flat_map(|spec| unprobed_containers(spec)).map(str::to_owned);
        unprobed.entry(state.workload_name()).or_default().extend(names);
    }
    unprobed.retain(|_, names| !names.is_empty());
    let plan = |(workload, names): (&str, BTreeSet<String>)| UnprobedPlan {
        workload: workload.to_owned(),
        containers: names.into_iter().collect(),
    };
    unprobed.into_iter().map(plan).collect()
}
