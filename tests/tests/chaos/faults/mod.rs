//! Faults of the fleet: a module for each kind, and one list of all kinds.
//!
//! Not here, because it takes a node or a kernel: lost packets, a node that is started again, a kernel that kills for
//! memory, and a kubelet's work on images, probes and volumes. The scenarios on a node (`tests/tests/node`) have some
//! of it. The authority of the hub's certificate is not rotated: its shortest life is a day.
//! `injector/certs/src/rotation_tests.rs` rotates it by a clock of its own.

mod answers;
mod clock;
mod cut;
mod disk;
mod kill;
mod late;
mod leader;
mod nodes;
mod pods;
mod restore;
mod servers;
mod stop;
mod tokens;
mod versions;
mod victim;
mod webhooks;

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::fleet::Fleet;
use crate::fleet::member::Member;
use crate::history::Harms;

/// A fault of the fleet.
pub(crate) trait Fault: Send {
    /// Returns the kind of the fault, and behind a colon what it affects.
    fn name(&self) -> String;
    /// Returns the parts of the fleet that have no other fault meanwhile.
    fn affected_parts(&self) -> Vec<String>;
    /// Returns the time from the beginning of the fault until its end.
    fn duration(&self) -> Duration;
    /// Begins the fault, and returns which pods it may harm.
    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>>;
    /// Ends the fault.
    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>>;
}

/// A kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The weight of the kind among the others; 0: only if it is named.
    pub(crate) weight: u32,
    /// Makes a fault of the kind, at random.
    pub(crate) make: fn(&mut StdRng) -> Box<dyn Fault>,
}

/// All kinds of faults.
pub(crate) const KINDS: [Kind; 15] = [
    Kind { name: "version", weight: 12, make: versions::make },
    Kind { name: "kill", weight: 10, make: kill::make },
    Kind { name: "stop", weight: 8, make: stop::make },
    Kind { name: "leader", weight: 3, make: leader::make },
    Kind { name: "server", weight: 3, make: servers::make },
    Kind { name: "cut", weight: 6, make: cut::make },
    Kind { name: "late", weight: 4, make: late::make },
    Kind { name: "answer", weight: 4, make: answers::make },
    Kind { name: "pod", weight: 5, make: pods::make },
    Kind { name: "token", weight: 2, make: tokens::make },
    Kind { name: "webhook", weight: 2, make: webhooks::make },
    Kind { name: "node", weight: 2, make: nodes::make },
    Kind { name: "clock", weight: 2, make: clock::make },
    Kind { name: "restore", weight: 0, make: restore::make },
    Kind { name: "disk", weight: 3, make: disk::make },
];

/// Returns the faults that every run begins with: a good version of one config, and a bad one of another that shares no
/// pods with it.
pub(crate) fn opening_faults() -> [Box<dyn Fault>; 2] {
    versions::opening_faults()
}

/// The names of the processes of the control plane.
const PROCESS_NAMES: [&str; 6] = ["control-0", "control-1", "hub-0", "hub-1", "certs-0", "certs-1"];

/// Returns a random whole number of seconds.
fn random_seconds(random: &mut StdRng, range: std::ops::RangeInclusive<u64>) -> Duration {
    Duration::from_secs(random.random_range(range))
}

/// Picks any of these names.
fn pick_any<'a>(random: &mut StdRng, names: &[&'a str]) -> &'a str {
    names[random.random_range(0..names.len())]
}

/// A pod that is picked when the fault begins, because pods come and go, and is known by its name from then on.
#[derive(Clone, Debug)]
struct PickedPod {
    number: usize,
    name: Option<String>,
}

impl PickedPod {
    fn random(random: &mut StdRng) -> Self {
        Self { number: random.random_range(0..20), name: None }
    }

    fn affected_part(&self) -> String {
        format!("pod {}", self.number)
    }

    /// Picks the pod, and returns it.
    fn pick<'a>(&mut self, fleet: &'a mut Fleet) -> Option<&'a mut Member> {
        let count = fleet.members.len();
        let member = fleet.members.get_mut(self.number % count.max(1))?;
        self.name = Some(member.name.clone());
        Some(member)
    }

    /// Returns the pod that was picked, if it still exists.
    fn picked<'a>(&self, fleet: &'a mut Fleet) -> Option<&'a mut Member> {
        fleet.members.iter_mut().find(|member| Some(&member.name) == self.name.as_ref())
    }
}
