//! The audit trail: a line for each delivery and for refusals, with the target `audit`, and never a value. Deliveries are all written; of
//! the refusals, one of each address in ten seconds, with the number of those that were left out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nudge_protocol::VersionName;
use nudge_server::slots::Peer;
use tokio::time::Instant;

use super::claims::Claims;
use super::session::Session;
use super::view::View;

/// How often the refusals of one address are written.
const EVERY: Duration = Duration::from_secs(10);
/// Addresses that are remembered.
const ADDRESSES: usize = 1024;

/// The trail.
#[derive(Default)]
pub(super) struct Audit {
    refusals: Mutex<Refusals>,
    /// By pods whose token was reviewed: nobody else's refusals hide them.
    withheld: Mutex<Refusals>,
}

impl Audit {
    /// A version of one config is sent to a pod.
    #[allow(clippy::unused_self, reason = "as the other lines of the trail")]
    pub(super) fn delivered(&self, session: &Session, view: &View) {
        let secrets = view.content.as_ref().ok().map(|content| content.secrets.join(","));
        let caller = &session.caller;
        tracing::info!(
            target: "audit",
            namespace = caller.namespace,
            config = view.name.as_str(),
            version = view.version.as_ref().map(VersionName::as_str),
            secrets = secrets.filter(|secrets| !secrets.is_empty()),
            pod = caller.name,
            pod_uid = %caller.uid,
            service_account = caller.service_account,
            peer = %session.address,
            token_id = session.token_id,
            "version delivered"
        );
    }

    /// A pod does not get one of its configs.
    pub(super) fn withheld(&self, session: &Session, config: &str, reason: &str) {
        let Some(left_out) = may_write(&self.withheld, session.address) else { return };
        let caller = &session.caller;
        tracing::info!(
            target: "audit",
            namespace = caller.namespace,
            config,
            pod = caller.name,
            pod_uid = %caller.uid,
            service_account = caller.service_account,
            peer = %session.address,
            token_id = session.token_id,
            reason,
            left_out,
            "config withheld"
        );
    }

    /// A request is refused for its token. What the token says of itself is only claimed.
    pub(super) fn refused(&self, address: IpAddr, claims: Option<(&Claims, &str)>, reason: &str) {
        let Some(left_out) = may_write(&self.refusals, address) else { return };
        tracing::info!(
            target: "audit",
            peer = %address,
            reason,
            claimed_namespace = claims.map(|(claims, _)| claims.caller.namespace.as_str()),
            claimed_pod = claims.map(|(claims, _)| claims.caller.name.as_str()),
            claimed_pod_uid = claims.map(|(claims, _)| claims.caller.uid.as_str()),
            claimed_service_account = claims.map(|(claims, _)| claims.caller.service_account.as_str()),
            claimed_token_id = claims.map(|(_, id)| id),
            left_out,
            "request refused"
        );
    }
}

fn may_write(refusals: &Mutex<Refusals>, address: IpAddr) -> Option<u64> {
    refusals.lock().unwrap_or_else(PoisonError::into_inner).may_write(address.into(), Instant::now())
}

/// Which refusals are written.
#[derive(Debug, Default)]
struct Refusals {
    /// When the next one of an address is written, and how many were left out since the last.
    by_peer: HashMap<Peer, (Instant, u64)>,
    /// Left out of addresses that are not remembered.
    others: u64,
}

impl Refusals {
    /// Whether a refusal of `peer` is written, and how many were left out before it.
    fn may_write(&mut self, peer: Peer, now: Instant) -> Option<u64> {
        let known = self.by_peer.get_mut(&peer);
        if let Some((_, left_out)) = known.filter(|(next, _)| *next > now) {
            *left_out += 1;
            return None;
        }
        if self.by_peer.len() >= ADDRESSES && !self.by_peer.contains_key(&peer) {
            let others = &mut self.others;
            self.by_peer.retain(|_, (next, left_out)| {
                let stays = *next > now;
                *others += if stays { 0 } else { *left_out };
                stays
            });
            if self.by_peer.len() >= ADDRESSES {
                self.others += 1;
                return None;
            }
        }
        let before = self.by_peer.insert(peer, (now + EVERY, 0));
        Some(before.map_or(0, |(_, left_out)| left_out) + std::mem::take(&mut self.others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: usize) -> Peer {
        let [.., third, fourth] = number.to_be_bytes();
        IpAddr::from([10, 0, third, fourth]).into()
    }

    #[test]
    fn one_of_each_address_is_written_and_the_others_are_counted() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.may_write(peer(1), now), Some(0));
        for _ in 0..1000 {
            assert_eq!(refusals.may_write(peer(1), now), None);
        }
        assert_eq!(refusals.may_write(peer(2), now), Some(0), "another address is heard");
        assert_eq!(refusals.may_write(peer(1), now + EVERY), Some(1000));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_is_lost_from_the_count() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let written = (0..3 * ADDRESSES).filter(|number| refusals.may_write(peer(*number), now).is_some()).count();
        assert_eq!((written, refusals.by_peer.len()), (ADDRESSES, ADDRESSES));
        assert_eq!(refusals.may_write(peer(0), now), None);
        let left_out = u64::try_from(2 * ADDRESSES).unwrap() + 1;
        assert_eq!(refusals.may_write(peer(5000), now + EVERY), Some(left_out));
        assert_eq!(refusals.by_peer.len(), 1);
    }
}
