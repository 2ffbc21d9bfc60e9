//! A poll: held until something of the pod's own differs from what the agent has, the agent or this replica ends it, or its time is over.

use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use nudge_cluster::index::Index;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_protocol::VersionName;
use nudge_protocol::bounded_text;
use nudge_protocol::hub::{HubReason, MAX_WAIT_SECONDS, PollRequest};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::answer::{PollDecision, compose, differing, fingerprint, is_newer, spread, verdict};
use super::confirmations::Confirmations;
use super::connection_polls::ConnectionPolls;
use crate::callers::{Authentication, PollSlots, Session};
use crate::contents::{AgentCopy, ConfigView, ConfigViews, ContentStore, config_views};
use crate::drain::Drain;
use crate::metrics::{Metrics, PollResult};
use crate::reply::{Refusal, Reply};
use crate::reporting::PodConditions;
use crate::settings::Settings;

/// The longest uid or hash in a poll, in bytes.
const MAX_TEXT_BYTES: usize = 128;

/// How a poll ends.
type PollEnd = (Reply, PollResult);

/// What a poll waits for before it looks again.
struct Wait {
    until: Instant,
    /// The configs that are to be confirmed.
    unconfirmed: Vec<ConfigKey>,
    /// Contents that are being read.
    fetching: Vec<watch::Receiver<()>>,
}

/// A poll that is held.
struct HeldPoll<'a> {
    session: &'a Session,
    request: PollRequest,
    started: Instant,
    /// When the agent is answered that nothing has changed.
    deadline: Instant,
    /// Until when an answer waits to be confirmed, since there is one.
    patience: Option<Instant>,
    /// When the change came that is to be answered.
    changed: Option<Instant>,
    /// The versions that only a restart brings to the pod, when it was last looked at.
    restarts: Vec<VersionName>,
}

/// Answers polls.
pub(crate) struct Polling {
    pub(crate) index: Arc<Index>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Metrics,
    pub(crate) authentication: Arc<Authentication>,
    pub(crate) contents: Arc<ContentStore>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) poll_slots: Arc<PollSlots>,
    pub(crate) conditions: Arc<PodConditions>,
    pub(crate) drain: Arc<Drain>,
}

impl Polling {
    /// Holds a poll until its end.
    pub(crate) async fn poll(
        &self,
        session: &Session,
        mut request: PollRequest,
        polls: &mut ConnectionPolls,
    ) -> PollEnd {
        let started = Instant::now();
        let wait = Duration::from_secs(request.wait_seconds.min(MAX_WAIT_SECONDS).into());
        // The next poll has the token reviewed again.
        let deadline = (started + wait).min(session.until.max(started));
        let entry = match self.authentication.pod(&session.caller) {
            Ok(entry) => entry,
            Err(refusal) => return refused(refusal),
        };
        bound(&mut request, &entry.state);
        let mut changes = entry.subscribe();
        drop(entry);
        let poll_slot = self.poll_slots.take(session.caller.uid.as_str());
        let _held = self.metrics.held_poll();
        let mut poll =
            HeldPoll { session, request, started, deadline, patience: None, changed: None, restarts: vec![] };
        let interrupted = Arc::clone(&polls.interrupted);
        loop {
            changes.borrow_and_update();
            let Wait { until, unconfirmed, fetching } = match self.look(&mut poll, polls) {
                Ok(wait) => wait,
                Err(end) => return end,
            };
            tokio::select! {
                // It fails when the pod is gone, which is seen above.
                _ = changes.changed() => poll.changed = Some(Instant::now()),
                () = self.confirmations.confirmed(&unconfirmed, session.from.since), if !unconfirmed.is_empty() => {}
                () = fetch_ended(fetching), if !fetching.is_empty() => {}
                () = sleep_until(until) => poll.changed = None,
                () = poll_slot.lost() => return self.end(&poll, PollResult::Superseded),
                () = interrupted.notified() => return self.end(&poll, PollResult::Interrupted),
                () = self.drain.sent_away() => return (Reply::draining(), PollResult::Draining),
            }
        }
    }

