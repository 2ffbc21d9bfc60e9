//! Who asks: a pod that the index has, with its service account, and whose token was reviewed. What the token says of itself comes first, so
//! that a token that can't be good costs no review.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use nudge_cluster::index::PodEntry;
use nudge_core::keys::PodKey;
use nudge_server::slots::Peer;
use tokio::time::{Instant, timeout, timeout_at};

use super::Hub;
use super::claims::Claims;
use super::identity::Known;
use super::reply::Refusal;
use super::review::{Caller, ReviewError};
use super::token_hash::hash;

/// Whose requests come over a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The address.
    pub(super) address: IpAddr,
    /// Whom it is counted for.
    pub(super) peer: Peer,
    /// When it began.
    pub(super) since: Instant,
}

/// A pod that asks.
#[derive(Debug)]
pub(super) struct Session {
    /// The pod.
    pub(super) caller: Arc<Caller>,
    /// Names its token in the audit trail.
    pub(super) token_id: String,
    /// Where it asks from.
    pub(super) address: IpAddr,
    /// When its connection began.
    pub(super) since: Instant,
    /// When its token has to be reviewed again.
    pub(super) until: Instant,
}

pub(super) const GONE: Refusal = Refusal::Unauthorized("the pod is gone");
const NO_ACCOUNT: Refusal = Refusal::Unauthorized("the service account that the token was made for is gone");
const NOT_LISTED: Refusal = Refusal::Unavailable("this replica of the hub has not listed the namespace yet");

impl Hub {
    /// What `token` says of itself, if it is about a pod that is there.
    pub(super) async fn admit(&self, token: &str, from: Origin) -> Result<Claims, Refusal> {
        let claims = Claims::read(token, SystemTime::now()).map_err(|error| {
            self.audit.refused(from.address, None, &error.to_string());
            Refusal::Unauthorized(error.message())
        })?;
        match self.expect_pod(&claims, from.peer).await {
            Ok(()) => Ok(claims),
            Err(refusal) => Err(self.audit_refusal(refusal, token, &claims, from)),
        }
    }

    /// Waits for a pod, or a service account, that is new here. Each pod that is added wakes all who wait, so only so many of one address do.
    pub(super) async fn expect_pod(&self, claims: &Claims, peer: Peer) -> Result<(), Refusal> {
        if self.pod(&claims.caller).is_ok() {
            return Ok(());
        }
        let waits = timeout(self.settings.behind, self.waiting.take(peer, 1)).await;
        let _waits = waits.map_err(|_| Refusal::Unavailable("too many requests wait for pods that are new"))?;
        self.await_pod(&claims.caller).await.map(drop)
    }

    /// The pod that has sent `token`, which says this of itself.
    pub(super) async fn session(&self, token: &str, claims: &Claims, from: Origin) -> Result<Session, Refusal> {
        let refusal = match self.identities.caller(token, claims, from.peer).await {
            Ok(Known { caller, until }) => {
                let token_id = claims.token_id(&hash(token));
                return Ok(Session { caller, token_id, address: from.address, since: from.since, until });
            }
            Err(ReviewError::Refused(message)) => Refusal::Unauthorized(message),
            Err(ReviewError::TooMany) => Refusal::Unavailable("too many tokens are to be reviewed"),
            Err(ReviewError::Unavailable(_)) => Refusal::Unavailable("the API server can't review tokens now"),
        };
        Err(self.audit_refusal(refusal, token, claims, from))
    }

    fn audit_refusal(&self, refusal: Refusal, token: &str, claims: &Claims, from: Origin) -> Refusal {
        let token_id = claims.token_id(&hash(token));
        self.audit.refused(from.address, Some((claims, &token_id)), &refusal.to_string());
        refusal
    }

    /// Waits for a pod, or a service account, that is new here.
    pub(super) async fn await_pod(&self, caller: &Caller) -> Result<PodEntry, Refusal> {
        let until = Instant::now() + self.settings.behind;
        let mut added = self.index.pod_added();
        loop {
            added.borrow_and_update();
            let unknown = match self.pod(caller) {
                Err(NOT_LISTED) => NOT_LISTED,
                Err(GONE) if !self.gone.contains(caller.uid.as_str()) => {
                    Refusal::Unavailable("this replica of the hub does not know the pod")
                }
                Err(NO_ACCOUNT) if !self.gone.contains(&caller.account_uid) => {
                    Refusal::Unavailable("this replica of the hub does not know the service account of the pod")
                }
                known => return known,
            };
            if timeout_at(until, added.changed()).await.is_err() {
                return Err(unknown);
            }
        }
    }

    /// The pod as it is now. A watch that is behind throws nobody out: what it showed last counts.
    fn pod(&self, caller: &Caller) -> Result<PodEntry, Refusal> {
        let Caller { namespace, name, uid, service_account, account_uid } = caller;
        if !self.index.is_enabled(namespace) {
            return Err(Refusal::NotEnabled(namespace.clone()));
        }
        // A config that was not listed yet would seem not to be there.
        if !self.index.is_complete(namespace) {
            return Err(NOT_LISTED);
        }
        match self.index.pod(&PodKey::new(&**namespace, &**name)).filter(|entry| entry.state.uid == *uid) {
            Some(entry) if entry.state.finished => Err(Refusal::Unauthorized("the pod has finished")),
            Some(_) if !self.index.has_account(namespace, service_account, account_uid) => Err(NO_ACCOUNT),
            entry => entry.ok_or(GONE),
        }
    }

    /// The pod of the session as it is now.
    pub(super) fn pod_of(&self, session: &Session) -> Result<PodEntry, Refusal> {
        self.pod(&session.caller)
    }
}
