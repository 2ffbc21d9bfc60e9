//! A poll: held until something differs from what the agent has, this replica ends, or the time is over.

use std::time::Duration;

use nudge_cluster::index::PodEntry;
use nudge_core::keys::PodKey;
use nudge_core::pods::PodState;
use nudge_protocol::hub::{MAX_WAIT_SECONDS, PollRequest};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Hub;
use super::compose::{Verdict, compose, fingerprint, verdict};
use super::metrics::PollResult;
use super::reply::{Refusal, Reply};
use super::review::Caller;
use super::view::{View, Views, polled, views};

/// The longest pause before the same reply is sent over one connection again.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The last reply over a connection: an agent that gets it, asks again and gets the same does not take it.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    last: Option<(u64, Instant)>,
    count: u32,
}

impl Repeats {
    /// When a reply may be sent; `None` is now.
    fn not_before(&self, fingerprint: u64) -> Option<Instant> {
        let (_, at) = self.last.filter(|(last, _)| *last == fingerprint)?;
        let pause = Duration::from_secs(1) * 2_u32.saturating_pow(self.count.min(10));
        Some(at + pause.min(LONGEST_PAUSE))
    }

    fn sent(&mut self, fingerprint: u64) {
        let same = self.last.is_some_and(|(last, _)| last == fingerprint);
        self.count = if same { self.count + 1 } else { 0 };
        self.last = Some((fingerprint, Instant::now()));
    }
}

enum Woken {
    Changed,
    Time,
    Superseded,
    Draining,
}

impl Hub {
    pub(super) async fn poll(&self, caller: &Caller, request: PollRequest, repeats: &mut Repeats) -> Reply {
        let (reply, result) = self.poll_result(caller, request, repeats).await;
        self.metrics.polled(result);
        reply
    }

    pub(super) async fn poll_result(
        &self,
        caller: &Caller,
        request: PollRequest,
        repeats: &mut Repeats,
    ) -> (Reply, PollResult) {
        let started = Instant::now();
        let wait = Duration::from_secs(request.wait_seconds.min(MAX_WAIT_SECONDS).into());
        let (deadline, behind) = (started + wait, started + self.settings.behind);
        let entry = match self.pod(caller).await {
            Ok(entry) => entry,
            Err(refusal) => return refused(refusal),
        };
        let mut woken = entry.woken();
        drop(entry);
        let poll_slot = self.poll_slots.take(caller.uid.as_str());
        let _held = self.metrics.held();
        let mut woken_at = None;
        loop {
            woken.borrow_and_update();
            let pod = match self.pod_now(caller) {
                Ok(Some(entry)) => entry.state,
                Ok(None) => return refused(GONE),
                Err(refusal) => return refused(refusal),
            };
            let until = {
                let Views { all, fetching, again } =
                    views(&self.index, &self.contents, &pod, |name| polled(&request, name));
                if let Some(mut landed) = fetching
                    && started.elapsed() < self.settings.resolve
                {
                    // Worth more than to answer that it is worth waiting for.
                    tokio::select! {
                        _ = timeout_at(started + self.settings.resolve, landed.changed()) => {}
                        _ = woken.changed() => {}
                        () = poll_slot.lost() => return (Reply::nothing(), PollResult::Superseded),
                        () = self.sent_away() => return (Reply::draining(), PollResult::Draining),
                    }
                    continue;
                }
                let now = Instant::now();
                let stale = self.is_stale(&caller.namespace);
                match verdict(&all, &request, &pod.containers_hash, stale) {
                    Verdict::Hold if now >= deadline => return (Reply::nothing(), PollResult::Unchanged),
                    // Another replica may know better than one whose watches are silent. Where none does, this is what it costs.
                    Verdict::Hold if stale && now >= started + self.settings.stale => {
                        let refusal =
                            Refusal::Unavailable("this replica of the hub has heard nothing from the API server");
                        return (refusal.into(), PollResult::Behind);
                    }
                    Verdict::Hold => {
                        let look = now + self.settings.stale;
                        again.map_or(deadline, |again| again.min(deadline)).min(look)
                    }
                    Verdict::Behind if now >= behind => {
                        let refusal = Refusal::Unavailable("this replica of the hub knows less than the agent");
                        return (refusal.into(), PollResult::Behind);
                    }
                    Verdict::Doubt if now < behind => behind,
                    Verdict::Behind => behind,
                    Verdict::Answer | Verdict::Doubt => {
                        let print = fingerprint(&all, &pod.containers_hash);
                        match repeats.not_before(print).filter(|time| *time > now) {
                            Some(_) if now >= deadline => return (Reply::nothing(), PollResult::Unchanged),
                            Some(time) => time.min(deadline),
                            None => {
                                if let Some(at) = woken_at {
                                    self.metrics.answered_after(now.duration_since(at).as_secs_f64());
                                }
                                repeats.sent(print);
                                return self.deliver(&pod, &all, &request);
                            }
                        }
                    }
                }
            };
            drop(pod);
            let why = tokio::select! {
                // It fails when the pod is gone, which is seen above.
                _ = woken.changed() => Woken::Changed,
                () = sleep_until(until) => Woken::Time,
                () = poll_slot.lost() => Woken::Superseded,
                () = self.sent_away() => Woken::Draining,
            };
            match why {
                Woken::Changed => woken_at = Some(Instant::now()),
                Woken::Time => woken_at = None,
                Woken::Superseded => return (Reply::nothing(), PollResult::Superseded),
                Woken::Draining => return (Reply::draining(), PollResult::Draining),
            }
        }
    }

