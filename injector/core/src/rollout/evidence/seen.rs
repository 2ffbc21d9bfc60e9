//! What one leader has seen of one pod.

use super::super::Subject;
use super::super::clock::{Millis, seconds};

/// How soon before the assignment of the target a pod must have been unready for its next unreadiness not to be the target's fault.
const FLAPS: Millis = 60_000;
/// Restarts of a new pod after which it counts as failing.
const NEWBORN_RESTARTS: i32 = 2;

/// What is known of one pod.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is one fact; none follows from another
pub(super) struct Seen {
    /// The last look at which it was there.
    pub(super) look: u64,
    /// Since when it is healthy.
    pub(super) healthy: Option<Millis>,
    /// Since when its containers are not ready.
    pub(super) unready: Option<Millis>,
    pub(super) restarts: i32,
    pub(super) agent_restarts: i32,
    /// Restarts of its containers that its agent commanded.
    pub(super) commanded: i32,
    /// Until when its containers may be unready, because its agent commanded their restart.
    pub(super) starts_until: Option<Millis>,
    /// When its agent was last seen to have restarted.
    pub(super) agent_restarted: Option<Millis>,
    /// It was healthy when the target was assigned to it, or for as long as a step is watched: what becomes of it counts.
    pub(super) judges: bool,
    /// It was healthy when the target was assigned to it, and fell while nobody looked.
    pub(super) fell_unseen: bool,
    pub(super) harmed: bool,
    /// It was unready for a short time, which was forgiven.
    pub(super) forgiven: bool,
    /// When it was last seen to be unready without the target.
    pub(super) unwell_before: Option<Millis>,
    /// Since when the target is assigned to it.
    pub(super) assigned: Option<Millis>,
    /// This leader has seen that the target was assigned to it.
    pub(super) assigned_here: bool,
    /// Since when it says that it runs the target; absent where it said so at the first look already.
    pub(super) notified: Option<Millis>,
    /// When its harm began, which was excused.
    pub(super) excused: Option<Millis>,
    pub(super) birth: Option<Birth>,
}

/// A pod that was not Ready when it was seen first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    /// The target was assigned to it then.
    pub(super) on_target: bool,
    /// When it must be Ready, since its containers run.
    pub(super) due: Option<Millis>,
    /// It did not start in time, or restarts.
    pub(super) fails: bool,
    /// It was healthy for as long as a step is watched.
    pub(super) done: bool,
}

impl Seen {
    pub(super) fn new(pod: &Subject, healthy: bool, first: bool) -> Self {
        let birth = Birth { on_target: false, due: None, fails: false, done: false };
        let is_new = !first || !pod.was_ready;
        let commanded = if pod.is_as_commanded() { pod.restarts } else { 0 };
        Self {
            restarts: pod.restarts,
            agent_restarts: pod.agent_restarts,
            commanded,
            judges: healthy && first,
            // Of one that is in a loop of restarts already, nobody knows with what it began.
            birth: (is_new && pod.restarts - commanded < NEWBORN_RESTARTS).then_some(birth),
            ..Self::default()
        }
    }

    /// Whether containers of the pod were started again since the last look, other than by a command of the agent. Where the agent was started
    /// again too without a command, the whole pod was started anew, as after a reboot of its node.
    pub(super) fn restarted(&mut self, pod: &Subject, now: Millis) -> bool {
        let restarts = pod.restarts - self.restarts;
        let agent = pod.agent_restarts > self.agent_restarts;
        (self.restarts, self.agent_restarts) = (pod.restarts, pod.agent_restarts);
        if pod.restarting || (pod.commanded && agent) {
            self.starts_until = Some(now + seconds(pod.start_seconds));
            if let Some(birth) = self.birth.as_mut().filter(|birth| !birth.done) {
                birth.due = None;
            }
        } else if pod.ready && pod.containers_ready {
            self.starts_until = None;
        }
        if agent && !pod.commanded {
            self.agent_restarted = Some(now);
        }
        if pod.is_as_commanded() {
            self.commanded += restarts.max(0);
            return false;
        }
        restarts > 0
    }

    /// Whether its containers are being started again because its agent commanded it, and have time left for that.
    pub(super) fn starts(&self, now: Millis) -> bool {
        self.starts_until.is_some_and(|until| now < until)
    }

    /// Whether it was unready a short time before the target was assigned to it: it may flap.
    pub(super) fn was_unwell(&self) -> bool {
        self.unwell_before.zip(self.assigned).is_some_and(|(unwell, assigned)| assigned - unwell < FLAPS)
    }

    /// Looks at a pod that has not been healthy for long since it was made. Returns whether it is new, has the target, and fails.
    pub(super) fn grow(&mut self, pod: &Subject, assigned: bool, long: bool, now: Millis) -> bool {
        let Some(birth) = &mut self.birth else { return false };
        if birth.due.is_none() {
            birth.on_target = assigned;
            let time = seconds(pod.start_seconds);
            birth.due = pod.running.then_some(now + time);
        }
        birth.done |= long;
        let late =
            birth.due.is_some_and(|due| now >= due && !pod.ready) || pod.restarts - self.commanded >= NEWBORN_RESTARTS;
        birth.fails = !birth.done && (birth.fails || (pod.is_reachable() && late));
        birth.on_target && birth.fails
    }
}
