//! One look at the pods: what has become of each since the last one.

use std::collections::HashSet;

use super::super::clock::{Millis, seconds};
use super::super::harm::{Harm, Kind};
use super::super::{Observation, Subject};
use super::seen::Seen;
use super::{Evidence, UNREADY};
use crate::pods::SlowestProbe;

/// Clocks of nodes may differ by so many seconds.
const CLOCKS_DIFFER: i64 = 60;

impl Evidence {
    /// Looks at the pods. `window`: for how many seconds a pod must be healthy to count again. `stepped_at`: when the target was last assigned to
    /// more pods, in seconds since 1970.
    pub(in crate::rollout) fn look(
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
        self.turn_epoch(window, passed, now);
        let target = self.target.clone().unwrap_or_default();
        let mut fallen: Vec<(&Subject, Kind, Millis, Option<Millis>, bool)> = Vec::new();
        let mut restarted_since = HashSet::new();
        let (mut at_risk, mut failing) = ((0, 0), 0);
        for pod in seen.pods {
            let assigned = self.target.is_some() && is_assigned(pod);
            let healthy = pod.is_healthy(now_seconds);
            // One that is seen to appear is new: it counts when it was healthy for as long as a step is watched.
            let new = !self.pods.contains_key(pod.uid.as_str());
            if new {
                self.pods.insert(pod.uid.as_str().into(), Seen::new(pod, healthy, first));
            }
            let Some(known) = self.pods.get_mut(pod.uid.as_str()) else { continue };
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
            let is_no_harm = pod.containers_ready || !pod.is_reachable() || known.starts(now);
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
            failing += usize::from(known.grow(pod, assigned, long, now));
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
                // While it is started again, it says nothing.
                None if assigned => at_risk.0 += u32::from(!known.starts(now)),
                None => at_risk.1 += u32::from(!known.starts(now)),
            }
        }
        (self.begins, self.failing) = (false, failing);
        // They did not become unready because of what was before: it had ended.
        for harm in self.harms.iter_mut().filter(|harm| harm.is_older() && restarted_since.contains(harm.uid.as_str()))
        {
            (harm.kind, harm.at, harm.excused) = (Kind::Restarted, now, false);
        }
        self.forgive(now);
        if self.pods.len() > seen.pods.len() {
            let present = self.look;
            self.pods.retain(|_, known| known.look == present);
        }
        self.write_down(fallen, at_risk);
        self.at_risk = at_risk;
        self.excuse(seen, now);
        for harm in &self.harms {
            if let Some(known) = self.pods.get_mut(harm.uid.as_str()) {
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
}
