//! All agents of a fleet. Each hundred of them have an address of their own, as if they were on one node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use nudge_protocol::{ConfigName, ContainerName};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::agent::{Agent, Refuses, Surroundings};
use super::journal::Journal;
use crate::exchange::trusting;

/// Pods of a node.
pub(super) const PODS_PER_NODE: usize = 100;
/// Sessions that an agent keeps for resumption.
const SESSIONS: usize = 2;

/// The agents of the fleet, which end when this is dropped.
pub(super) struct Agents {
    shared: Arc<Surroundings>,
    tls: ClientConfig,
    tasks: JoinSet<()>,
}

impl Agents {
    /// None yet. They trust hubs with a certificate of these authorities.
    pub(super) fn new(hubs: Vec<SocketAddr>, authorities: &str, journal: &Arc<Journal>, refuses: Box<Refuses>) -> Self {
        let shared = Arc::new(Surroundings { hubs: Mutex::new(hubs), journal: Arc::clone(journal), refuses });
        Self { shared, tls: trusting(authorities), tasks: JoinSet::new() }
    }

    /// Starts the agent of the pod with this number.
    pub(super) fn add(&mut self, number: usize, config: &str, token: String) -> Result<()> {
        let mut tls = self.tls.clone();
        tls.resumption = Resumption::in_memory_sessions(SESSIONS);
        let agent = Agent {
            number,
            config: ConfigName::new(config)?,
            container: ContainerName::new("app")?,
            token,
            from: node_address(number / PODS_PER_NODE),
            connector: TlsConnector::from(Arc::new(tls)),
            shared: Arc::clone(&self.shared),
        };
        self.tasks.spawn(agent.run());
        Ok(())
    }

    /// New connections are made to these from now on.
    pub(super) fn use_hubs(&self, hubs: Vec<SocketAddr>) {
        *self.shared.hubs.lock() = hubs;
    }
}

/// Returns an address of this machine for each of up to 64,000 nodes.
fn node_address(node: usize) -> IpAddr {
    let part = |number: usize| u8::try_from(number % 250 + 1).unwrap_or(u8::MAX);
    Ipv4Addr::new(127, 1, part(node / 250), part(node)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_addresses_of_their_own() {
        let addresses: std::collections::BTreeSet<IpAddr> = (0..1000).map(node_address).collect();
        assert_eq!(addresses.len(), 1000);
        assert!(addresses.iter().all(IpAddr::is_loopback));
    }
}
