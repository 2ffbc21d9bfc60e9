//! A poll: held until something of the pod's own differs from what the agent has, the agent or this replica ends it, or the time is over.

use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_protocol::VersionName;
use nudge_protocol::bounded_text::clipped;
use nudge_protocol::hub::{HubReason, MAX_WAIT_SECONDS, PollRequest};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::Hub;
use super::compose::{Verdict, compose, differing, fingerprint, is_newer, spread, verdict};
use super::metrics::PollResult;
use super::reply::{Refusal, Reply};
use super::session::Session;
use super::turns::Wish;
use super::view::{View, Views, polled, views};

/// Longest uid or hash in a poll, in bytes.
const MAX_TEXT_BYTES: usize = 128;
/// The longest pause before the same reply is sent over one connection again.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What one connection has seen.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// The last reply: an agent that gets it, asks again and gets the same does not take it.
    last: Option<(u64, Instant)>,
    count: u32,
    /// The agent has something to say, and wants the poll that is held to end.
    pub(super) interrupted: Arc<Notify>,
}

impl Talk {
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

/// What a poll waits for before it looks again.
struct Wait {
    until: Instant,
    /// These are to be confirmed.
    open: Vec<ConfigKey>,
    /// Contents that are being read.
    fetching: Vec<watch::Receiver<()>>,
}

enum Woken {
    Changed,
    Confirmed,
    Time,
    Superseded,
    Interrupted,
    Draining,
}

/// A poll that is held.
struct Held<'a> {
    session: &'a Session,
    request: PollRequest,
    started: Instant,
    /// When the agent is answered that nothing has changed.
    deadline: Instant,
    /// Until when an answer waits to be confirmed, since there is one.
    patience: Option<Instant>,
    /// When the change came that is to be answered.
    woken: Option<Instant>,
    /// The versions that only a restart brings to the pod, when it was last looked at.
    due: Vec<VersionName>,
}

impl Hub {
    pub(super) async fn poll(&self, session: &Session, request: PollRequest, talk: &mut Talk) -> Reply {
        let (reply, result) = self.poll_result(session, request, talk).await;
        self.metrics.polled(result);
        reply
    }

    pub(super) async fn poll_result(
        &self,
        session: &Session,
        mut request: PollRequest,
        talk: &mut Talk,
    ) -> (Reply, PollResult) {
        let started = Instant::now();
        let wait = Duration::from_secs(request.wait_seconds.min(MAX_WAIT_SECONDS).into());
        // The next poll has the token reviewed again.
        let deadline = (started + wait).min(session.until.max(started));
        let entry = match self.pod_of(session) {
            Ok(entry) => entry,
            Err(refusal) => return refused(refusal),
        };
        bound(&mut request, &entry.state);
        let mut woken = entry.woken();
        drop(entry);
        let poll_slot = self.poll_slots.take(session.caller.uid.as_str());
        let _held = self.metrics.held();
        let mut held = Held { session, request, started, deadline, patience: None, woken: None, due: Vec::new() };
        let interrupted = Arc::clone(&talk.interrupted);
        loop {
            woken.borrow_and_update();
            let Wait { until, open, fetching } = match self.look(&mut held, talk) {
                Ok(wait) => wait,
                Err(end) => return end,
            };
            let why = tokio::select! {
                // It fails when the pod is gone, which is seen above.
                _ = woken.changed() => Woken::Changed,
                () = self.confirmations.confirmed(&open, session.since), if !open.is_empty() => Woken::Confirmed,
                () = landed(fetching) => Woken::Confirmed,
                () = sleep_until(until) => Woken::Time,
                () = poll_slot.lost() => Woken::Superseded,
                () = interrupted.notified() => Woken::Interrupted,
                () = self.sent_away() => Woken::Draining,
            };
            match why {
                Woken::Changed => held.woken = Some(Instant::now()),
                Woken::Confirmed => {}
                Woken::Time => held.woken = None,
                Woken::Superseded => return self.end(&held, PollResult::Superseded),
                Woken::Interrupted => return self.end(&held, PollResult::Interrupted),
                Woken::Draining => return (Reply::draining(), PollResult::Draining),
            }
        }
    }

