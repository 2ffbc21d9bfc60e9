//! The leader of the role control or hub stands still until another replica leads, and then continues in the belief
//! that it leads.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nix::sys::signal::Signal;
use nudge_tests::cluster::installation::NAMESPACE;
use rand::rngs::StdRng;
use tokio::time::timeout;

use super::{Fault, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::fleet::roles::LEASE_DURATION;
use crate::history::Harms;

/// How long the API server may take, which may stand still.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

struct Leader {
    lease: &'static str,
    duration: Duration,
    stopped: Option<String>,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let lease = pick_any(random, &["nudge-injector", "nudge-injector", "nudge-hub"]);
    Box::new(Leader { lease, duration: LEASE_DURATION * 2 + random_seconds(random, 0..=15), stopped: None })
}

impl Fault for Leader {
    fn name(&self) -> String {
        format!("leader: of {} stopped for {:?}", self.lease, self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        let processes = if self.lease == "nudge-hub" { ["hub-0", "hub-1"] } else { ["control-0", "control-1"] };
        processes.map(str::to_owned).to_vec()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            let leases: Api<Lease> = Api::namespaced(fleet.space.client.clone(), NAMESPACE);
            // While the API server is away the leader is not known.
            let Ok(Ok(lease)) = timeout(READ_TIMEOUT, leases.get(self.lease)).await else { return Ok(Harms::Nobody) };
            let Some(holder) = lease.spec.and_then(|spec| spec.holder_identity) else { return Ok(Harms::Nobody) };
            // The leader may have given the lease back.
            let Ok((process, _)) = fleet.control_plane_process(&holder) else { return Ok(Harms::Nobody) };
            let Some(replica) = &process.replica else { return Ok(Harms::Nobody) };
            replica.signal(Signal::SIGSTOP)?;
            self.stopped = Some(holder);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(stopped) = &self.stopped else { return Ok(()) };
            let process = fleet.control_plane_process(stopped)?.0.replica.as_ref();
            process.map_or(Ok(()), |process| process.signal(Signal::SIGCONT))
        })
    }
}
