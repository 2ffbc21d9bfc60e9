//! What is done to the fleet: a module for each kind of fault, and one list of all of them.
//!
//! Not here, because it takes a node or a kernel: lost packets, a node that is started again, a kernel that kills for memory, and what a
//! kubelet does with images, probes and volumes. The scenarios on a node (`tests/tests/node`) have some of it. The authority of the hub's
//! certificate is not rotated: its shortest life is a day. `injector/certs/src/rotation_tests.rs` rotates it by a clock of its own.

mod answers;
mod births;
mod clock;
mod cut;
mod disk;
mod kill;
mod late;
mod leader;
mod nodes;
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

/// Something that is done to the fleet.
pub(crate) trait Fault: Send {
    /// Its kind, and behind a colon what it is done to.
    fn name(&self) -> String;
    /// What has no other fault meanwhile.
    fn parts(&self) -> Vec<String>;
    /// From its beginning until its end.
    fn lasts(&self) -> Duration;
    /// Does it, and says whom it may harm.
    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>>;
    /// Undoes it.
    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>>;
}

/// A kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// How often it comes up beside the others; 0: only where it is named.
    pub(crate) weight: u32,
    /// One of it, at random.
    pub(crate) make: fn(&mut StdRng) -> Box<dyn Fault>,
}

/// All of them.
pub(crate) const KINDS: [Kind; 15] = [
    Kind { name: "version", weight: 12, make: versions::make },
    Kind { name: "kill", weight: 10, make: kill::make },
    Kind { name: "stop", weight: 8, make: stop::make },
    Kind { name: "leader", weight: 3, make: leader::make },
    Kind { name: "server", weight: 3, make: servers::make },
    Kind { name: "cut", weight: 6, make: cut::make },
    Kind { name: "late", weight: 4, make: late::make },
    Kind { name: "answer", weight: 4, make: answers::make },
    Kind { name: "pod", weight: 5, make: births::make },
    Kind { name: "token", weight: 2, make: tokens::make },
    Kind { name: "webhook", weight: 2, make: webhooks::make },
    Kind { name: "node", weight: 2, make: nodes::make },
    Kind { name: "clock", weight: 2, make: clock::make },
    Kind { name: "restore", weight: 0, make: restore::make },
    Kind { name: "disk", weight: 3, make: disk::make },
];

/// What every run begins with: a good version of one config, and a bad one of another that shares no pods with it.
pub(crate) fn opening() -> [Box<dyn Fault>; 2] {
    versions::opening()
}

/// The processes of the control plane.
const STATIONS: [&str; 6] = ["control-0", "control-1", "hub-0", "hub-1", "certs-0", "certs-1"];

/// A whole number of seconds.
fn seconds(random: &mut StdRng, range: std::ops::RangeInclusive<u64>) -> Duration {
    Duration::from_secs(random.random_range(range))
}

/// Any of these.
fn any<'a>(random: &mut StdRng, all: &[&'a str]) -> &'a str {
    all[random.random_range(0..all.len())]
}

/// A pod that is picked when the fault begins, because pods come and go, and is known by its name from then on.
#[derive(Clone, Debug)]
struct Picked {
    number: usize,
    name: Option<String>,
}

impl Picked {
    fn random(random: &mut StdRng) -> Self {
        Self { number: random.random_range(0..20), name: None }
    }

    fn part(&self) -> String {
        format!("pod {}", self.number)
    }

    /// Picks.
    fn begin<'a>(&mut self, fleet: &'a mut Fleet) -> Option<&'a mut Member> {
        let count = fleet.members.len();
        let member = fleet.members.get_mut(self.number % count.max(1))?;
        self.name = Some(member.name.clone());
        Some(member)
    }

    /// The one that was picked, if it is still there.
    fn again<'a>(&self, fleet: &'a mut Fleet) -> Option<&'a mut Member> {
        fleet.members.iter_mut().find(|member| Some(&member.name) == self.name.as_ref())
    }
}
