//! What one leader has seen of a config's pods: since when each is healthy, which were harmed, and for how long they were watched.
//!
//! It is kept in memory, and measured with a clock that never jumps. A new leader begins without any: what happened while nobody looked is
//! no evidence. What is known of pods that are gone is dropped.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use nudge_api::{BackgroundStatus, Reason};

use super::clock::{Millis, Now, seconds};
use super::harm::{Harm, Kind};
use super::{Observation, Subject};
use crate::pods::SlowestProbe;

/// How long containers must be unready until that is harm.
pub(super) const UNREADY: Millis = 3_000;
/// How long evidence is added up before it begins anew.
const EPOCH: Millis = 900_000;
const HOUR: Millis = 3_600_000;
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How soon before or after harm the agent must have been started anew, too, for both to be the fault of the node.
const WITH_AGENT: Millis = 60_000;
/// How soon before the assignment of the target a pod must have been unready for its next unreadiness not to be the target's fault.
const FLAPS: Millis = 60_000;
/// How long after its harm began a pod must be taken away for that to be the cause.
const TAKEN_AWAY: Millis = 10_000;
/// How long a pod must be healthy again, before others were looked at, for its harm to be forgiven once.
const BRIEF: Millis = 2_500;
/// Clocks of nodes may differ by so many seconds.
const CLOCKS_DIFFER: i64 = 60;
/// Restarts of a new pod after which it counts as failing.
const NEWBORN_RESTARTS: i32 = 2;

/// What is known of one pod.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is one fact; none follows from another
struct Seen {
    /// The last look at which it was there.
    look: u64,
    /// Since when it is healthy.
    healthy: Option<Millis>,
    /// Since when its containers are not ready.
    unready: Option<Millis>,
    restarts: i32,
    agent_restarts: i32,
    /// When its agent was last seen to have restarted.
    agent_restarted: Option<Millis>,
    /// It was healthy when the target was assigned to it, or for as long as a step is watched: what becomes of it counts.
    judges: bool,
    /// It was healthy when the target was assigned to it, and fell while nobody looked.
    fell_unseen: bool,
    harmed: bool,
    /// It was unready for a short time, which was forgiven.
    forgiven: bool,
    /// When it was last seen to be unready without the target.
    unwell_before: Option<Millis>,
    /// Since when the target is assigned to it.
    assigned: Option<Millis>,
    /// This leader has seen that the target was assigned to it.
    assigned_here: bool,
    /// Since when it says that it runs the target; absent where it said so at the first look already.
    notified: Option<Millis>,
    /// When its harm began, which was excused.
    excused: Option<Millis>,
    birth: Option<Birth>,
}

/// A pod that was not Ready when it was seen first.
#[derive(Clone, Copy, Debug)]
struct Birth {
    /// The target was assigned to it then.
    on_target: bool,
    /// When it must be Ready, since its containers run.
    due: Option<Millis>,
    /// It did not start in time, or restarts.
    fails: bool,
    /// It was healthy for as long as a step is watched.
    done: bool,
}

/// New pods of one template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Newborns {
    /// New pods with the target that fail.
    pub(super) failing: u32,
    /// New pods with the current version that fail too.
    pub(super) failing_before: u32,
    /// New pods with the current version that became healthy.
    pub(super) well_before: u32,
    /// Pods of this template were healthy that did not start while this leader looked.
    pub(super) known: bool,
}

/// What one leader has seen.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    look: u64,
    looked: Option<Millis>,
    /// Nobody has looked since a version is on trial.
    begins: bool,
    pods: HashMap<String, Seen>,
    /// The version that `assigned`, `harms` and the numbers below are about.
    target: Option<String>,
    epoch_began: Option<Millis>,
    epoch: u32,
    harms: Vec<Harm>,
    /// Milliseconds for which healthy pods with the target were watched in this epoch, added up.
    exposure: u64,
    /// Of how many pods that was at the last look, and of how many without the target.
    at_risk: (u32, u32),
    /// Not written into the status yet: milliseconds for which healthy pods without the target were watched, and harm to them.
    background: (u64, u64),
    background_since: Option<Millis>,
    /// When the last step went out.
    stepped: Option<Millis>,
    /// Since when all pods that are waited for have proven the target.
    pub(super) proven: Option<Millis>,
    /// Until when harm is looked for after the version became current.
    pub(super) suspected_until: Option<Millis>,
    /// How many have, at most, and since when: the last progress.
    pub(super) progress: Option<(usize, Millis)>,
    /// Since when nothing is waited for but time.
    pub(super) quiet: Option<Millis>,
    /// When a pod with the target was last there of which it counts what becomes of it.
    pub(super) judged: Option<Millis>,
}

