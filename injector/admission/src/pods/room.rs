//! Room for answers of the API server that are read at the same time: for each client, and for each namespace that it has read in. All users of
//! a cluster come by way of one client, the API server.

use nudge_server::shares::{Portion, Queues, Shares};
use nudge_server::slots::Peer;
use tokio::sync::OwnedSemaphorePermit;

/// The room.
pub(super) struct Room {
    clients: Shares,
    namespaces: Queues<(Peer, String)>,
}

/// What one answer takes; free again on drop.
pub(super) struct Place {
    _of_namespace: Option<OwnedSemaphorePermit>,
    _of_client: Portion,
}

impl Room {
    /// Room for `all` answers, a quarter of them for one client, and half of those for one namespace.
    pub(super) fn new(all: usize) -> Self {
        let clients = Shares::new(all, 1);
        let namespaces = Queues::new(clients.share().div_ceil(2));
        Self { clients, namespaces }
    }

    /// Waits for room.
    pub(super) async fn take(&self, client: Peer, namespace: &str) -> Place {
        let of_namespace = self.namespaces.take((client, namespace.to_owned()), 1).await;
        Place { _of_namespace: of_namespace, _of_client: self.clients.take(client, 1).await }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn one_namespace_leaves_room_for_another_of_the_same_client() {
        let room = Room::new(32);
        let take =
            |host: u8, namespace: &str| room.take(IpAddr::from([10, 0, 0, host]).into(), namespace).now_or_never();
        let all: Vec<_> = (0..100).filter_map(|_| take(1, "large")).collect();
        let other = take(1, "small");
        assert!(all.len() == 4 && other.is_some() && take(1, "large").is_none());
        let more: Vec<_> = (0..100).filter_map(|number| take(1, &format!("team-{number}"))).collect();
        assert_eq!(all.len() + more.len() + 1, 8, "no client has more than a quarter");
        assert!(take(2, "large").is_some());
        drop((all, more, other));
        assert!(take(1, "large").is_some());
    }
}
