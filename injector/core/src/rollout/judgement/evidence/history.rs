//! The history of one pod, as one leader remembers it.

use std::sync::Arc;

use super::sighting::{Pass, Sighting};
use crate::pods::{LastCommand, PodPhase, PodState};
use crate::rollout::Subject;
use crate::rollout::clock::{Millis, SteadyTime, millis};

/// The maximum time from a pod's unreadiness to the assignment of the target that excuses the pod's next unreadiness.
const FLAP_WINDOW: Millis = 60_000;
/// The minimum number of restarts that makes a new pod count as failing.
const MIN_FAILING_RESTARTS: i32 = 2;

/// The history of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct PodHistory {
    /// The number of the last observation that found the pod.
    pub(super) observation: u64,
    pod: Arc<PodState>,
    pub(super) role: Role,
    /// The assignment of the target to the pod.
    pub(super) assignment: Option<Assignment>,
    /// The time when the pod became healthy.
    pub(super) healthy_since: Option<SteadyTime>,
    /// The time when the pod's containers became unready.
    pub(super) unready_since: Option<SteadyTime>,
    /// The time when the pod was last unready without the target.
    pub(super) last_unready_before: Option<SteadyTime>,
    /// Whether a short unreadiness of the pod was forgiven.
    pub(super) forgiven: bool,
    /// The time when the pod's harm began, if it was excused.
    pub(super) excused_at: Option<SteadyTime>,
    /// The end of the time when the pod's containers may be unready, because the API ordered their restart.
    pub(super) starts_until: Option<SteadyTime>,
    /// The time when the pod's agent was last observed to have restarted.
    pub(super) agent_restarted_at: Option<SteadyTime>,
    pub(super) birth: Option<Birth>,
}

/// The role of a pod as evidence: whether harm to it counts for or against the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// The pod does not count: it was not healthy when the target was assigned to it, and has not been for as long as a
    /// step is watched.
    #[default]
    Bystander,
    /// The pod counts.
    Judge,
    /// The pod counts, but its unreadiness is no harm until it has been healthy again, because it began while nobody
    /// looked.
    FellUnseen,
    /// The pod was harmed.
    Harmed { judges: bool },
}

/// The assignment of the target to a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assignment {
    /// The pod had the target when this leader observed it first.
    Inherited { since: SteadyTime },
    /// This leader observed the assignment.
    Watched { since: SteadyTime, notified: Option<SteadyTime> },
}

/// A pod that was not Ready when it was first observed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    /// Whether the target was assigned to the pod then.
    pub(super) on_target: bool,
    /// The time when the pod must be Ready, counted from when its containers began to run.
    pub(super) due: Option<SteadyTime>,
    pub(super) growth: Growth,
}

/// The start of a new pod so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    Starting,
    /// The pod did not start in time, or restarts.
    Failing,
    /// The pod was healthy for as long as a step is watched.
    Grown,
}

impl Role {
    fn of(judges: bool) -> Self {
        if judges { Self::Judge } else { Self::Bystander }
    }

    /// Returns whether harm to the pod counts.
    pub(super) fn judges(self) -> bool {
        matches!(self, Self::Judge | Self::FellUnseen | Self::Harmed { judges: true })
    }

    pub(super) fn is_harmed(self) -> bool {
        matches!(self, Self::Harmed { .. })
    }

    /// Returns the role of a pod that is assigned the target now.
    pub(super) fn on_assignment(self, judges: bool) -> Self {
        match self {
            Self::Harmed { .. } => Self::Harmed { judges },
            Self::FellUnseen if judges => self,
            _ => Self::of(judges),
        }
    }

    /// Returns the role without earlier harm.
    pub(super) fn without_harm(self) -> Self {
        if let Self::Harmed { judges } = self { Self::of(judges) } else { self }
    }
}

impl Assignment {
    pub(super) fn since(self) -> SteadyTime {
        match self {
            Self::Inherited { since } | Self::Watched { since, .. } => since,
        }
    }

    /// Returns when the pod said that it runs the target, or else got it; `None` if this leader did not observe that.
    pub(super) fn notified_at(self) -> Option<SteadyTime> {
        match self {
            Self::Inherited { .. } => None,
            Self::Watched { since, notified } => notified.or(Some(since)),
        }
    }
}

