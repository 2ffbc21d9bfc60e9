//! Holds a poll until the pod's own state differs from the agent's, the agent or this replica ends it, or its time is
//! over.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use nudge_cluster::index::Index;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::PodState;
use nudge_core::versions::MAX_PARTS;
use nudge_protocol::VersionName;
use nudge_protocol::bounded_text;
use nudge_protocol::hub::{HubReason, MAX_WAIT_SECONDS, MountedSecrets, PollRequest};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::answer::{
    Freshness, PollDecision, compose, decide, differing_views, fingerprint, has_newer_revision, spread_delay,
};
use super::confirmations::Confirmations;
use super::connection_polls::ConnectionPolls;
use crate::callers::{Authentication, PollSlots, Session};
use crate::contents::{AgentCopy, ConfigView, ConfigViews, ContentStore, config_views};
use crate::drain::Drain;
use crate::metrics::{Metrics, PollResult};
use crate::reply::{HubReply, PollRefusal};
use crate::reporting::PodConditions;
use crate::settings::Settings;

/// The maximum bytes of a uid or hash in a poll.
const MAX_TEXT_BYTES: usize = 128;

type PollEnd = (HubReply, PollResult);

/// The events that a poll waits for before it is evaluated again.
struct Wait {
    until: Instant,
    /// The configs that are to be confirmed.
    unconfirmed: Vec<ConfigKey>,
    /// The contents that are being fetched.
    fetching: Vec<watch::Receiver<()>>,
}

struct LongPoll<'a> {
    session: &'a Session,
    request: PollRequest,
    started: Instant,
    /// The time when the agent gets the answer that nothing has changed.
    deadline: Instant,
    /// The deadline of the answer's confirmation, while an answer waits.
    confirm_deadline: Option<Instant>,
    /// The time of the change that is to be answered.
    changed_at: Option<Instant>,
    /// The versions that only a restart brings to the pod, as of the last evaluation.
    restart_versions: Vec<VersionName>,
}

