//! The shares of tenants. All tenants come by way of one client, the API server. Of a client's share, one namespace
//! gets at most half, and one user three quarters. So a namespace leaves room for another one even if one user, such as
//! a controller, makes the requests of both.

use nudge_server::shares::{Queues, SharePermit, Shares};
use nudge_server::slots::Peer;
use tokio::sync::OwnedSemaphorePermit;

/// The namespace and the user of a request. A client that is not the API server may name any namespace and user, but
/// gains nothing by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tenant {
    peer: Peer,
    namespace: String,
    user: String,
}

impl Tenant {
    /// Creates a tenant. The namespace is empty for cluster-scoped objects.
    pub(super) fn new(peer: Peer, namespace: &str, user: &str) -> Self {
        Self { peer, namespace: namespace.to_owned(), user: user.to_owned() }
    }

    fn namespace(&self) -> (Peer, String) {
        (self.peer, self.namespace.clone())
    }

    fn user(&self) -> (Peer, String) {
        (self.peer, self.user.clone())
    }
}

/// The queues of namespaces and users for the units of one client.
pub(super) struct TenantQueues {
    namespaces: Queues<(Peer, String)>,
    users: Queues<(Peer, String)>,
}

/// The units that count for a namespace and a user, until the value is dropped.
pub(super) struct TenantPermits {
    _of_namespace: Option<OwnedSemaphorePermit>,
    _of_user: Option<OwnedSemaphorePermit>,
}

impl TenantQueues {
    /// Creates queues for the units that one client may have.
    pub(super) fn new(units: u32) -> Self {
        Self { namespaces: Queues::new(units.div_ceil(2)), users: Queues::new(units - units / 4) }
    }

    /// Waits for units, in the queue of the namespace first, which gives the queue of the user no more than its share.
    async fn take(&self, tenant: &Tenant, units: u32) -> TenantPermits {
        let of_namespace = self.namespaces.take(tenant.namespace(), units).await;
        TenantPermits { _of_namespace: of_namespace, _of_user: self.users.take(tenant.user(), units).await }
    }

    /// Takes units, if enough are free now.
    pub(super) fn try_take(&self, tenant: &Tenant, units: u32) -> Option<TenantPermits> {
        let of_namespace = self.namespaces.try_take(tenant.namespace(), units)?;
        let of_user = self.users.try_take(tenant.user(), units)?;
        Some(TenantPermits { _of_namespace: Some(of_namespace), _of_user: Some(of_user) })
    }
}

/// A resource: a client gets at most a quarter of it, and its tenants get shares of that quarter.
pub(super) struct TenantShares {
    clients: Shares,
    queues: TenantQueues,
}

/// The units of a tenant, until the value is dropped.
pub(super) struct TenantPermit {
    _of_tenant: TenantPermits,
    _of_client: SharePermit,
}

impl TenantShares {
    /// Creates shares of `units`. A request may need `largest` at once. One that needs more than the share of its
    /// tenant waits for the whole share.
    pub(super) fn new(units: usize, largest: usize) -> Self {
        let clients = Shares::new(units, largest);
        let queues = TenantQueues::new(clients.share());
        Self { clients, queues }
    }

    /// Returns the maximum number of units of one client.
    pub(super) fn share(&self) -> u32 {
        self.clients.share()
    }

    /// Waits for units.
    pub(super) async fn take(&self, tenant: &Tenant, units: u32) -> TenantPermit {
        let permits = self.queues.take(tenant, units).await;
        TenantPermit { _of_tenant: permits, _of_client: self.clients.take(tenant.peer, units).await }
    }

    /// Waits for other tenants alone; `None` if the tenant holds too much itself.
    pub(super) async fn take_if_due(&self, tenant: &Tenant, units: u32) -> Option<TenantPermit> {
        let permits = self.queues.try_take(tenant, units)?;
        Some(TenantPermit { _of_tenant: permits, _of_client: self.clients.take(tenant.peer, units).await })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;

    use super::*;

    fn tenant(host: u8, namespace: &str, user: &str) -> Tenant {
        Tenant::new(IpAddr::from([10, 0, 0, host]).into(), namespace, user)
    }

    #[test]
    fn a_namespace_and_a_user_leave_room_for_others_of_the_same_client() {
        let shares = TenantShares::new(32, 1);
        let take = |host, namespace: &str, user: &str| shares.take(&tenant(host, namespace, user), 1).now_or_never();
        let loud: Vec<_> = (0..100).filter_map(|number| take(1, "loud", &format!("user-{number}"))).collect();
        assert_eq!(loud.len(), 4);
        // A controller makes the requests of all namespaces.
        let first = take(1, "loud-1", "controller").unwrap();
        drop(loud);
        let loud: Vec<_> = (0..100).filter_map(|_| take(1, "loud", "controller")).collect();
        assert_eq!(loud.len(), 4);
        let second = take(1, "quiet", "controller").unwrap();
        assert!(take(1, "quiet", "controller").is_none(), "a user has three quarters");
        let others = [take(1, "quiet", "bob").unwrap(), take(1, "loud-1", "eve").unwrap()];
        assert!(take(1, "quiet", "eve").is_none(), "no client has more than a quarter");
        assert!(take(2, "loud", "controller").is_some());
        drop((loud, first, second, others));
        assert!(take(1, "loud", "controller").is_some());
    }

    #[test]
    fn what_takes_more_than_a_share_waits_for_all_of_it_and_no_longer() {
        let shares = TenantShares::new(32, 1);
        let take = |namespace: &str, units| shares.take(&tenant(1, namespace, "eve"), units).now_or_never();
        let little = take("loud", 1).unwrap();
        assert!(take("loud", 8).is_none());
        drop(little);
        let all = take("loud", 8).unwrap();
        assert!(take("quiet", 1).is_none(), "it takes all that the client has");
        drop(all);
        assert!(take("quiet", 1).is_some());
    }

    #[test]
    fn who_may_not_wait_for_itself_is_refused_at_once() {
        let shares = TenantShares::new(32, 1);
        let take =
            |namespace: &str, units| shares.take_if_due(&tenant(1, namespace, "eve"), units).now_or_never().unwrap();
        let loud = take("loud", 4).unwrap();
        assert!(take("loud", 1).is_none() && take("quiet", 3).is_none());
        assert!(take("quiet", 2).is_some());
        drop(loud);
        assert!(take("loud", 1).is_some());
    }
}
