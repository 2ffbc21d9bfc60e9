//! What the status of a config should be: which version is current, and in plain words why not the one that is wanted.
//!
//! Pure: the object, its parts, its pods and the time in; the next status and what to tell out.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::PartKind;
use nudge_api::{
    ConditionType, Consent, Phase, PodCounts, VersionState, VersionedConfig, VersionedConfigStatus, clipped, condition,
    find_condition, set_condition,
};
use nudge_protocol::VersionName;

use super::inventory::{Inventory, inventory};
use super::seal_check::{Facts, SealCheck};
use crate::keys::PartMeta;
use crate::pods::PodState;
use crate::rollout::{Restarts, Situation, Step, Subject, step, to_publish, told};

/// What is known of a config.
pub struct Observed<'a> {
    /// The object.
    pub config: &'a VersionedConfig,
    /// The objects with its label.
    pub parts: &'a [Arc<PartMeta>],
    /// What is known of their contents.
    pub facts: &'a Facts,
    /// The namespace's Secrets can be seen.
    pub secrets_known: bool,
    /// The pods that use it.
    pub pods: &'a [Arc<PodState>],
    /// Nodes of these pods that are not Ready, as far as they were looked at.
    pub nodes_away: &'a BTreeSet<String>,
    /// Another config that shares pods with this one and is being moved.
    pub waiting_for: Option<&'a str>,
    /// The version that the plain ConfigMap was last brought to, or that could not be written there.
    pub published: Option<&'a str>,
    /// Where the workloads that are restarted stand.
    pub restart: &'a Restarts,
    /// Now.
    pub now: &'a Time,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The status as it should be.
    pub status: VersionedConfigStatus,
    /// Objects whose content must be read before more can be decided.
    pub unread: Vec<(PartKind, String)>,
    /// What is worth an Event.
    pub notes: Vec<Note>,
    /// When to look again although nothing is seen to change.
    pub again: Option<Time>,
}

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Somebody should act.
    pub warning: bool,
    /// A word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Why the wanted version can't be moved to.
struct Obstacle {
    reason: &'static str,
    message: String,
    /// Only a person can mend it.
    stuck: bool,
}

impl Obstacle {
    /// What is missing may be a Secret.
    fn with_hint(mut self) -> Self {
        if matches!(self.reason, "VersionMissing" | "VersionIncomplete") {
            self.message += " (Secrets of this namespace can't be seen: ClusterRole nudge-secrets is not bound)";
        }
        self
    }
}

/// Most steps of a rollout at one look.
const MOST_STEPS: usize = 16;

/// Decides.
pub fn decide(observed: &Observed<'_>) -> Decision {
    let Observed { config, parts, facts, secrets_known, pods, now, .. } = *observed;
    let before = config.status.clone().unwrap_or_default();
    let inventory = inventory(&before, parts, facts, secrets_known, config.spec.current.as_deref(), now);
    let mut status = before.clone();
    status.versions.clone_from(&inventory.sealed);
    status.retired.clone_from(&inventory.retired);
    status.observed_generation = config.metadata.generation;

    let outcome = desired(config, &inventory).and_then(|version| possible(config, &version, &inventory));
    let outcome = outcome.map_err(|obstacle| if secrets_known { obstacle } else { obstacle.with_hint() });
    let mut notes: Vec<Note> = inventory
        .new
        .iter()
        .map(|version| Note { warning: false, reason: "Sealed", message: format!("version {version} is complete") })
        .collect();
    // While what is wanted can't be moved to, pods stay with what is current, or return to it.
    let aim = outcome.as_ref().ok().cloned().or_else(|| status.current.clone());
    let (moved, more) = aim.map(|aim| walk(&mut status, observed, &aim)).unwrap_or_default();
    notes.extend(more);
    if outcome.is_err() && status.rollout.stage.is_none() {
        status.phase = Phase::Waiting;
    }
    mark_states(&mut status);
    status.pods = count(&status, config.metadata.uid.as_deref().unwrap_or_default(), config, pods);
    notes.extend(set_conditions(&mut status, &before, config, &outcome.map(drop), &moved, &inventory, now));
    Decision { status, unread: inventory.unread, notes, again: moved.again }
}