/// The parts of the hub that answer polls.
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
        let max_wait = Duration::from_secs(request.wait_seconds.min(MAX_WAIT_SECONDS).into());
        // The poll ends with the session, so that the next one has the token reviewed again.
        let deadline = (started + max_wait).min(session.until.max(started));
        let entry = match self.authentication.pod(&session.caller) {
            Ok(entry) => entry,
            Err(absence) => return refusal_end(absence.into()),
        };
        bound_request(&mut request, &entry.state);
        let mut changes = entry.subscribe();
        drop(entry);
        let poll_slot = self.poll_slots.take(session.caller.uid.as_str());
        let _count = self.metrics.count_open_poll();
        let mut poll = LongPoll {
            session,
            request,
            started,
            deadline,
            confirm_deadline: None,
            changed_at: None,
            restart_versions: Vec::new(),
        };
        let interrupt = Arc::clone(&polls.interrupt);
        loop {
            changes.borrow_and_update();
            let Wait { until, unconfirmed, fetching } = match self.evaluate(&mut poll, polls) {
                ControlFlow::Continue(wait) => wait,
                ControlFlow::Break(poll_end) => return poll_end,
            };
            tokio::select! {
                // The wait fails when the pod is gone. The next evaluation finds that out.
                _ = changes.changed() => poll.changed_at = Some(Instant::now()),
                () = self.confirmations.wait_until_confirmed(&unconfirmed, session.from.since), if !unconfirmed.is_empty() => {}
                () = wait_for_fetch(fetching), if !fetching.is_empty() => {}
                () = sleep_until(until) => poll.changed_at = None,
                () = poll_slot.lost.notified() => return self.end_early(&poll, PollResult::Superseded),
                () = interrupt.notified() => return self.end_early(&poll, PollResult::Interrupted),
                () = self.drain.wait_for_turn() => return (HubReply::draining(), PollResult::Draining),
            }
        }
    }

    /// Decides whether the poll ends now, and how, or what it waits for.
    fn evaluate(&self, poll: &mut LongPoll<'_>, polls: &mut ConnectionPolls) -> ControlFlow<PollEnd, Wait> {
        let LongPoll { session, started, deadline, .. } = *poll;
        let pod = match self.authentication.pod(&session.caller) {
            Ok(entry) => entry.state,
            Err(absence) => return ControlFlow::Break(refusal_end(absence.into())),
        };
        let ConfigViews { views, fetching, next_check } = self.views(&pod, &poll.request);
        let (now, resolve_deadline) = (Instant::now(), started + self.settings.resolve_timeout);
        let is_resolving = !fetching.is_empty() && now < resolve_deadline;
        let wait = |until| Wait { until, unconfirmed: Vec::new(), fetching };
        if is_resolving {
            // The content is worth more to the agent than the answer that it is being fetched.
            return ControlFlow::Continue(wait(resolve_deadline));
        }
        self.note_restarts(poll, &pod, &views);
        let request = &poll.request;
        let freshness = self.freshness(&pod);
        let decision = decide(&views, request, &pod.containers_hash, freshness);
        if decision == PollDecision::KeepOpen {
            poll.confirm_deadline = None;
            if now >= deadline {
                return ControlFlow::Break(self.end_unchanged(&pod, &views, request, PollResult::Unchanged));
            }
            // Another replica may be more current than a stale replica. If none is, the agent has polled once in vain.
            if freshness == Freshness::Stale && now >= started + self.settings.max_watch_silence {
                return ControlFlow::Break(behind_end("this replica of the hub has heard nothing from the API server"));
            }
            let stale_check = now + self.settings.max_watch_silence;
            return ControlFlow::Continue(wait(next_check.unwrap_or(deadline).min(deadline).min(stale_check)));
        }
        // This replica may have missed a change that another replica has already sent to the agent.
        let keys = differing_views(&views, request).map(|view| ConfigKey::new(&*pod.namespace, view.name.clone()));
        let unconfirmed: Vec<ConfigKey> =
            keys.filter(|key| !self.confirmations.is_confirmed(key, session.from.since)).collect();
        if decision == PollDecision::Behind || !unconfirmed.is_empty() {
            let until = *poll.confirm_deadline.get_or_insert(now + self.settings.behind_timeout);
            if now >= until {
                return ControlFlow::Break(behind_end(match decision {
                    PollDecision::Behind => "this replica of the hub knows less than the agent",
                    _ => "this replica of the hub can't confirm what it knows",
                }));
            }
            return ControlFlow::Continue(Wait { unconfirmed, ..wait(until) });
        }
        poll.confirm_deadline = None;
        let reply_fingerprint = fingerprint(&views, &pod.containers_hash);
        let delay = spread_delay(&views, request, &pod.containers_hash);
        let send_time = polls.not_before(reply_fingerprint).max(delay.map(|delay| now + delay));
        match send_time.filter(|time| *time > now) {
            Some(_) if now >= deadline => ControlFlow::Break((HubReply::empty(), PollResult::Unchanged)),
            Some(time) => ControlFlow::Continue(wait(time.min(deadline))),
            None => {
                if let Some(changed_at) = poll.changed_at {
                    self.metrics.observe_answer_time(now.duration_since(changed_at));
                }
                polls.record_reply(reply_fingerprint);
                ControlFlow::Break(self.deliver(session, &pod, &views, request))
            }
        }
    }

    fn views(&self, pod: &PodState, request: &PollRequest) -> ConfigViews {
        config_views(&self.index, &self.contents, pod, |name| AgentCopy::polled(request, name))
    }

    /// Returns whether this replica knows the newest state of the pod's namespace.
    fn freshness(&self, pod: &PodState) -> Freshness {
        match self.index.silent_watch_in(&pod.namespace, self.settings.max_watch_silence) {
            Some(_) => Freshness::Stale,
            None => Freshness::Fresh,
        }
    }

    /// Has the condition updated when other versions need a restart of the pod. Nothing changes for the agent, so no
    /// report follows.
    fn note_restarts(&self, poll: &mut LongPoll<'_>, pod: &PodState, views: &[ConfigView]) {
        let versions: Vec<VersionName> = views.iter().filter_map(|view| view.restart_version.clone()).collect();
        if versions != poll.restart_versions {
            poll.restart_versions = versions;
            self.conditions.enqueue(pod);
        }
    }

    /// Ends a poll before its time.
    fn end_early(&self, poll: &LongPoll<'_>, result: PollResult) -> PollEnd {
        let pod = match self.authentication.pod(&poll.session.caller) {
            Ok(entry) => entry.state,
            Err(absence) => return refusal_end(absence.into()),
        };
        let ConfigViews { views, .. } = self.views(&pod, &poll.request);
        match decide(&views, &poll.request, &pod.containers_hash, self.freshness(&pod)) {
            PollDecision::KeepOpen => self.end_unchanged(&pod, &views, &poll.request, result),
            // The next poll is answered with the difference.
            PollDecision::Answer | PollDecision::Behind => (HubReply::empty(), result),
        }
    }

    /// Answers that nothing of the pod's own has changed. The agent learns of newer revisions nevertheless, so that a
    /// replica that knows less can't take the agent back.
    fn end_unchanged(
        &self,
        pod: &PodState,
        views: &[ConfigView],
        request: &PollRequest,
        result: PollResult,
    ) -> PollEnd {
        if !has_newer_revision(views, request, &pod.containers_hash) {
            return (HubReply::empty(), result);
        }
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => (HubReply::poll(composed.body), result),
            Err(error) => internal_error(&error),
        }
    }

    fn deliver(&self, session: &Session, pod: &PodState, views: &[ConfigView], request: &PollRequest) -> PollEnd {
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => {
                for view in composed.blocks.iter().filter_map(|&index| views.get(index)) {
                    self.metrics.count_block();
                    self.authentication.audit.log_delivery(session, view);
                }
                for view in views {
                    if let Some(MountedSecrets::Changed { part }) = view.mounted_secrets {
                        self.authentication.audit.log_changed_mount(session, view, part);
                    }
                    if let Err(problem) = &view.content
                        && problem.reason == HubReason::NotAllowed
                    {
                        self.authentication.audit.log_withheld(session, view, &problem.message);
                    }
                }
                (HubReply::poll(composed.body), PollResult::Changed)
            }
            Err(error) => internal_error(&error),
        }
    }
}

