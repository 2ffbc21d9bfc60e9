//! A poll: held until something differs from what the agent has, this replica ends, or the time is over.

use std::time::Duration;

use nudge_core::pods::PodState;
use nudge_protocol::bounded_text::clipped;
use nudge_protocol::hub::{HubReason, MAX_WAIT_SECONDS, PollRequest};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Hub;
use super::compose::{Verdict, compose, fingerprint, spread, verdict};
use super::metrics::PollResult;
use super::reply::{Refusal, Reply};
use super::session::Session;
use super::view::{View, Views, polled, views};

/// Longest uid or hash in a poll, in bytes.
const MAX_TEXT_BYTES: usize = 128;
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
    pub(super) async fn poll(&self, session: &Session, request: PollRequest, repeats: &mut Repeats) -> Reply {
        let (reply, result) = self.poll_result(session, request, repeats).await;
        self.metrics.polled(result);
        reply
    }

    pub(super) async fn poll_result(
        &self,
        session: &Session,
        mut request: PollRequest,
        repeats: &mut Repeats,
    ) -> (Reply, PollResult) {
        let started = Instant::now();
        let wait = Duration::from_secs(request.wait_seconds.min(MAX_WAIT_SECONDS).into());
        // The next poll has the token reviewed again.
        let deadline = (started + wait).min(session.until.max(started));
        let behind = started + self.settings.behind;
        let entry = match self.pod_of(session) {
            Ok(entry) => entry,
            Err(refusal) => return refused(refusal),
        };
        bound(&mut request, &entry.state);
        let mut woken = entry.woken();
        drop(entry);
        let poll_slot = self.poll_slots.take(session.caller.uid.as_str());
        let _held = self.metrics.held();
        let mut woken_at = None;
        loop {
            woken.borrow_and_update();
            let pod = match self.pod_of(session) {
                Ok(entry) => entry.state,
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
                let stale = self.is_stale(&pod.namespace);
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
                        let spread = spread(&all, &request, &pod.containers_hash);
                        let later = repeats.not_before(print).max(spread.map(|left| now + left));
                        match later.filter(|time| *time > now) {
                            Some(_) if now >= deadline => return (Reply::nothing(), PollResult::Unchanged),
                            Some(time) => time.min(deadline),
                            None => {
                                if let Some(at) = woken_at {
                                    self.metrics.answered_after(now.duration_since(at).as_secs_f64());
                                }
                                repeats.sent(print);
                                return self.deliver(session, &pod, &all, &request);
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
            Err(error) => {
                tracing::error!(%error, "reply not made, which is a bug");
                (Refusal::Internal.into(), PollResult::Refused)
            }
        }
    }
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