    /// Decides whether the poll ends now: returns what it waits for, or its end.
    fn look(&self, poll: &mut HeldPoll<'_>, polls: &mut ConnectionPolls) -> Result<Wait, PollEnd> {
        let HeldPoll { session, started, deadline, .. } = *poll;
        let pod = self.authentication.pod(&session.caller).map_err(refused)?.state;
        let ConfigViews { views, fetching, again } = self.views(&pod, &poll.request);
        let (now, resolved) = (Instant::now(), started + self.settings.resolve);
        let resolves = !fetching.is_empty() && now < resolved;
        let wait = |until| Ok(Wait { until, unconfirmed: Vec::new(), fetching });
        if resolves {
            // Worth more than to answer that it is worth waiting for.
            return wait(resolved);
        }
        self.note_restarts(poll, &pod, &views);
        let request = &poll.request;
        let stale = self.is_stale(&pod);
        let verdict = verdict(&views, request, &pod.containers_hash, stale);
        if verdict == PollDecision::Hold {
            poll.patience = None;
            if now >= deadline {
                return Err(self.unchanged(&pod, &views, request, PollResult::Unchanged));
            }
            // Another replica may know better than one whose watches are silent. Where none does, this is what it costs.
            if stale && now >= started + self.settings.stale {
                return Err(behind("this replica of the hub has heard nothing from the API server"));
            }
            let look = now + self.settings.stale;
            return wait(again.map_or(deadline, |again| again.min(deadline)).min(look));
        }
        // Something is to be answered, by a replica that may have missed what the agent was answered before it came.
        let keys = differing(&views, request).map(|view| ConfigKey::new(&*pod.namespace, view.name.clone()));
        let unconfirmed: Vec<ConfigKey> =
            keys.filter(|key| !self.confirmations.holds(key, session.from.since)).collect();
        if verdict == PollDecision::Behind || !unconfirmed.is_empty() {
            let until = *poll.patience.get_or_insert(now + self.settings.behind);
            if now >= until {
                return Err(behind(match verdict {
                    PollDecision::Behind => "this replica of the hub knows less than the agent",
                    _ => "this replica of the hub can't confirm what it knows",
                }));
            }
            return Ok(Wait { unconfirmed, ..wait(until)? });
        }
        poll.patience = None;
        let print = fingerprint(&views, &pod.containers_hash);
        let spread = spread(&views, request, &pod.containers_hash);
        let send_time = polls.not_before(print).max(spread.map(|left| now + left));
        match send_time.filter(|time| *time > now) {
            Some(_) if now >= deadline => Err((Reply::nothing(), PollResult::Unchanged)),
            Some(time) => wait(time.min(deadline)),
            None => {
                if let Some(at) = poll.changed {
                    self.metrics.answered_after(now.duration_since(at).as_secs_f64());
                }
                polls.sent(print);
                Err(self.deliver(session, &pod, &views, request))
            }
        }
    }

    fn views(&self, pod: &PodState, request: &PollRequest) -> ConfigViews {
        config_views(&self.index, &self.contents, pod, |name| AgentCopy::polled(request, name))
    }

    /// Returns whether this replica may not know the newest of the pod's namespace, because a watch is silent.
    fn is_stale(&self, pod: &PodState) -> bool {
        self.index.silent_watch_in(&pod.namespace, self.settings.stale).is_some()
    }

    /// Has the condition say what only a restart brings to the pod: it is no change for the agent, so no report follows.
    fn note_restarts(&self, poll: &mut HeldPoll<'_>, pod: &PodState, views: &[ConfigView]) {
        let restarts: Vec<VersionName> = views.iter().filter_map(|view| view.restart_version.clone()).collect();
        if restarts != poll.restarts {
            poll.restarts = restarts;
            self.conditions.look_at(pod);
        }
    }

    /// Ends a poll before its time.
    fn end(&self, poll: &HeldPoll<'_>, result: PollResult) -> PollEnd {
        let pod = match self.authentication.pod(&poll.session.caller) {
            Ok(entry) => entry.state,
            Err(refusal) => return refused(refusal),
        };
        let ConfigViews { views, .. } = self.views(&pod, &poll.request);
        match verdict(&views, &poll.request, &pod.containers_hash, self.is_stale(&pod)) {
            PollDecision::Hold => self.unchanged(&pod, &views, &poll.request, result),
            // The next poll is answered with it.
            PollDecision::Answer | PollDecision::Behind => (Reply::nothing(), result),
        }
    }

    /// Answers that nothing of the pod's own has changed. The agent learns of newer revisions all the same, so that no replica that knows less
    /// can take it back.
    fn unchanged(&self, pod: &PodState, views: &[ConfigView], request: &PollRequest, result: PollResult) -> PollEnd {
        if !is_newer(views, request, &pod.containers_hash) {
            return (Reply::nothing(), result);
        }
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => (Reply::poll(composed.body), result),
            Err(error) => internal(&error),
        }
    }

    fn deliver(&self, session: &Session, pod: &PodState, views: &[ConfigView], request: &PollRequest) -> PollEnd {
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => {
                for view in composed.blocks.iter().filter_map(|&index| views.get(index)) {
                    self.metrics.block_sent();
                    self.authentication.audit.delivered(session, view);
                }
                for view in views {
                    if let Err(problem) = &view.content
                        && problem.reason == HubReason::NotAllowed
                    {
                        self.authentication.audit.withheld(session, view, &problem.message);
                    }
                }
                (Reply::poll(composed.body), PollResult::Changed)
            }
            Err(error) => internal(&error),
        }
    }
}

/// Waits for the first of what is being read, which must not be nothing.
async fn fetch_ended(mut fetching: Vec<watch::Receiver<()>>) {
    // One whose fetch was given up says so, too.
    drop(select_all(fetching.iter_mut().map(|end| Box::pin(end.changed()))).await);
}

fn behind(why: &'static str) -> PollEnd {
    (Refusal::Unavailable(why).into(), PollResult::Behind)
}

fn internal(error: &serde_json::Error) -> PollEnd {
    tracing::error!(%error, "reply not made, which is a bug");
    (Refusal::Internal.into(), PollResult::Refused)
}

/// Keeps of a request, which may be held for minutes, what is about the configs of the pod.
fn bound(request: &mut PollRequest, pod: &PodState) {
    request.agent = String::new();
    clip(&mut request.containers_hash);
    request.configs.retain(|config| pod.configs.contains(&config.name));
    request.configs.truncate(pod.configs.len());
    request.configs.shrink_to_fit();
    for config in &mut request.configs {
        clip(&mut config.uid);
        clip(&mut config.sha256);
    }
}

fn clip(text: &mut String) {
    *text = bounded_text::clip(std::mem::take(text), MAX_TEXT_BYTES);
}

fn refused(refusal: Refusal) -> PollEnd {
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