    fn deliver(&self, pod: &PodState, views: &[View], request: &PollRequest) -> (Reply, PollResult) {
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => {
                for view in composed.blocks.iter().filter_map(|&index| views.get(index)) {
                    self.metrics.block_sent();
                    audit(pod, view);
                }
                (Reply::poll(composed.body), PollResult::Changed)
            }
            Err(error) => {
                tracing::error!(%error, "reply not made, which is a bug");
                (Refusal::Internal.into(), PollResult::Refused)
            }
        }
    }

    /// The pod of `caller`, which must exist: a review says so. Waits for a pod that is new here.
    pub(super) async fn pod(&self, caller: &Caller) -> Result<PodEntry, Refusal> {
        let until = Instant::now() + self.settings.behind;
        let mut added = self.index.pod_added();
        loop {
            added.borrow_and_update();
            if let Some(entry) = self.pod_now(caller)? {
                return Ok(entry);
            }
            if self.gone.contains(&caller.uid) {
                return Err(GONE);
            }
            if timeout_at(until, added.changed()).await.is_err() {
                // The next request is reviewed anew, in case there is another pod of this name by now.
                self.identities.forget(&caller.uid);
                return Err(Refusal::Unavailable("this replica of the hub does not know the pod yet"));
            }
        }
    }

    fn pod_now(&self, caller: &Caller) -> Result<Option<PodEntry>, Refusal> {
        if !self.index.is_enabled(&caller.namespace) {
            return Err(Refusal::NotEnabled(caller.namespace.clone()));
        }
        // A config that was not listed yet would seem not to be there.
        let complete = self.index.is_complete(&caller.namespace);
        let entry = self.index.pod(&PodKey::new(&*caller.namespace, &*caller.name)).filter(|_| complete);
        match entry.filter(|entry| entry.state.uid == caller.uid) {
            Some(entry) if entry.state.finished => Err(Refusal::Unauthorized("the pod has finished")),
            entry => Ok(entry),
        }
    }
}

const GONE: Refusal = Refusal::Unauthorized("the pod is gone");

fn refused(refusal: Refusal) -> (Reply, PollResult) {
    let result = match refusal {
        Refusal::Unavailable(_) => PollResult::Unavailable,
        _ => PollResult::Refused,
    };
    (refusal.into(), result)
}

/// One line for each delivery of Secrets: who got what, never a value.
fn audit(pod: &PodState, view: &View) {
    let Some(content) = view.content.as_ref().ok().filter(|content| !content.secrets.is_empty()) else { return };
    tracing::info!(
        target: "audit",
        namespace = pod.namespace,
        pod = pod.name,
        pod_uid = %pod.uid,
        config = view.name.as_str(),
        version = view.version.as_ref().map(nudge_protocol::VersionName::as_str),
        parts = content.secrets.join(","),
        "Secret parts delivered"
    );
}
