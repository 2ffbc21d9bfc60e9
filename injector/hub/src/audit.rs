//! The audit trail: lines for deliveries and for refusals, with the target `audit`, and never a value. Of equal deliveries (pod, address,
//! config, version) one in ten seconds is written, and of the refusals one of each address, with the number of those that were left out.
//! So nobody can flood the trail, and a pod's lines hide nothing but their like.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use nudge_core::keys::PodUid;
use nudge_protocol::VersionName;
use nudge_server::slots::Peer;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::claims::Claims;
use super::session::Session;
use super::view::View;

/// How often a line is written that is equal to another one.
const EVERY: Duration = Duration::from_secs(10);
/// How often a full table is searched for lines that were written longer ago.
const TIDY: Duration = Duration::from_secs(1);
/// Addresses whose refusals are remembered.
const ADDRESSES: usize = 1024;
/// Deliveries that are remembered.
const DELIVERIES: usize = 16 * 1024;

/// What is delivered, or withheld where there is no version. Only pods whose token was reviewed have such lines.
type Delivery = (PodUid, Peer, String, Option<VersionName>);

/// The trail.
pub(super) struct Audit {
    refusals: Mutex<Lines<Peer>>,
    deliveries: Mutex<Lines<Delivery>>,
}

impl Default for Audit {
    fn default() -> Self {
        // A pod has few lines, so that there are more only where very many pods have them: no reason to lose one.
        Self { refusals: Lines::new(ADDRESSES, false), deliveries: Lines::new(DELIVERIES, true) }
    }
}

impl Audit {
    /// A version of one config is sent to a pod.
    pub(super) fn delivered(&self, session: &Session, view: &View) {
        let Some(left_out) = self.may_write(session, view.name.as_str(), view.version.as_ref()) else { return };
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
            left_out,
            "version delivered"
        );
    }

    /// A pod does not get one of its configs.
    pub(super) fn withheld(&self, session: &Session, config: &str, reason: &str) {
        let Some(left_out) = self.may_write(session, config, None) else { return };
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

    /// Whether a line about this is written, and how many like it were left out before.
    fn may_write(&self, session: &Session, config: &str, version: Option<&VersionName>) -> Option<u64> {
        let (uid, peer) = (session.caller.uid.clone(), session.address.into());
        may_write(&self.deliveries, (uid, peer, config.to_owned(), version.cloned()))
    }

    /// A request is refused for its token. What the token says of itself is only claimed.
    pub(super) fn refused(&self, address: IpAddr, claims: Option<(&Claims, &str)>, reason: &str) {
        let Some(left_out) = may_write(&self.refusals, address.into()) else { return };
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

fn may_write<K: Eq + Hash>(lines: &Mutex<Lines<K>>, key: K) -> Option<u64> {
    lines.lock().may_write(key, Instant::now())
}

/// Which lines are written: of equal ones, one in ten seconds.
#[derive(Debug)]
struct Lines<K> {
    /// When the next one is written, and how many were left out since the last.
    by_key: HashMap<K, (Instant, u64)>,
    most: usize,
    /// Whether lines are written for which there is no place.
    beyond: bool,
    /// Left out of those that are not remembered.
    others: u64,
    tidied: Option<Instant>,
}

impl<K: Eq + Hash> Lines<K> {
    fn new(most: usize, beyond: bool) -> Mutex<Self> {
        Mutex::new(Self { by_key: HashMap::new(), most, beyond, others: 0, tidied: None })
    }

    /// Whether a line is written, and how many were left out before it.
    fn may_write(&mut self, key: K, now: Instant) -> Option<u64> {
        let known = self.by_key.get_mut(&key);
        if let Some((_, left_out)) = known.filter(|(next, _)| *next > now) {
            *left_out += 1;
            return None;
        }
        if self.by_key.len() >= self.most && !self.by_key.contains_key(&key) {
            self.tidy(now);
            if self.by_key.len() >= self.most {
                self.others += u64::from(!self.beyond);
                return self.beyond.then_some(0);
            }
        }
        let before = self.by_key.insert(key, (now + EVERY, 0));
        Some(before.map_or(0, |(_, left_out)| left_out) + mem::take(&mut self.others))
    }

    fn tidy(&mut self, now: Instant) {
        if self.tidied.is_some_and(|at| now < at + TIDY) {
            return;
        }
        self.tidied = Some(now);
        let others = &mut self.others;
        self.by_key.retain(|_, (next, left_out)| {
            let stays = *next > now;
            *others += if stays { 0 } else { *left_out };
            stays
        });
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
    fn one_of_each_key_is_written_and_the_others_are_counted() {
        let (lines, now) = (Lines::new(ADDRESSES, false), Instant::now());
        let mut lines = lines.into_inner();
        assert_eq!(lines.may_write(peer(1), now), Some(0));
        for _ in 0..1000 {
            assert_eq!(lines.may_write(peer(1), now), None);
        }
        assert_eq!(lines.may_write(peer(2), now), Some(0), "another address is heard");
        assert_eq!(lines.may_write(peer(1), now + EVERY), Some(1000));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_is_lost_from_the_count() {
        let (lines, now) = (Lines::new(ADDRESSES, false), Instant::now());
        let mut lines = lines.into_inner();
        let written = (0..3 * ADDRESSES).filter(|number| lines.may_write(peer(*number), now).is_some()).count();
        assert_eq!((written, lines.by_key.len()), (ADDRESSES, ADDRESSES));
        assert_eq!(lines.may_write(peer(0), now), None);
        let left_out = u64::try_from(2 * ADDRESSES).unwrap() + 1;
        assert_eq!(lines.may_write(peer(5000), now + EVERY), Some(left_out));
        assert_eq!(lines.by_key.len(), 1);
    }

    #[test]
    fn no_delivery_is_hidden_by_those_of_others() {
        let (lines, now) = (Lines::new(10, true), Instant::now());
        let mut lines = lines.into_inner();
        assert_eq!((0..100).filter(|number| lines.may_write(peer(*number), now).is_some()).count(), 100);
        assert_eq!(lines.by_key.len(), 10);
    }
}