    /// Looks whether the poll ends now.
    fn look(&self, held: &mut Held<'_>, talk: &mut Talk) -> Result<Wait, (Reply, PollResult)> {
        let Held { session, started, deadline, .. } = *held;
        let pod = self.pod_of(session).map_err(refused)?.state;
        let Views { all, fetching, again } =
            views(&self.index, &self.contents, &pod, |name| polled(&held.request, name));
        let (now, resolved) = (Instant::now(), started + self.settings.resolve);
        let resolves = !fetching.is_empty() && now < resolved;
        let wait = |until| Ok(Wait { until, open: Vec::new(), fetching });
        if resolves {
            // Worth more than to answer that it is worth waiting for.
            return wait(resolved);
        }
        self.note_due(held, &pod, &all);
        let request = &held.request;
        let stale = self.is_stale(&pod.namespace);
        let verdict = verdict(&all, request, &pod.containers_hash, stale);
        if verdict == Verdict::Hold {
            held.patience = None;
            if now >= deadline {
                return Err(self.unchanged(&pod, &all, request, PollResult::Unchanged));
            }
            // Another replica may know better than one whose watches are silent. Where none does, this is what it costs.
            if stale && now >= started + self.settings.stale {
                return Err(behind("this replica of the hub has heard nothing from the API server"));
            }
            let look = now + self.settings.stale;
            return wait(again.map_or(deadline, |again| again.min(deadline)).min(look));
        }
        // Something is to be answered, by a replica that may have missed what the agent was answered before it came.
        let keys = differing(&all, request).map(|view| ConfigKey::new(&*pod.namespace, view.name.clone()));
        let open: Vec<ConfigKey> = keys.filter(|key| !self.confirmations.holds(key, session.since)).collect();
        if verdict == Verdict::Behind || !open.is_empty() {
            let until = *held.patience.get_or_insert(now + self.settings.behind);
            if now >= until {
                return Err(behind(match verdict {
                    Verdict::Behind => "this replica of the hub knows less than the agent",
                    _ => "this replica of the hub can't confirm what it knows",
                }));
            }
            return Ok(Wait { open, ..wait(until)? });
        }
        held.patience = None;
        let print = fingerprint(&all, &pod.containers_hash);
        let spread = spread(&all, request, &pod.containers_hash);
        let later = talk.not_before(print).max(spread.map(|left| now + left));
        match later.filter(|time| *time > now) {
            Some(_) if now >= deadline => Err((Reply::nothing(), PollResult::Unchanged)),
            Some(time) => wait(time.min(deadline)),
            None => {
                if let Some(at) = held.woken {
                    self.metrics.answered_after(now.duration_since(at).as_secs_f64());
                }
                talk.sent(print);
                Err(self.deliver(session, &pod, &all, request))
            }
        }
    }

    /// What only a restart brings to the pod is no change for its agent, so no report follows; but its condition says it.
    fn note_due(&self, held: &mut Held<'_>, pod: &PodState, views: &[View]) {
        let due: Vec<VersionName> = views.iter().filter_map(|view| view.due.clone()).collect();
        if due != held.due {
            held.due = due;
            self.queue.add(Wish::new(pod, false), Duration::ZERO);
        }
    }

    /// The end of a poll before its time.
    fn end(&self, held: &Held<'_>, result: PollResult) -> (Reply, PollResult) {
        let pod = match self.pod_of(held.session) {
            Ok(entry) => entry.state,
            Err(refusal) => return refused(refusal),
        };
        let Views { all, .. } = views(&self.index, &self.contents, &pod, |name| polled(&held.request, name));
        match verdict(&all, &held.request, &pod.containers_hash, self.is_stale(&pod.namespace)) {
            Verdict::Hold => self.unchanged(&pod, &all, &held.request, result),
            // The next poll is answered with it.
            Verdict::Answer | Verdict::Behind => (Reply::nothing(), result),
        }
    }