/// Waits until a fetch ends or is given up. There must be at least one fetch.
async fn wait_for_fetch(mut fetching: Vec<watch::Receiver<()>>) {
    drop(select_all(fetching.iter_mut().map(|fetch_end| Box::pin(fetch_end.changed()))).await);
}

fn behind_end(cause: &'static str) -> PollEnd {
    (PollRefusal::Unavailable(cause).into(), PollResult::Behind)
}

fn internal_error(error: &serde_json::Error) -> PollEnd {
    tracing::error!(%error, "reply not made, which is a bug");
    (PollRefusal::Internal.into(), PollResult::Refused)
}

/// Reduces a request, which may be held for minutes, to the configs of the pod.
fn bound_request(request: &mut PollRequest, pod: &PodState) {
    request.agent = String::new();
    clip(&mut request.containers_hash);
    request.configs.retain(|config| pod.configs.contains(&config.name));
    request.configs.truncate(pod.configs.len());
    request.configs.shrink_to_fit();
    for config in &mut request.configs {
        config.uid = config.uid.take().map(|uid| uid.clipped(MAX_TEXT_BYTES));
        config.sha256 = config.sha256.take().map(|digest| digest.clipped(MAX_TEXT_BYTES));
        config.mounted_secrets.retain(|digest| digest.as_str().len() <= MAX_TEXT_BYTES);
        config.mounted_secrets.truncate(MAX_PARTS);
        config.mounted_secrets.shrink_to_fit();
    }
}

fn clip(text: &mut String) {
    *text = bounded_text::clip(std::mem::take(text), MAX_TEXT_BYTES);
}

fn refusal_end(refusal: PollRefusal) -> PollEnd {
    let result = match refusal {
        PollRefusal::Unavailable(_) => PollResult::Unavailable,
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
        let digests = vec!["s".repeat(71); 100];
        let claim = |name: &str| json!({"name": name, "uid": "u".repeat(20_000), "sha256": "s".repeat(500), "mountedSecrets": digests});
        let many: Vec<_> =
            (0..500).map(|number| claim(&format!("other{number}"))).chain([claim("shop"), claim("shop")]).collect();
        let mut request: PollRequest = serde_json::from_value(
            json!({"agent": "a".repeat(9999), "configs": many, "containersHash": "h".repeat(9999)}),
        )
        .unwrap();
        bound_request(
            &mut request,
            &PodState { configs: vec![ConfigName::new("shop").unwrap()], ..PodState::default() },
        );
        assert_eq!((request.configs.len(), request.configs[0].name.as_str()), (1, "shop"));
        assert!(serde_json::to_string(&request).unwrap().len() < 2048);
    }
}