impl Evidence {
    /// Begins to collect evidence about this target, unless it has begun.
    pub(super) fn about(&mut self, target: &str) {
        if self.target.as_deref() == Some(target) {
            return;
        }
        let pods = std::mem::take(&mut self.pods);
        let afresh = |(uid, seen): (String, Seen)| {
            // What is down already counts once it is healthy for as long as a step is watched.
            let judges = seen.judges && seen.healthy.is_some();
            let afresh = Seen { judges, birth: None, assigned: None, notified: None, excused: None, ..seen };
            (uid, Seen { assigned_here: false, harmed: false, forgiven: false, fell_unseen: false, ..afresh })
        };
        *self = Self {
            target: Some(target.to_owned()),
            begins: true,
            pods: pods.into_iter().map(afresh).collect(),
            look: self.look,
            looked: self.looked,
            background: self.background,
            background_since: self.background_since,
            ..Self::default()
        };
    }

    /// No version is on trial.
    pub(super) fn about_none(&mut self) {
        if self.target.is_some() {
            self.about("");
            self.target = None;
        }
    }

    /// Nobody looked from the last look until now: pods prove the target anew, and what happened is no harm.
    pub fn blind(&mut self) {
        self.looked = None;
        self.proven = None;
        self.progress = None;
        self.quiet = None;
        // The evidence begins anew, with what it may err.
        self.epoch = self.epoch.saturating_sub(u32::from(self.epoch_began.take().is_some()));
        self.exposure = 0;
        self.harms.clear();
        self.at_risk = (0, 0);
        for seen in self.pods.values_mut() {
            // Of one that is harmed still, this is seen at the next look, and it holds.
            (seen.healthy, seen.unready, seen.harmed) = (None, None, false);
        }
    }

    /// Another step went out, or another stage began.
    pub(super) fn step(&mut self, now: Millis) {
        self.proven = None;
        self.stepped = Some(now);
        self.progress = Some((0, now));
    }

