//! The leader of the role control or hub stands still until another one leads, and then goes on in the belief that it leads.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nix::sys::signal::Signal;
use nudge_tests::cluster::installation::NAMESPACE;
use rand::rngs::StdRng;
use tokio::time::timeout;

use super::{Fault, any, seconds};
use crate::fleet::Fleet;
use crate::fleet::roles::LEASE;
use crate::history::Harms;

/// How long the API server may take, which may stand still.
const PATIENCE: Duration = Duration::from_secs(2);

struct Leader {
    lease: &'static str,
    lasts: Duration,
    stopped: Option<String>,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let lease = any(random, &["nudge-injector", "nudge-injector", "nudge-hub"]);
    Box::new(Leader { lease, lasts: LEASE * 2 + seconds(random, 0..=15), stopped: None })
}

impl Fault for Leader {
    fn name(&self) -> String {
        format!("leader: of {} stopped for {:?}", self.lease, self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        let stations = if self.lease == "nudge-hub" { ["hub-0", "hub-1"] } else { ["control-0", "control-1"] };
        stations.map(str::to_owned).to_vec()
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            let leases: Api<Lease> = Api::namespaced(fleet.space.client.clone(), NAMESPACE);
            // The API server may be away: then nobody is known to lead.
            let Ok(Ok(lease)) = timeout(PATIENCE, leases.get(self.lease)).await else { return Ok(Harms::Nobody) };
            let Some(holder) = lease.spec.and_then(|spec| spec.holder_identity) else { return Ok(Harms::Nobody) };
            // The one that led may have given the lease back.
            let Ok((station, _)) = fleet.station(&holder) else { return Ok(Harms::Nobody) };
            let Some(process) = &station.process else { return Ok(Harms::Nobody) };
            process.signal(Signal::SIGSTOP)?;
            self.stopped = Some(holder);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(stopped) = &self.stopped else { return Ok(()) };
            let process = fleet.station(stopped)?.0.process.as_ref();
            process.map_or(Ok(()), |process| process.signal(Signal::SIGCONT))
        })
    }
}