impl PodHistory {
    /// Returns the history of a pod that this pass observes for the first time.
    pub(super) fn new(pod: &Subject, pass: &Pass<'_>) -> Self {
        let is_newborn = !pass.is_first || !pod.was_ready();
        let birth = Birth { on_target: false, due: None, growth: Growth::Starting };
        Self {
            pod: Arc::clone(&pod.pod),
            role: Role::of(pass.is_first && pod.is_healthy(pass.now_seconds)),
            // If a pod is already in a loop of restarts, nobody knows which version it began with.
            birth: (is_newborn && pod.restarts.sums().crashes < MIN_FAILING_RESTARTS).then_some(birth),
            ..Self::default()
        }
    }

    /// Returns the history for another target. A pod that is unready already counts once it has been healthy for as
    /// long as a step is watched.
    pub(super) fn for_another_target(self) -> Self {
        let role = Role::of(self.role.judges() && self.healthy_since.is_some());
        Self { role, assignment: None, forgiven: false, excused_at: None, birth: None, ..self }
    }

    /// Returns whether a container of the pod crashed since the last observation. If the agent also restarted without a
    /// command, the whole pod restarted, as after a reboot of its node.
    pub(super) fn count_restarts(&mut self, pod: &Subject, now: SteadyTime) -> bool {
        let before = std::mem::replace(&mut self.pod, Arc::clone(&pod.pod));
        let (sums, sums_before) = (pod.restarts.sums(), before.restarts.sums());
        let is_ordered = pod.restarts.is_resizing() || sums.ordered > sums_before.ordered;
        let has_agent_restarted = pod.agent.restarts > before.agent.restarts;
        let is_commanded = pod.agent.last_command != LastCommand::None;
        let until = now + millis(pod.probes.start_time);
        if pod.agent.last_command == LastCommand::Restarting || (is_commanded && has_agent_restarted) {
            self.starts_until = Some(until);
            if let Some(birth) = self.birth.as_mut().filter(|birth| birth.growth != Growth::Grown) {
                birth.due = None;
            }
        } else if is_ordered {
            // An application that ends with the code of a rule again and again gets this time only once until it is
            // ready.
            self.starts_until.get_or_insert(until);
        } else if pod.is_ready() && pod.containers_ready {
            self.starts_until = None;
        }
        if has_agent_restarted && !is_commanded {
            self.agent_restarted_at = Some(now);
        }
        sums.crashes > sums_before.crashes
    }

    /// Returns whether the pod's containers restart because the API ordered it, and have time left for that.
    pub(super) fn starts(&self, now: SteadyTime) -> bool {
        self.starts_until.is_some_and(|until| now < until)
    }

    /// Returns whether the pod was unready a short time before the target was assigned to it, so that it may flap.
    pub(super) fn was_unwell(&self) -> bool {
        let assigned = self.assignment.map(Assignment::since);
        self.last_unready_before.zip(assigned).is_some_and(|(unwell, assigned)| assigned - unwell < FLAP_WINDOW)
    }

    /// Returns whether the pod has been healthy for as long as a step is watched.
    pub(super) fn is_long_healthy(&self, pass: &Pass<'_>) -> bool {
        self.healthy_since.is_some_and(|since| pass.now - since >= pass.watch_time)
    }

    /// Follows a pod that has not been healthy for long since its creation. Returns whether the pod is new, has the
    /// target, and fails.
    pub(super) fn grow(&mut self, Sighting { pass, pod, is_assigned, .. }: Sighting<'_>) -> bool {
        let is_long_healthy = self.is_long_healthy(pass);
        let Some(birth) = &mut self.birth else { return false };
        if birth.due.is_none() {
            birth.on_target = is_assigned;
            birth.due = (pod.phase == PodPhase::Running).then_some(pass.now + millis(pod.probes.start_time));
        }
        let is_late = birth.due.is_some_and(|due| pass.now >= due && !pod.is_ready());
        let is_failing = is_late || pod.restarts.sums().crashes >= MIN_FAILING_RESTARTS;
        if is_long_healthy {
            birth.growth = Growth::Grown;
        } else if birth.growth == Growth::Starting && pod.is_reachable() && is_failing {
            birth.growth = Growth::Failing;
        }
        birth.on_target && birth.growth == Growth::Failing
    }
}