/// Takes steps towards `aim` until there is something to wait for.
fn walk(status: &mut VersionedConfigStatus, observed: &Observed<'_>, aim: &str) -> (Step, Vec<Note>) {
    let config = observed.config;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let uid = config.metadata.uid.as_deref().unwrap_or_default();
    let subject = |pod: &Arc<PodState>| Subject::of(pod, name, uid, !observed.nodes_away.contains(&pod.node));
    // Batches can't move what takes a version by a restart, and it proves nothing.
    let moved = observed.pods.iter().filter(|pod| !pod.by_restart);
    let subjects: Vec<Subject> = moved.filter_map(subject).collect();
    let mut notes = Vec::new();
    for _ in 0..MOST_STEPS {
        let published = to_publish(status).is_none_or(|version| observed.published == Some(version));
        let made = step(
            status,
            &Situation {
                spec: &config.spec.rollout,
                generation: config.metadata.generation.unwrap_or_default(),
                desired: aim,
                pods: &subjects,
                waiting_for: observed.waiting_for,
                published,
                restart: observed.restart,
                now: observed.now,
            },
        );
        if let Some((warning, reason, message)) = &made.told {
            notes.push(Note { warning: *warning, reason, message: message.clone() });
        }
        if !made.more {
            return (made, notes);
        }
    }
    // The rest at the next look.
    (Step { again: Some(observed.now.clone()), ..Step::default() }, notes)
}

/// The version that should be current.
fn desired(config: &VersionedConfig, inventory: &Inventory) -> Result<String, Obstacle> {
    let current = config.status.as_ref().and_then(|status| status.current.clone());
    let first = || inventory.sealed.iter().find(|sealed| sealed.consent.is_none()).map(|sealed| sealed.version.clone());
    config.spec.current.clone().or(current).or_else(first).ok_or_else(|| {
        if let Some(sealed) = inventory.sealed.first() {
            return not_authorized(config, &sealed.version);
        }
        let name = config.metadata.name.as_deref().unwrap_or_default();
        match inventory.others.iter().next() {
            Some((version, seal_check)) => obstacle(version, seal_check),
            None => Obstacle {
                reason: "VersionMissing",
                message: format!(
                    "there is no version yet; create a ConfigMap with the labels nudge.dev/config: {name} and nudge.dev/version"
                ),
                stuck: false,
            },
        }
    })
}

/// Nobody who may decide what the plain ConfigMap holds has said so.
fn not_authorized(config: &VersionedConfig, version: &str) -> Obstacle {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Obstacle {
        reason: "VersionNotAuthorized",
        message: format!(
            "version {version} was made by somebody who may not update ConfigMap {name}, or while Nudge could not ask, so it does not \
             become current by itself; whoever may update that ConfigMap makes it current with kubectl nudge use {name} {version}"
        ),
        stuck: true,
    }
}

fn obstacle(version: &str, seal_check: &SealCheck) -> Obstacle {
    let (reason, message, stuck) = match seal_check {
        SealCheck::Incomplete(message) => ("VersionIncomplete", message.clone(), false),
        SealCheck::Invalid(message) => ("VersionInvalid", message.clone(), true),
        // A complete version would have been sealed.
        SealCheck::Unread(_) | SealCheck::Complete { .. } => {
            ("VersionIncomplete", format!("version {version} is being read"), false)
        }
    };
    Obstacle { reason, message, stuck }
}

/// The version, if pods can be moved to it.
fn possible(config: &VersionedConfig, version: &str, inventory: &Inventory) -> Result<String, Obstacle> {
    if let Some(sealed) = inventory.find(version) {
        if sealed.consent == Some(Consent::NeededAnew) {
            return Err(not_authorized(config, version));
        }
        return match sealed.state {
            VersionState::Broken => Err(Obstacle {
                reason: "VersionIncomplete",
                message: format!("an object of version {version} is gone or was replaced; put it back as it was"),
                stuck: false,
            }),
            _ => Ok(version.to_owned()),
        };
    }
    match inventory.others.get(version) {
        Some(seal_check) => Err(obstacle(version, seal_check)),
        None => Err(Obstacle {
            reason: "VersionMissing",
            message: format!(
                "version {version} is not there; create it, or set spec.current to one of: {}",
                listed(inventory.sealed.iter().map(|sealed| sealed.version.as_str()))
            ),
            stuck: false,
        }),
    }
}

