//! What one leader remembers of one pod.

use std::sync::Arc;

use super::super::Subject;
use super::super::clock::{Millis, seconds};
use crate::pods::PodState;

/// How soon before the assignment of the target a pod must have been unready for its next unreadiness not to be the target's fault.
const FLAPS: Millis = 60_000;
/// Restarts of a new pod after which it counts as failing.
const NEWBORN_RESTARTS: i32 = 2;

/// What is remembered of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct PodHistory {
    /// The last look at which it was there, and what it was then.
    pub(super) look: u64,
    pod: Arc<PodState>,
    pub(super) role: Role,
    /// The target, as it is assigned to the pod.
    pub(super) assignment: Option<Assignment>,
    /// Since when it is healthy.
    pub(super) healthy: Option<Millis>,
    /// Since when its containers are not ready.
    pub(super) unready: Option<Millis>,
    /// When it was last seen to be unready without the target.
    pub(super) unwell_before: Option<Millis>,
    /// It was unready for a short time, which was forgiven.
    pub(super) forgiven: bool,
    /// When its harm began, which was excused.
    pub(super) excused: Option<Millis>,
    /// Until when its containers may be unready, because the API ordered their restart.
    pub(super) starts_until: Option<Millis>,
    /// When its agent was last seen to have restarted.
    pub(super) agent_restarted: Option<Millis>,
    pub(super) birth: Option<Birth>,
}

/// The role of a pod in the judgement: whether it counts what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// It does not count: the pod was not healthy when the target was assigned to it, and has not been for as long as a step is watched.
    #[default]
    Bystander,
    /// It counts.
    Judge,
    /// It counts, but its unreadiness is no harm until it was healthy again: it fell while nobody looked.
    FellUnseen,
    /// The pod was harmed.
    Harmed { judges: bool },
}

/// The target, as it is assigned to a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assignment {
    /// It was at the first look of this leader.
    Inherited { since: Millis },
    /// This leader has seen that it was assigned.
    Watched { since: Millis, notified: Option<Millis> },
}

/// A pod that was not Ready when it was seen first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    /// The target was assigned to it then.
    pub(super) on_target: bool,
    /// When it must be Ready, since its containers run.
    pub(super) due: Option<Millis>,
    pub(super) growth: Growth,
}

/// How far a new pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    Starting,
    /// It did not start in time, or restarts.
    Failing,
    /// It was healthy for as long as a step is watched.
    Grown,
}

impl Role {
    fn of(judges: bool) -> Self {
        if judges { Self::Judge } else { Self::Bystander }
    }

    /// Whether it counts what becomes of the pod.
    pub(super) fn judges(self) -> bool {
        matches!(self, Self::Judge | Self::FellUnseen | Self::Harmed { judges: true })
    }

    pub(super) fn is_harmed(self) -> bool {
        matches!(self, Self::Harmed { .. })
    }

    /// The role of a pod to which the target is assigned now.
    pub(super) fn assigned(self, judges: bool) -> Self {
        match self {
            Self::Harmed { .. } => Self::Harmed { judges },
            Self::FellUnseen if judges => self,
            _ => Self::of(judges),
        }
    }

    /// The role without the harm of before.
    pub(super) fn mended(self) -> Self {
        if let Self::Harmed { judges } = self { Self::of(judges) } else { self }
    }
}

impl Assignment {
    pub(super) fn since(self) -> Millis {
        match self {
            Self::Inherited { since } | Self::Watched { since, .. } => since,
        }
    }

    /// When the pod said that it runs the target, or else got it; absent where this leader did not see it.
    pub(super) fn notified(self) -> Option<Millis> {
        match self {
            Self::Inherited { .. } => None,
            Self::Watched { since, notified } => notified.or(Some(since)),
        }
    }
}

impl PodHistory {
    /// The history of a pod that is seen for the first time, at the first look of this leader or later.
    pub(super) fn new(pod: &Subject, healthy: bool, first: bool) -> Self {
        let is_new = !first || !pod.was_ready;
        let birth = Birth { on_target: false, due: None, growth: Growth::Starting };
        Self {
            pod: Arc::clone(&pod.pod),
            role: Role::of(healthy && first),
            // Of one that is in a loop of restarts already, nobody knows with what it began.
            birth: (is_new && pod.restarts < NEWBORN_RESTARTS).then_some(birth),
            ..Self::default()
        }
    }

    /// The history for another target. What is down already counts once it is healthy for as long as a step is watched.
    pub(super) fn for_another_target(self) -> Self {
        let role = Role::of(self.role.judges() && self.healthy.is_some());
        Self { role, assignment: None, forgiven: false, excused: None, birth: None, ..self }
    }

    /// Whether a container of the pod crashed since the last look. Where the agent was started again too without a command, the whole pod was
    /// started anew, as after a reboot of its node.
    pub(super) fn count_restarts(&mut self, pod: &Subject, now: Millis) -> bool {
        let before = std::mem::replace(&mut self.pod, Arc::clone(&pod.pod));
        let ordered = pod.is_resizing() || pod.ordered_restarts > before.ordered_restarts;
        let agent = pod.agent_restarts > before.agent_restarts;
        let until = now + seconds(pod.start_seconds);
        if pod.restarting || (pod.commanded && agent) {
            self.starts_until = Some(until);
            if let Some(birth) = self.birth.as_mut().filter(|birth| birth.growth != Growth::Grown) {
                birth.due = None;
            }
        } else if ordered {
            // An application that ends with the code of a rule again and again has this time once, until it is ready.
            self.starts_until.get_or_insert(until);
        } else if pod.ready && pod.containers_ready {
            self.starts_until = None;
        }
        if agent && !pod.commanded {
            self.agent_restarted = Some(now);
        }
        pod.restarts > before.restarts
    }

    /// Whether its containers are being started again because the API ordered it, and have time left for that.
    pub(super) fn starts(&self, now: Millis) -> bool {
        self.starts_until.is_some_and(|until| now < until)
    }

    /// Whether it was unready a short time before the target was assigned to it: it may flap.
    pub(super) fn was_unwell(&self) -> bool {
        let assigned = self.assignment.map(Assignment::since);
        self.unwell_before.zip(assigned).is_some_and(|(unwell, assigned)| assigned - unwell < FLAPS)
    }

    /// Follows a pod that has not been healthy for long since it was made. Returns whether it is new, has the target, and fails.
    pub(super) fn grow(&mut self, pod: &Subject, assigned: bool, long: bool, now: Millis) -> bool {
        let Some(birth) = &mut self.birth else { return false };
        if birth.due.is_none() {
            birth.on_target = assigned;
            birth.due = pod.running.then_some(now + seconds(pod.start_seconds));
        }
        let late = birth.due.is_some_and(|due| now >= due && !pod.ready) || pod.restarts >= NEWBORN_RESTARTS;
        if long {
            birth.growth = Growth::Grown;
        } else if birth.growth == Growth::Starting && pod.is_reachable() && late {
            birth.growth = Growth::Failing;
        }
        birth.on_target && birth.growth == Growth::Failing
    }
}