    /// The target is assigned to these pods now: those that are healthy judge it, whatever becomes of them before the next look.
    pub(super) fn assign<'a>(&mut self, pods: impl Iterator<Item = &'a Subject>, now: Millis, now_seconds: i64) {
        for pod in pods {
            if let Some(known) = self.pods.get_mut(&pod.uid) {
                (known.assigned, known.assigned_here) = (Some(now), true);
                known.judges = pod.is_healthy(now_seconds);
            }
        }
    }

    /// Looks at the pods. `window`: for how many seconds a pod must be healthy to count again. `stepped_at`: when the target was last assigned to
    /// more pods, in seconds since 1970.
    pub(super) fn look(
        &mut self,
        seen: &Observation<'_>,
        is_assigned: impl Fn(&Subject) -> bool,
        window: u32,
        stepped_at: i64,
        now: Millis,
        now_seconds: i64,
    ) {
        let first = self.looked.is_none();
        self.look += 1;
        let passed = self.looked.map_or(0, |looked| u64::try_from(now - looked).unwrap_or(0));
        self.exposure += passed * u64::from(self.at_risk.0);
        self.background.0 += passed * u64::from(self.at_risk.1);
        self.looked = Some(now);
        self.turn_epoch(window, now);
        let target = self.target.clone().unwrap_or_default();
        let mut fallen: Vec<(&Subject, Kind, Millis, Option<Millis>, bool)> = Vec::new();
        let mut restarted_since = HashSet::new();
        let mut at_risk = (0, 0);
        for pod in seen.pods {
            let assigned = self.target.is_some() && is_assigned(pod);
            let healthy = pod.is_healthy(now_seconds);
            // One that is seen to appear is new: it counts when it was healthy for as long as a step is watched.
            let new = !self.pods.contains_key(&pod.uid);
            if new {
                self.pods.insert(pod.uid.clone(), Seen::new(pod, healthy, first));
            }
            let Some(known) = self.pods.get_mut(&pod.uid) else { continue };
            known.look = self.look;
            let restarted = known.restarted(pod, now);
            if assigned && known.assigned.is_none() {
                (known.assigned, known.assigned_here) = (Some(now), !first);
                let since = if pod.ready { pod.last_restart } else { pod.unready_since };
                let fell = pod.was_ready && since.is_some_and(|since| since + CLOCKS_DIFFER > stepped_at);
                known.judges = (healthy && (first || !new)) || (first && fell && pod.is_reachable());
            } else if !assigned {
                known.assigned = None;
            }
            known.fell_unseen |= first && known.judges && !pod.ready;
            if assigned && known.assigned_here && known.notified.is_none() && pod.runs.as_deref() == Some(&target) {
                known.notified = Some(now);
            }
            let is_no_harm = pod.containers_ready || !pod.is_reachable();
            known.unready = if is_no_harm { None } else { known.unready.or(Some(now)) };
            // One that starts does not flap.
            if !assigned && known.unready.is_some() && pod.was_ready {
                known.unwell_before = Some(now);
            }
            if assigned && known.judges {
                self.judged = Some(now);
            }
            known.healthy = if pod.ready && pod.containers_ready && pod.is_reachable() && !restarted {
                known.healthy.or(Some(now))
            } else {
                None
            };
            let long = known.healthy.is_some_and(|since| now - since >= seconds(window));
            // Those that are healthy when a version comes on trial are what it is compared with.
            if (long || (self.begins && healthy)) && !known.harmed && !known.judges && !pod.is_of_job() {
                known.judges = true;
            }
            known.fell_unseen &= known.healthy.is_none();
            if self.target.is_none() && long {
                known.harmed = false;
            }
            known.grow(pod, assigned, long, now);
            if known.harmed && restarted && !first {
                restarted_since.insert(pod.uid.as_str());
            }
            if !known.judges || known.harmed {
                continue;
            }
            let reported = pod.reported(&target).filter(|_| assigned);
            let unready = known.unready.filter(|since| now - since >= UNREADY);
            let kind = if let Some(why) = reported {
                Some((Kind::Reported(why.clone()), now))
            } else if restarted && !first {
                Some((Kind::Restarted, now))
            } else if known.fell_unseen {
                None
            } else {
                unready.map(|since| (Kind::Unready, since))
            };
            let notified = known.notified.or(known.assigned.filter(|_| known.assigned_here));
            match kind.filter(|_| pod.is_reachable() || reported.is_some()) {
                Some((kind, at)) => {
                    known.harmed = true;
                    fallen.push((pod, kind, at, notified, assigned));
                }
                None if assigned => at_risk.0 += 1,
                None => at_risk.1 += 1,
            }
        }
        self.begins = false;
        // They did not become unready because of what was before: it had ended.
        for harm in self.harms.iter_mut().filter(|harm| harm.is_older() && restarted_since.contains(harm.uid.as_str()))
        {
            (harm.kind, harm.at, harm.excused) = (Kind::Restarted, now, false);
        }
        self.forgive(now);
        let present = self.look;
        self.pods.retain(|_, known| known.look == present);
        self.write_down(fallen, at_risk);
        self.at_risk = at_risk;
        self.excuse(seen, now);
        for harm in &self.harms {
            if let Some(known) = self.pods.get_mut(&harm.uid) {
                known.excused = harm.excused.then_some(harm.at);
            }
        }
    }

    /// Writes harm down, one after the other: each with the share of pods with the target among those that were not harmed then.
    fn write_down(&mut self, fallen: Vec<(&Subject, Kind, Millis, Option<Millis>, bool)>, at_risk: (u32, u32)) {
        let count = |assigned: bool| u32::try_from(fallen.iter().filter(|one| one.4 == assigned).count()).unwrap_or(0);
        let mut left = (at_risk.0 + count(true), at_risk.1 + count(false));
        for (pod, kind, at, notified, assigned) in fallen {
            let share = f64::from(left.0) / f64::from(left.0 + left.1);
            if assigned {
                left.0 -= 1;
            } else {
                (left.1, self.background.1) = (left.1 - 1, self.background.1 + 1);
            }
            if self.target.is_some() {
                self.harms.push(Harm {
                    name: pod.name.clone(),
                    uid: pod.uid.clone(),
                    node: pod.node.clone(),
                    kind,
                    at,
                    after: notified.map(|notified| at - notified),
                    assigned,
                    share,
                    excused: false,
                    notices_after: pod.notices_after,
                    interval: pod.slowest_probe.as_ref().map_or(0, SlowestProbe::interval),
                });
            }
        }
    }

    /// Forgets that pods were unready for a moment, as all of a node are whose kubelet was started again: once for each pod. What befell others
    /// stays as long as there is harm to compare with it.
    fn forgive(&mut self, now: Millis) {
        self.forgive_those(true, now);
        if self.harms().all(|harm| !harm.assigned) {
            self.forgive_those(false, now);
        }
    }

    fn forgive_those(&mut self, assigned: bool, now: Millis) {
        let pods = &mut self.pods;
        self.harms.retain(|harm| {
            let is_one = harm.kind == Kind::Unready && harm.assigned == assigned;
            let Some(known) = pods.get_mut(&harm.uid).filter(|_| is_one) else { return true };
            let well = known.healthy.is_some_and(|since| now - since >= BRIEF && since < harm.compared_at());
            if !well || known.forgiven || now > harm.compared_at() + BRIEF {
                return true;
            }
            (known.forgiven, known.harmed) = (true, false);
            false
        });
    }

    /// Finds harm that is not the version's fault: it had begun before, the pod was taken away, its node is away, or as many others on its node
    /// were harmed.
    fn excuse(&mut self, seen: &Observation<'_>, now: Millis) {
        if self.harms.iter().all(|harm| harm.excused) {
            return;
        }
        let pods: HashMap<&str, &Subject> = seen.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
        let mut nodes: HashMap<&str, (u32, u32)> = HashMap::new();
        for pod in seen.pods {
            let known = self.pods.get(&pod.uid);
            if let Some(known) = known.filter(|known| known.assigned.is_some() && known.judges) {
                let (all, harmed) = nodes.entry(&pod.node).or_default();
                (*all, *harmed) = (*all + 1, *harmed + u32::from(known.harmed));
            }
        }
        for harm in self.harms.iter_mut().filter(|harm| !harm.excused && harm.kind.may_be_excused()) {
            // Somebody who deletes a broken pod does not make the version a better one.
            let just = now - harm.at <= TAKEN_AWAY;
            let taken_away = match pods.get(harm.uid.as_str()) {
                None => just && harm.kind == Kind::Unready,
                Some(pod) => !pod.node_ready || (just && (pod.disrupted || pod.ending)),
            };
            let (all, harmed) = nodes.get(harm.node.as_str()).copied().unwrap_or_default();
            let within = harm.compared_at() - harm.at;
            let others = seen.neighbours.get(&harm.node).filter(|_| harm.assigned);
            let weather = others.is_some_and(|others| others.fell_too(harm.at, within, harmed, all));
            let known = self.pods.get(&harm.uid);
            let with_agent = known.and_then(|known| known.agent_restarted);
            let with_agent = with_agent.is_some_and(|at| (at - harm.at).abs() <= WITH_AGENT);
            let flaps = harm.kind == Kind::Unready && known.is_some_and(Seen::was_unwell);
            harm.excused = taken_away || weather || with_agent || (harm.assigned && (flaps || harm.is_older()));
        }
    }

    /// Begins to add up anew after 15 minutes, unless something that happened is not decided yet.
    fn turn_epoch(&mut self, window: u32, now: Millis) {
        let open = |harm: &Harm| {
            let unwell = self.pods.get(&harm.uid).is_some_and(|known| known.healthy.is_none());
            harm.assigned && !harm.excused && (unwell || now < harm.compared_at().max(harm.at + 2 * seconds(window)))
        };
        if self.epoch_began.is_some_and(|began| now - began < EPOCH) || self.harms.iter().any(open) {
            return;
        }
        self.epoch += 1;
        self.epoch_began = Some(now);
        self.exposure = 0;
        self.harms.clear();
        self.pods.values_mut().for_each(|known| known.harmed &= known.healthy.is_none());
    }

    /// How many times 15 minutes of evidence have begun.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.max(1)
    }

    /// What the status says of harm without a new version, brought up to date once in an hour.
    pub(crate) fn background(&mut self, known: Option<BackgroundStatus>, now: Now<'_>) -> Option<BackgroundStatus> {
        let since = *self.background_since.get_or_insert(now.steady);
        if now.steady - since < HOUR || self.background.0 < 1000 {
            return known;
        }
        let (watched, harmed) = std::mem::take(&mut self.background);
        self.background_since = Some(now.steady);
        let began = now.time.0.checked_sub(SignedDuration::from_millis(now.steady - since));
        let fresh = BackgroundStatus { since: Time(began.unwrap_or(now.time.0)), pod_seconds: 0, harmed: 0 };
        let known = known.unwrap_or(fresh);
        let sum = BackgroundStatus {
            pod_seconds: known.pod_seconds.saturating_add(watched / 1000),
            harmed: known.harmed.saturating_add(harmed),
            ..known
        };
        if now.time.0.duration_since(sum.since.0) < WEEK {
            return Some(sum);
        }
        let half = sum.since.0.checked_add(WEEK / 2).unwrap_or(now.time.0);
        Some(BackgroundStatus { since: Time(half), pod_seconds: sum.pod_seconds / 2, harmed: sum.harmed / 2 })
    }

    /// Pod-seconds for which healthy pods with the target were watched in this epoch.
    pub(super) fn exposure_seconds(&self) -> u64 {
        self.exposure / 1000
    }

    /// What was harmed in this epoch without an excuse.
    pub(super) fn harms(&self) -> impl Iterator<Item = &Harm> {
        self.harms.iter().filter(|harm| !harm.excused)
    }

    /// Healthy pods with the target, and without it, that were not harmed.
    pub(super) fn at_risk(&self) -> (u32, u32) {
        self.at_risk
    }

    /// Pods that had the target before this step, and those that got it then: how many judge, and how many of these were harmed from then on,
    /// until the other time.
    pub(super) fn by_age(&self, stepped: Millis, until: Millis) -> [(u32, u32); 2] {
        let harmed = |harm: &&Harm| harm.assigned && (stepped..until).contains(&harm.at);
        let harmed: HashSet<&str> = self.harms().filter(harmed).map(|harm| harm.uid.as_str()).collect();
        let mut counts = [(0, 0); 2];
        for (uid, known) in self.pods.iter().filter(|(_, known)| known.judges) {
            let Some(assigned) = known.assigned else { continue };
            let (all, of) = &mut counts[usize::from(assigned >= stepped)];
            (*all, *of) = (*all + 1, *of + u32::from(harmed.contains(uid.as_str())));
        }
        counts
    }

    /// When the last step went out.
    pub(super) fn stepped(&self) -> Option<Millis> {
        self.stepped
    }

    /// Whether what becomes of the pod counts.
    pub(super) fn judges(&self, pod: &Subject) -> bool {
        self.pods.get(&pod.uid).is_some_and(|known| known.judges)
    }

    /// Whether the pod may show more about the target: it was not harmed, is well again, or was harmed for another reason a short time ago.
    pub(super) fn is_waited_for(&self, pod: &str, patience: Millis, now: Millis) -> bool {
        let Some(known) = self.pods.get(pod) else { return false };
        !known.harmed || known.healthy.is_some() || known.excused.is_some_and(|at| now < at + patience)
    }

    /// Whether the pod is healthy now, or gone.
    pub(super) fn is_well(&self, pod: &str) -> bool {
        self.pods.get(pod).is_none_or(|known| known.healthy.is_some())
    }

    /// Since when the target is assigned to the pod.
    pub(super) fn assigned(&self, pod: &Subject) -> Option<Millis> {
        self.pods.get(&pod.uid)?.assigned
    }

    /// When harm will have lasted for long enough, or a pod will count again: the next look although nothing changes.
    pub(super) fn ripens(&self, window: u32, now: Millis) -> Option<Millis> {
        let pods = self.pods.values().filter(|known| !known.harmed);
        let times = pods.flat_map(|known| {
            let harm = known.unready.filter(|_| known.judges).map(|since| since + UNREADY);
            let counts = known.healthy.filter(|_| !known.judges).map(|since| since + seconds(window));
            let starts = known.birth.filter(|birth| !birth.done && !birth.fails).and_then(|birth| birth.due);
            [harm, counts, starts]
        });
        times.flatten().filter(|time| *time > now).min()
    }

    /// New pods by workload and template.
    pub(super) fn newborns<'a>(&self, pods: &'a [Subject]) -> HashMap<(&'a str, &'a str), Newborns> {
        let mut all: HashMap<_, Newborns> = HashMap::new();
        // Those of Jobs end by themselves.
        for pod in pods.iter().filter(|pod| !pod.is_of_job()) {
            let Some(known) = self.pods.get(&pod.uid) else { continue };
            let of = all.entry((pod.workload.as_str(), pod.template.as_str())).or_default();
            match known.birth {
                Some(birth) if birth.on_target => of.failing += u32::from(birth.fails),
                Some(birth) => {
                    of.failing_before += u32::from(birth.fails);
                    of.well_before += u32::from(birth.done);
                }
                None => of.known |= known.judges,
            }
        }
        all
    }

    /// A new pod with the target that fails.
    pub(super) fn failing<'a>(&self, pods: &'a [Subject], of: (&str, &str)) -> Option<&'a Subject> {
        let fails = |pod: &&Subject| {
            let birth = self.pods.get(&pod.uid).and_then(|known| known.birth);
            (pod.workload.as_str(), pod.template.as_str()) == of
                && birth.is_some_and(|birth| birth.on_target && birth.fails)
        };
        pods.iter().find(fails)
    }
}

