//! The audit trail: lines for deliveries and for refusals, with the target `audit`, and never a value. At most one line
//! in ten seconds is written for equal deliveries (pod, address, config, version), and for the refusals of one address;
//! it counts the lines that were left out. So nobody can flood the trail, and a pod's lines hide only equal lines.

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
use crate::contents::ConfigView;

/// The interval between equal lines.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between searches of a full table for lines that were written longer ago.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of addresses whose refusals are remembered.
const MAX_ADDRESSES: usize = 1024;
/// The maximum number of deliveries that are remembered.
const MAX_DELIVERIES: usize = 16 * 1024;

/// A version that is delivered, or a config that is withheld because there is no version. Only pods whose token was
/// reviewed have such lines.
type Delivery = (PodUid, Peer, String, Option<VersionName>);

/// The writer of the audit trail.
pub(crate) struct Audit {
    refusals: Mutex<AuditLines<Peer>>,
    deliveries: Mutex<AuditLines<Delivery>>,
}

impl Default for Audit {
    fn default() -> Self {
        // A pod has few lines, so that only very many pods have more than the maximum, and none is lost.
        Self {
            refusals: AuditLines::new(MAX_ADDRESSES, Overflow::Count),
            deliveries: AuditLines::new(MAX_DELIVERIES, Overflow::Write),
        }
    }
}

impl Audit {
    /// Logs that a version of one config is sent to a pod.
    pub(crate) fn log_delivery(&self, session: &Session, view: &ConfigView) {
        let secrets = view.content.as_ref().ok().map(|content| content.secrets.join(","));
        let secrets = secrets.filter(|secrets| !secrets.is_empty());
        self.write(session, view, view.version.as_ref(), secrets.as_deref(), None, "version delivered");
    }

    /// Logs that a pod does not get one of its configs.
    pub(crate) fn log_withheld(&self, session: &Session, view: &ConfigView, reason: &str) {
        self.write(session, view, None, None, Some(reason), "config withheld");
    }

    /// Logs that a pod has mounted another content of a Secret part than what was sealed.
    pub(crate) fn log_changed_mount(&self, session: &Session, view: &ConfigView, part: usize) {
        let reason = format!("part {part} of the mounted version has another content than what was sealed");
        self.write(session, view, None, None, Some(&reason), "mounted Secret differs");
    }

    fn write(
        &self,
        session: &Session,
        view: &ConfigView,
        version: Option<&VersionName>,
        secrets: Option<&str>,
        reason: Option<&str>,
        event: &str,
    ) {
        let (caller, config) = (&session.caller, view.name.as_str());
        let delivery = (caller.uid.clone(), session.from.address.into(), config.to_owned(), version.cloned());
        let Some(left_out) = self.deliveries.lock().may_write(delivery, Instant::now()) else { return };
        tracing::info!(
            target: "audit",
            namespace = caller.namespace,
            config,
            version = version.map(VersionName::as_str),
            secrets,
            pod = caller.name,
            pod_uid = %caller.uid,
            service_account = caller.service_account,
            peer = %session.from.address,
            token_id = session.token_id,
            reason,
            left_out,
            "{event}"
        );
    }

    /// Logs that a request is refused for its token. The claims of the token are not verified.
    pub(crate) fn log_refusal(&self, address: IpAddr, claims: Option<(&Claims, &str)>, reason: &str) {
        let Some(left_out) = self.refusals.lock().may_write(address.into(), Instant::now()) else { return };
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

/// The treatment of lines that can't be remembered.
#[derive(Clone, Copy, Debug)]
enum Overflow {
    Write,
    /// The lines are left out and counted.
    Count,
}

/// The last line of a key.
#[derive(Debug)]
struct AuditLine {
    /// The earliest time of the key's next line.
    next: Instant,
    /// The number of lines left out since the last written line.
    left_out: u64,
}

/// A filter of lines: of equal ones, one in ten seconds is written.
#[derive(Debug)]
struct AuditLines<K> {
    by_key: HashMap<K, AuditLine>,
    max: usize,
    overflow: Overflow,
    /// The number of lines that were left out and are not remembered.
    left_out: u64,
    pruned_at: Option<Instant>,
}

impl<K: Eq + Hash> AuditLines<K> {
    fn new(max: usize, overflow: Overflow) -> Mutex<Self> {
        Mutex::new(Self { by_key: HashMap::new(), max, overflow, left_out: 0, pruned_at: None })
    }

    /// Returns the number of lines left out before this line; `None` if this line is left out, too.
    fn may_write(&mut self, key: K, now: Instant) -> Option<u64> {
        if let Some(line) = self.by_key.get_mut(&key).filter(|line| line.next > now) {
            line.left_out += 1;
            return None;
        }
        if self.by_key.len() >= self.max && !self.by_key.contains_key(&key) {
            self.prune(now);
            if self.by_key.len() >= self.max {
                return match self.overflow {
                    Overflow::Write => Some(0),
                    Overflow::Count => {
                        self.left_out += 1;
                        None
                    }
                };
            }
        }
        let previous = self.by_key.insert(key, AuditLine { next: now + REPEAT_INTERVAL, left_out: 0 });
        Some(previous.map_or(0, |line| line.left_out) + mem::take(&mut self.left_out))
    }

    fn prune(&mut self, now: Instant) {
        if self.pruned_at.is_some_and(|time| now < time + PRUNE_INTERVAL) {
            return;
        }
        self.pruned_at = Some(now);
        self.left_out += self.by_key.extract_if(|_, line| line.next <= now).map(|(_, line)| line.left_out).sum::<u64>();
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
        let (lines, now) = (AuditLines::new(MAX_ADDRESSES, Overflow::Count), Instant::now());
        let mut lines = lines.into_inner();
        assert_eq!(lines.may_write(peer(1), now), Some(0));
        for _ in 0..1000 {
            assert_eq!(lines.may_write(peer(1), now), None);
        }
        assert_eq!(lines.may_write(peer(2), now), Some(0), "another address is heard");
        assert_eq!(lines.may_write(peer(1), now + REPEAT_INTERVAL), Some(1000));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_is_lost_from_the_count() {
        let (lines, now) = (AuditLines::new(MAX_ADDRESSES, Overflow::Count), Instant::now());
        let mut lines = lines.into_inner();
        let written = (0..3 * MAX_ADDRESSES).filter(|number| lines.may_write(peer(*number), now).is_some()).count();
        assert_eq!((written, lines.by_key.len()), (MAX_ADDRESSES, MAX_ADDRESSES));
        assert_eq!(lines.may_write(peer(0), now), None);
        let left_out = u64::try_from(2 * MAX_ADDRESSES).unwrap() + 1;
        assert_eq!(lines.may_write(peer(5000), now + REPEAT_INTERVAL), Some(left_out));
        assert_eq!(lines.by_key.len(), 1);
    }

    #[test]
    fn no_delivery_is_hidden_by_those_of_others() {
        let (lines, now) = (AuditLines::new(10, Overflow::Write), Instant::now());
        let mut lines = lines.into_inner();
        assert_eq!((0..100).filter(|number| lines.may_write(peer(*number), now).is_some()).count(), 100);
        assert_eq!(lines.by_key.len(), 10);
    }
}
