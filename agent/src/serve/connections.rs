//! The endpoint's connections. Clients of the pod share one slot table and those from elsewhere a smaller one, so that
//! a neighbour on the pod network can't starve the pod. Requests that wait for a change are bounded, too.

use std::sync::Arc;
use std::time::Duration;

use nudge_server::metrics::ConnectionMetrics;
use nudge_server::slots::{Bounds, RequestGuard, SLOW_HANDSHAKE_AGE, Sharing, Slot, Slots};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;

/// The maximum time that a connection from the pod waits for a slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

/// The place of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// The agent's own pod.
    Pod,
    /// A place outside of the pod.
    Foreign,
}

/// All connections of the endpoint.
#[derive(Clone, Debug)]
pub struct Connections {
    pod: Slots,
    foreign: Slots,
    waiting: Arc<Semaphore>,
    max_waiting: usize,
}

impl Connections {
    /// Creates the state without connections.
    pub fn new(limits: &Limits, metrics: &ConnectionMetrics) -> Self {
        // A connection that is being answered is never cut for another. Pods of one node may share an IPv6 network,
        // with probes and scrapes among them, so each address has a share of its own.
        let (sharing, grace) = (Sharing::Addresses, SLOW_HANDSHAKE_AGE);
        let foreign = Bounds { sharing, grace, cut_busy: false, ..Bounds::shared(limits.foreign_connections) };
        let max_connections = limits.connections;
        let pod = Bounds { max_connections, sharing: Sharing::None, slot_wait: SLOT_TIMEOUT, ..foreign };
        Self {
            pod: Slots::new(pod, metrics.clone()),
            foreign: Slots::new(foreign, metrics.clone()),
            waiting: Arc::new(Semaphore::new(limits.waiting)),
            max_waiting: limits.waiting,
        }
    }

    /// Returns the slots for clients of an origin.
    pub fn slots(&self, origin: RequestOrigin) -> &Slots {
        match origin {
            RequestOrigin::Pod => &self.pod,
            RequestOrigin::Foreign => &self.foreign,
        }
    }

    /// Returns the connection that has `slot`.
    pub fn connection(&self, slot: Slot) -> AgentConnection {
        let origin = if self.pod.contains(&slot) { RequestOrigin::Pod } else { RequestOrigin::Foreign };
        AgentConnection { slot, origin, waiting: Arc::clone(&self.waiting) }
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.pod.count() + self.foreign.count()
    }

    /// Returns whether a request is being answered that does not just wait for a change.
    pub fn are_busy(&self) -> bool {
        let waiting = self.max_waiting - self.waiting.available_permits();
        self.pod.busy_count() + self.foreign.busy_count() > waiting
    }

    /// Cuts connections that still send a dictionary older than `generation`.
    pub fn cut_older(&self, generation: u64) {
        self.pod.cut_older(generation);
    }
}

/// A connection; its slot is free again when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct AgentConnection {
    slot: Slot,
    origin: RequestOrigin,
    waiting: Arc<Semaphore>,
}

impl AgentConnection {
    /// Returns the origin of the client.
    pub fn origin(&self) -> RequestOrigin {
        self.origin
    }

    /// Marks the beginning of a request; until the result is dropped the connection is not idle.
    pub fn begin_request(&self) -> RequestGuard {
        self.slot.begin_request()
    }

    /// Marks a request that waits for a change until the result is dropped; `None` if too many do.
    pub fn begin_wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.waiting).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Instant;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn connections() -> Connections {
        let limits = Limits { connections: 1, foreign_connections: 2, waiting: 2, ..Limits::default() };
        Connections::new(&limits, &ConnectionMetrics::default())
    }

    fn take(connections: &Connections, origin: RequestOrigin) -> Option<AgentConnection> {
        let slot = connections.slots(origin).take(PEER, Instant::now());
        slot.map(|slot| connections.connection(slot))
    }

    #[test]
    fn foreign_clients_take_no_slots_from_the_pod() {
        let all = connections();
        let foreign: Vec<_> = (0..5).map(|_| take(&all, RequestOrigin::Foreign)).collect();
        assert_eq!(foreign.iter().flatten().count(), 2);
        assert!(foreign.iter().flatten().all(|connection| connection.origin() == RequestOrigin::Foreign));
        let pod = take(&all, RequestOrigin::Pod).unwrap();
        assert_eq!((pod.origin(), all.count()), (RequestOrigin::Pod, 3));
    }

    #[test]
    fn requests_that_wait_have_a_bound_and_are_not_busy() {
        let all = connections();
        let one = take(&all, RequestOrigin::Pod).unwrap();
        let busy = one.begin_request();
        assert!(all.are_busy());
        let (first, second) = (one.begin_wait().unwrap(), one.begin_wait());
        assert!(one.begin_wait().is_none() && !all.are_busy());
        drop((first, second));
        assert!(one.begin_wait().is_some() && all.are_busy());
        drop((one, busy));
        assert_eq!(all.count(), 0);
    }
}