impl Seen {
    fn new(pod: &Subject, healthy: bool, first: bool) -> Self {
        let birth = Birth { on_target: false, due: None, fails: false, done: false };
        let is_new = !first || !pod.was_ready;
        Self {
            restarts: pod.restarts,
            agent_restarts: pod.agent_restarts,
            judges: healthy && first,
            // Of one that is in a loop of restarts already, nobody knows with what it began.
            birth: (is_new && pod.restarts < NEWBORN_RESTARTS).then_some(birth),
            ..Self::default()
        }
    }

    /// Whether containers of the pod were started again since the last look. Where the agent was too, the whole pod was started anew, as after
    /// a reboot of its node.
    fn restarted(&mut self, pod: &Subject, now: Millis) -> bool {
        let restarted = pod.restarts > self.restarts;
        if pod.agent_restarts > self.agent_restarts {
            self.agent_restarted = Some(now);
        }
        (self.restarts, self.agent_restarts) = (pod.restarts, pod.agent_restarts);
        restarted
    }

    /// Whether it was unready a short time before the target was assigned to it: it may flap.
    fn was_unwell(&self) -> bool {
        self.unwell_before.zip(self.assigned).is_some_and(|(unwell, assigned)| assigned - unwell < FLAPS)
    }

    /// Looks at a pod that has not been healthy for long since it was made.
    fn grow(&mut self, pod: &Subject, assigned: bool, long: bool, now: Millis) {
        let Some(birth) = &mut self.birth else { return };
        if birth.due.is_none() {
            birth.on_target = assigned;
            let time = seconds(pod.start_seconds);
            birth.due = pod.running.then_some(now + time);
        }
        birth.done |= long;
        let late = birth.due.is_some_and(|due| now >= due && !pod.ready) || pod.restarts >= NEWBORN_RESTARTS;
        birth.fails = !birth.done && (birth.fails || (pod.is_reachable() && late));
    }
}

impl Kind {
    /// The reason that the status has for it.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Unready => Reason::PodNotReady,
            Self::Restarted => Reason::ContainerRestarted,
            Self::Reported(why) => why.reason,
        }
    }
}