/// At most ten names, newest first, or a word for none.
fn listed<'a>(versions: impl DoubleEndedIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = versions.rev().take(10).collect();
    if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }
}

fn mark_states(status: &mut VersionedConfigStatus) {
    let (current, target) = (status.current.clone(), status.target.clone());
    let failed = status.rollout.failure.as_ref().map(|failure| failure.version.clone());
    for version in &mut status.versions {
        if version.state == VersionState::Broken {
            continue;
        }
        let is = |other: &Option<String>| Some(&version.version) == other.as_ref();
        version.state = if is(&current) {
            VersionState::Current
        } else if is(&failed) {
            VersionState::Failed
        } else if is(&target) {
            VersionState::Target
        } else {
            VersionState::Available
        };
    }
}

fn count(status: &VersionedConfigStatus, uid: &str, config: &VersionedConfig, pods: &[Arc<PodState>]) -> PodCounts {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let mut counts = PodCounts::default();
    for pod in pods.iter().filter(|pod| !pod.terminating && !pod.finished) {
        counts.total += 1;
        let told = told(status, uid, pod);
        if told.is_some() && pod.runs(name).map(VersionName::as_str) == told {
            counts.updated += 1;
            counts.ready += u32::from(pod.ready);
        }
        counts.failed += u32::from(pod.failure().is_some());
    }
    counts.skipped = u32::try_from(status.rollout.skipped.len()).unwrap_or(u32::MAX);
    counts.summary = format!("{}/{}", counts.updated, counts.total);
    counts
}