    /// Nothing of the pod's own has changed. The agent learns of newer revisions all the same, so that no replica that knows less
    /// can take it back.
    fn unchanged(
        &self,
        pod: &PodState,
        views: &[View],
        request: &PollRequest,
        result: PollResult,
    ) -> (Reply, PollResult) {
        if !is_newer(views, request, &pod.containers_hash) {
            return (Reply::nothing(), result);
        }
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => (Reply::poll(composed.body), result),
            Err(error) => internal(&error),
        }
    }

    fn deliver(&self, session: &Session, pod: &PodState, views: &[View], request: &PollRequest) -> (Reply, PollResult) {
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => {
                for view in composed.blocks.iter().filter_map(|&index| views.get(index)) {
                    self.metrics.block_sent();
                    self.audit.delivered(session, view);
                }
                for view in views {
                    if let Some(problem) = view.content.as_ref().err()
                        && problem.reason == HubReason::NotAllowed
                    {
                        self.audit.withheld(session, view.name.as_str(), &problem.message);
                    }
                }
                (Reply::poll(composed.body), PollResult::Changed)
            }
            Err(error) => internal(&error),
        }
    }
}

/// Waits for the first of what is being read; for ever where nothing is.
async fn landed(mut fetching: Vec<watch::Receiver<()>>) {
    if fetching.is_empty() {
        return std::future::pending().await;
    }
    // One whose fetch was given up says so, too.
    drop(select_all(fetching.iter_mut().map(|landed| Box::pin(landed.changed()))).await);
}

fn behind(why: &'static str) -> (Reply, PollResult) {
    (Refusal::Unavailable(why).into(), PollResult::Behind)
}

fn internal(error: &serde_json::Error) -> (Reply, PollResult) {
    tracing::error!(%error, "reply not made, which is a bug");
    (Refusal::Internal.into(), PollResult::Refused)
}

/// Keeps of a request, which may be held for minutes, what is about the configs of the pod.
fn bound(request: &mut PollRequest, pod: &PodState) {
    request.agent = String::new();
    clip(&mut request.containers_hash);
    request.configs.retain(|held| pod.configs.contains(&held.name));
    request.configs.truncate(pod.configs.len());
    request.configs.shrink_to_fit();
    for held in &mut request.configs {
        clip(&mut held.uid);
        clip(&mut held.sha256);
    }
}

fn clip(text: &mut String) {
    *text = clipped(std::mem::take(text), MAX_TEXT_BYTES);
}

fn refused(refusal: Refusal) -> (Reply, PollResult) {
    let result = match refusal {
        Refusal::Unavailable(_) => PollResult::Unavailable,
        _ => PollResult::Refused,
    };
    (refusal.into(), result)
}

#[cfg(test)]
mod tests {
    use nudge_protocol::ConfigName;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_of_a_poll_is_about_the_pods_configs_and_bounded() {
        let held = |name: &str| json!({"name": name, "uid": "u".repeat(20_000), "sha256": "s".repeat(500)});
        let many: Vec<_> =
            (0..500).map(|number| held(&format!("other{number}"))).chain([held("shop"), held("shop")]).collect();
        let mut request: PollRequest = serde_json::from_value(
            json!({"agent": "a".repeat(9999), "configs": many, "containersHash": "h".repeat(9999)}),
        )
        .unwrap();
        bound(&mut request, &PodState { configs: vec![ConfigName::new("shop").unwrap()], ..PodState::default() });
        assert_eq!((request.configs.len(), request.configs[0].name.as_str()), (1, "shop"));
        assert!(serde_json::to_string(&request).unwrap().len() < 1024);
    }
}
