//! Decides whether a request is let in. Its token must name a pod in the index, with the pod's service account, and the
//! API server must accept the token. The token's claims are checked first, so that a token that can't be valid costs no
//! review.

use std::sync::Arc;
use std::time::SystemTime;

use nudge_cluster::index::{Index, PodEntry};
use nudge_core::keys::PodKey;
use nudge_server::shares::Queues;
use nudge_server::slots::Peer;
use tokio::time::{Instant, timeout, timeout_at};

use super::audit::Audit;
use super::claims::Claims;
use super::gone_uids::GoneUids;
use super::reviewer::{Caller, ReviewError, Reviewer};
use super::session::{ConnectionOrigin, Session};
use super::token_hash::hash_token;
use super::token_reviews::{ReviewedToken, TokenReviews};
use crate::metrics::Metrics;
use crate::reply::PollRefusal;
use crate::settings::Settings;

/// Why the index has no pod for a caller.
pub(crate) enum PodAbsence {
    NotEnabled { namespace: String },
    NotListed,
    Gone,
    Finished,
    NoAccount,
}

impl From<PodAbsence> for PollRefusal {
    fn from(absence: PodAbsence) -> Self {
        match absence {
            PodAbsence::NotEnabled { namespace } => Self::NotEnabled(namespace),
            PodAbsence::NotListed => Self::Unavailable("this replica of the hub has not listed the namespace yet"),
            PodAbsence::Gone => Self::Unauthorized("the pod is gone"),
            PodAbsence::Finished => Self::Unauthorized("the pod has finished"),
            PodAbsence::NoAccount => {
                Self::Unauthorized("the token's service account is gone; create it and the pod again")
            }
        }
    }
}

/// The authentication of agents by the tokens of their pods.
pub(crate) struct Authentication {
    index: Arc<Index>,
    settings: Arc<Settings>,
    pub(crate) audit: Audit,
    pub(crate) reviews: Arc<TokenReviews>,
    /// Requests that wait for a pod that is new here.
    pub(super) waiting: Queues<Peer>,
    /// Pods and service accounts that are gone.
    pub(crate) gone: GoneUids,
}

impl Authentication {
    pub(crate) fn new(
        index: &Arc<Index>,
        reviewer: Arc<dyn Reviewer>,
        settings: &Arc<Settings>,
        metrics: Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            index: Arc::clone(index),
            settings: Arc::clone(settings),
            audit: Audit::default(),
            reviews: TokenReviews::new(reviewer, settings, metrics),
            waiting: Queues::new(settings.max_waiting_requests),
            gone: GoneUids::default(),
        })
    }

    /// Returns the claims of `token`, if its pod exists.
    pub(crate) async fn admit(&self, token: &str, from: ConnectionOrigin) -> Result<Claims, PollRefusal> {
        let claims = Claims::parse(token, SystemTime::now()).map_err(|error| {
            self.audit.log_refusal(from.address, None, error.message());
            PollRefusal::Unauthorized(error.message())
        })?;
        match self.wait_in_queue(&claims, from.peer).await {
            Ok(()) => Ok(claims),
            Err(refusal) => Err(self.audit_refusal(refusal, token, &claims, from)),
        }
    }

    /// Waits for a pod, or a service account, that is new here. Each new pod wakes all requests that wait, so their
    /// number is limited for each address.
    pub(super) async fn wait_in_queue(&self, claims: &Claims, peer: Peer) -> Result<(), PollRefusal> {
        if self.pod(&claims.caller).is_ok() {
            return Ok(());
        }
        let place = timeout(self.settings.behind_timeout, self.waiting.take(peer, 1)).await;
        let _place = place.map_err(|_| PollRefusal::Unavailable("too many requests wait for pods that are new"))?;
        self.wait_for_pod(&claims.caller).await.map(drop)
    }

    /// Returns the session of the pod that has sent `token`, which makes these claims.
    pub(crate) async fn session(
        &self,
        token: &str,
        claims: &Claims,
        from: ConnectionOrigin,
    ) -> Result<Session, PollRefusal> {
        let refusal = match self.reviews.review(token, claims, from.peer).await {
            Ok(ReviewedToken { caller, until }) => {
                let token_id = claims.token_id(&hash_token(token));
                return Ok(Session { caller, token_id, from, until });
            }
            Err(ReviewError::Refused(message)) => PollRefusal::Unauthorized(message),
            Err(ReviewError::TooMany) => PollRefusal::Unavailable("too many tokens wait for a review"),
            Err(ReviewError::Unavailable(_)) => PollRefusal::Unavailable("the API server can't review tokens now"),
        };
        Err(self.audit_refusal(refusal, token, claims, from))
    }

    fn audit_refusal(&self, refusal: PollRefusal, token: &str, claims: &Claims, from: ConnectionOrigin) -> PollRefusal {
        let token_id = claims.token_id(&hash_token(token));
        self.audit.log_refusal(from.address, Some((claims, &token_id)), &refusal.to_string());
        refusal
    }

    /// Waits for a pod, or a service account, that is new here.
    pub(super) async fn wait_for_pod(&self, caller: &Caller) -> Result<PodEntry, PollRefusal> {
        let until = Instant::now() + self.settings.behind_timeout;
        let mut added = self.index.additions();
        loop {
            added.borrow_and_update();
            let refusal = match self.pod(caller) {
                Err(PodAbsence::NotListed) => PodAbsence::NotListed.into(),
                Err(PodAbsence::Gone) if !self.gone.contains(caller.uid.as_str()) => {
                    PollRefusal::Unavailable("this replica of the hub does not know the pod")
                }
                Err(PodAbsence::NoAccount) if !self.gone.contains(&caller.account_uid) => {
                    PollRefusal::Unavailable("this replica of the hub does not know the service account of the pod")
                }
                result => return result.map_err(PollRefusal::from),
            };
            if timeout_at(until, added.changed()).await.is_err() {
                return Err(refusal);
            }
        }
    }

    /// Returns the pod as it is now. If a watch is behind, the state that it showed last counts.
    pub(crate) fn pod(&self, caller: &Caller) -> Result<PodEntry, PodAbsence> {
        let Caller { namespace, name, uid, service_account, account_uid } = caller;
        if !self.index.is_enabled(namespace) {
            return Err(PodAbsence::NotEnabled { namespace: namespace.clone() });
        }
        // A config that was not listed yet would seem not to exist.
        if !self.index.is_complete(namespace) {
            return Err(PodAbsence::NotListed);
        }
        match self.index.pod(&PodKey::new(&**namespace, &**name)).filter(|entry| entry.state.uid == *uid) {
            Some(entry) if entry.state.is_finished() => Err(PodAbsence::Finished),
            Some(_) if !self.index.has_account(namespace, service_account, account_uid) => Err(PodAbsence::NoAccount),
            entry => entry.ok_or(PodAbsence::Gone),
        }
    }
}