fn set_conditions(
    status: &mut VersionedConfigStatus,
    before: &VersionedConfigStatus,
    config: &VersionedConfig,
    outcome: &Result<(), Obstacle>,
    moved: &Step,
    inventory: &Inventory,
    now: &Time,
) -> Vec<Note> {
    let mut notes = Vec::new();
    let generation = config.metadata.generation;
    let set = |status: &mut VersionedConfigStatus, kind, on: Option<bool>, reason: &str, message: String| match on {
        Some(on) => set_condition(&mut status.conditions, condition(kind, on, reason, message, generation, now)),
        None => status.conditions.retain(|condition| condition.type_ != kind.as_str()),
    };
    let (ready, reason, message, moving, stuck) = match outcome {
        Ok(()) if status.phase == Phase::Current && status.rollout.stage.is_none() => {
            let version = status.current.clone().unwrap_or_default();
            (true, "Current", format!("version {version} is current"), false, false)
        }
        Ok(()) => {
            let (reason, message) = match &moved.waits {
                Some(waits) => (waits.word, waits.message.clone()),
                None => ("Progressing", format!("moving to version {}", status.target.clone().unwrap_or_default())),
            };
            let stuck = moved.held && reason != "Paused";
            (false, reason, message, !stuck, stuck)
        }
        Err(obstacle) => (false, obstacle.reason, obstacle.message.clone(), !obstacle.stuck, obstacle.stuck),
    };
    if let Err(obstacle) = outcome {
        let message = clipped(obstacle.message.clone());
        let known =
            find_condition(&before.conditions, ConditionType::Ready).is_some_and(|ready| ready.message == message);
        if !known && obstacle.stuck {
            notes.push(Note { warning: true, reason: obstacle.reason, message: obstacle.message.clone() });
        }
    }
    set(status, ConditionType::Ready, Some(ready), reason, message.clone());
    set(status, ConditionType::Reconciling, moving.then_some(true), reason, message.clone());
    set(status, ConditionType::Stalled, stuck.then_some(true), reason, message);

    let mut messages = inventory.conflicts.clone();
    for (version, seal_check) in &inventory.others {
        if let SealCheck::Invalid(message) = seal_check
            && config.spec.current.as_ref() != Some(version)
        {
            messages.push(message.clone());
        }
    }
    let old = find_condition(&before.conditions, ConditionType::Conflict);
    let text = clipped(messages.join("; "));
    if !messages.is_empty() && old.is_none_or(|old| old.message != text) {
        notes.push(Note { warning: true, reason: "Conflict", message: text.clone() });
    }
    set(status, ConditionType::Conflict, (!messages.is_empty()).then_some(true), "Conflict", text);
    // What others say of it was not changed by an edit of spec, and whoever waits for it (kubectl wait) takes nothing about an older one.
    for condition in &mut status.conditions {
        condition.observed_generation = generation;
    }
    notes
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;
    use nudge_protocol::ConfigName;

    use super::super::seal_check::tests::{facts, part};
    use super::*;
    use crate::keys::PodUid;
    use crate::pods::{Report, ReportState};

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    struct Scene {
        config: VersionedConfig,
        parts: Vec<Arc<PartMeta>>,
        facts: Facts,
        now: i64,
    }

    impl Scene {
        fn new(current: Option<&str>) -> Self {
            let spec = VersionedConfigSpec { current: current.map(str::to_owned), ..VersionedConfigSpec::default() };
            let mut config = VersionedConfig::new("shop", spec);
            config.metadata.uid = Some("uid".to_owned());
            config.metadata.generation = Some(1);
            Self { config, parts: Vec::new(), facts: Facts::new(), now: 1 }
        }

        fn with(mut self, version: &str) -> Self {
            self.add(version);
            self
        }

        fn add(&mut self, version: &str) {
            let part = Arc::new(part(PartKind::ConfigMap, &format!("shop-{version}"), version));
            self.facts.insert(part.uid.clone(), facts(&part, version));
            self.parts.push(part);
        }

        /// A version whose maker was not asked.
        fn add_unmarked(&mut self, version: &str) {
            self.add(version);
            let uid = &self.parts[self.parts.len() - 1].uid;
            self.facts.get_mut(uid).unwrap().marked = false;
        }

        /// Decides until nothing changes.
        fn step(&mut self) -> Decision {
            let mut notes = Vec::new();
            loop {
                self.now += 1;
                let observed = Observed {
                    config: &self.config,
                    parts: &self.parts,
                    facts: &self.facts,
                    secrets_known: true,
                    pods: &[],
                    nodes_away: &BTreeSet::new(),
                    waiting_for: None,
                    published: self.config.status.as_ref().and_then(to_publish),
                    restart: &Restarts::Done,
                    now: &at(self.now),
                };
                let decision = decide(&observed);
                notes.extend(decision.notes.clone());
                if self.config.status.as_ref() == Some(&decision.status) {
                    return Decision { notes, ..decision };
                }
                self.config.status = Some(decision.status.clone());
            }
        }

        fn ready(&self) -> (String, String, String) {
            let status = self.config.status.as_ref().unwrap();
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
            (ready.status.clone(), ready.reason.clone(), ready.message.clone())
        }
    }

    #[test]
    fn the_first_version_becomes_current_and_stays_it() {
        let mut scene = Scene::new(None);
        scene.step();
        assert_eq!(scene.ready().1, "VersionMissing");
        scene.add("1");
        let status = scene.step().status;
        assert_eq!((status.current.as_deref(), status.phase), (Some("1"), Phase::Current));
        scene.add("0");
        assert_eq!(scene.step().status.current.as_deref(), Some("1"));
    }

    #[test]
    fn nothing_moves_to_a_version_that_is_not_there() {
        let mut scene = Scene::new(Some("1")).with("1");
        let first = scene.step().status;
        scene.config.spec.current = Some("2".to_owned());
        let waiting = scene.step().status;
        assert_eq!((waiting.phase, waiting.current.as_deref()), (Phase::Waiting, Some("1")));
        assert_eq!(waiting.rollout.revision, first.rollout.revision);
        assert_eq!(scene.ready().2, "version 2 is not there; create it, or set spec.current to one of: 1");
        scene.add("2");
        let moved = scene.step().status;
        assert_eq!((moved.current.as_deref(), moved.previous.as_deref()), (Some("2"), Some("1")));
        assert!(moved.rollout.revision > first.rollout.revision);
        assert_eq!(scene.ready().0, "True");
    }

    #[test]
    fn what_nobody_was_asked_about_does_not_become_current_by_itself() {
        let mut scene = Scene::new(None);
        scene.add_unmarked("6");
        let waiting = scene.step();
        assert_eq!((waiting.status.current, waiting.status.phase), (None, Phase::Waiting));
        assert_eq!(scene.ready().1, "VersionNotAuthorized");
        assert!(scene.ready().2.ends_with("makes it current with kubectl nudge use shop 6"), "{}", scene.ready().2);
        assert!(waiting.notes.iter().any(|note| note.warning && note.reason == "VersionNotAuthorized"));
        // A change of anything else is no consent.
        scene.config.metadata.generation = Some(2);
        scene.config.spec.rollout.paused = true;
        assert_eq!(scene.step().status.current, None);
        scene.config.spec.rollout.paused = false;
        scene.add("7");
        assert_eq!(scene.step().status.current.as_deref(), Some("7"), "the first that somebody was asked about");
        scene.config.spec.current = Some("6".to_owned());
        assert_eq!(scene.step().status.current.as_deref(), Some("6"), "consent");
        scene.config.spec.current = None;
        assert_eq!(scene.step().status.current.as_deref(), Some("6"), "and it stays");
    }

    #[test]
    fn what_was_named_before_it_was_made_must_be_named_anew() {
        let mut scene = Scene::new(Some("1")).with("1");
        scene.step();
        scene.config.spec.current = Some("2".to_owned());
        scene.step();
        scene.add_unmarked("2");
        let held = scene.step().status;
        assert_eq!((held.current.as_deref(), held.phase), (Some("1"), Phase::Waiting));
        assert_eq!(scene.ready().1, "VersionNotAuthorized");
        scene.config.metadata.generation = Some(2);
        scene.config.spec.rollout.paused = true;
        assert_eq!(scene.step().status.target, None, "a change of anything else is no consent");
        scene.config.spec.rollout.paused = false;
        scene.config.spec.current = Some("1".to_owned());
        assert_eq!(scene.step().status.phase, Phase::Current);
        scene.config.spec.current = Some("2".to_owned());
        assert_eq!(scene.step().status.current.as_deref(), Some("2"));
    }

    #[test]
    fn one_unmarked_part_is_enough() {
        let mut scene = Scene::new(None).with("1").with("2");
        for (index, name) in ["1", "2"].iter().enumerate() {
            let mut part = (*scene.parts[index]).clone();
            (part.version, part.part, part.parts) = ("1".to_owned(), Some((*name).to_owned()), Some("2".to_owned()));
            scene.parts[index] = Arc::new(part);
        }
        let uid = scene.parts[1].uid.clone();
        scene.facts.get_mut(&uid).unwrap().marked = false;
        assert_eq!(scene.step().status.current, None);
        assert_eq!(scene.ready().1, "VersionNotAuthorized");
    }

    #[test]
    fn the_current_version_is_put_back_by_anybody() {
        let mut scene = Scene::new(Some("1")).with("1");
        scene.step();
        let (parts, facts) = (std::mem::take(&mut scene.parts), scene.facts.clone());
        assert_eq!(scene.step().status.retired.len(), 1);
        (scene.parts, scene.facts) = (parts, facts);
        scene.facts.values_mut().for_each(|facts| facts.marked = false);
        assert_eq!(scene.step().status.phase, Phase::Current);
    }

    #[test]
    fn both_orders_of_creation_end_the_same() {
        let mut one = Scene::new(Some("1"));
        one.step();
        one.add("1");
        one.step();
        let mut two = Scene::new(None).with("1");
        two.step();
        two.config.spec.current = Some("1".to_owned());
        two.step();
        let [one, two] = [one, two].map(|scene| scene.config.status.unwrap());
        assert_eq!((one.current, one.phase), (two.current, two.phase));
    }

    #[test]
    fn a_status_that_was_lost_does_not_count_from_the_start() {
        let mut scene = Scene::new(Some("1")).with("1");
        let first = scene.step().status.rollout.revision;
        scene.config.status = None;
        assert!(scene.step().status.rollout.revision > first);
    }

    #[test]
    fn an_invalid_version_is_stalled_and_told_once() {
        let mut scene = Scene::new(Some("1")).with("1");
        let uid = scene.parts[0].uid.clone();
        scene.facts.get_mut(&uid).unwrap().immutable = false;
        assert_eq!(scene.step().notes.len(), 1);
        assert_eq!(scene.ready().1, "VersionInvalid");
        assert!(scene.config.status.as_ref().unwrap().conditions.iter().any(|condition| condition.type_ == "Stalled"));
        assert!(scene.step().notes.is_empty());
    }

    #[test]
    fn a_paused_move_is_held_and_then_made() {
        let mut scene = Scene::new(Some("1")).with("1").with("2");
        scene.step();
        scene.config.spec.current = Some("2".to_owned());
        scene.config.spec.rollout.paused = true;
        let held = scene.step().status;
        assert_eq!((held.current.as_deref(), held.target.as_deref()), (Some("1"), Some("2")));
        assert_eq!(scene.ready().1, "Paused");
        scene.config.spec.rollout.paused = false;
        let moved = scene.step().status;
        assert_eq!((moved.current.as_deref(), moved.target), (Some("2"), None));
    }

    #[test]
    fn every_condition_is_about_the_spec_that_was_seen() {
        let mut scene = Scene::new(Some("1")).with("1");
        scene.step();
        let published = condition(ConditionType::Published, true, "Published", "m".to_owned(), Some(1), &at(1));
        set_condition(&mut scene.config.status.as_mut().unwrap().conditions, published);
        scene.config.metadata.generation = Some(2);
        let status = scene.step().status;
        assert!(status.conditions.len() > 1);
        assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(2)), "{status:?}");
        let published = status.conditions.iter().find(|condition| condition.type_ == "Published").unwrap();
        assert_eq!(published.last_transition_time, at(1), "only who waits for a generation sees a difference");
    }

    #[test]
    fn deciding_twice_changes_nothing() {
        let mut scene = Scene::new(Some("1")).with("1").with("2");
        let first = scene.step();
        assert_eq!(first.notes.len(), 3);
        let second = scene.step();
        assert_eq!((second.status, second.notes.len()), (first.status, 0));
    }

    #[test]
    fn a_current_version_that_is_gone_is_named_and_kept() {
        let mut scene = Scene::new(Some("1")).with("1");
        scene.step();
        scene.parts.clear();
        let status = scene.step().status;
        assert_eq!((status.current.as_deref(), status.phase), (Some("1"), Phase::Waiting));
        assert_eq!(scene.ready().1, "VersionMissing");
        scene.add("1");
        assert_eq!(scene.step().status.phase, Phase::Current);
    }

    #[test]
    fn pods_that_take_versions_by_restarts_are_counted_and_not_moved() {
        let pod = |uid: &str, runs: &str| {
            let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new(runs).ok())];
            let report = Some(Report { versions, state: ReportState::Acknowledged, at: None });
            let workload = "Deployment/web".to_owned();
            Arc::new(PodState {
                uid: PodUid::new(uid).unwrap(),
                workload,
                by_restart: true,
                ready: true,
                report,
                ..PodState::default()
            })
        };
        let pods = [pod("a", "1"), pod("b", "2")];
        let mut scene = Scene::new(Some("1")).with("1").with("2");
        scene.step();
        scene.config.spec.current = Some("2".to_owned());
        let decide_with = |scene: &Scene, restart: &Restarts| {
            decide(&Observed {
                config: &scene.config,
                parts: &scene.parts,
                facts: &scene.facts,
                secrets_known: true,
                pods: &pods,
                nodes_away: &BTreeSet::new(),
                waiting_for: None,
                published: Some("2"),
                restart,
                now: &at(50),
            })
            .status
        };
        let held = decide_with(&scene, &Restarts::Held("Deployment/web was not restarted".to_owned()));
        assert_eq!(held.rollout.stage, Some(nudge_api::RolloutStage::Restarting), "no batch and no bake moves anybody");
        assert!(held.rollout.groups.is_empty() && held.current.as_deref() == Some("1"));
        assert_eq!((held.pods.total, held.pods.updated), (2, 1), "{:?}", held.pods);
        let reasons: Vec<&str> = held.conditions.iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["NotRestarted", "NotRestarted"], "Ready and Stalled: {:?}", held.conditions);
        scene.config.status = Some(held);
        assert_eq!(decide_with(&scene, &Restarts::Done).current.as_deref(), Some("2"));
    }
}
