//! The pace of texts: a text that changes again and again must not keep pods moving.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nudge_api::{
    Explanation, Reason, Release, ReleaseOutcome, ReleaseRequester, VersionedConfig, VersionedConfigStatus,
};

use crate::rollout::{ClosedGate, Now};

/// The minimum time between the beginnings of two moves to texts.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// The number of moves in a row that texts may end before the next text must stand.
const MAX_LEFT_MOVES: usize = 5;
/// How long a text must stay unchanged after this number of moves.
const STANDING_TIME: SignedDuration = SignedDuration::from_mins(5);

/// Returns why the move to the text may not begin yet. Neither a move to this text that is under way, nor a return, nor
/// the first version waits.
pub fn pace_gate(
    config: &VersionedConfig,
    status: &VersionedConfigStatus,
    retry_time: Option<&Time>,
    now: Now<'_>,
) -> Option<ClosedGate> {
    let text = status.internal.text.as_ref().filter(|_| config.spec.follows_text())?;
    // A target whose move is withheld is not under way.
    let under_way = status.target_version.as_ref().filter(|_| status.rollout.stage.is_some());
    let known = [under_way, status.current_version.as_ref(), status.previous_version.as_ref()];
    if known.into_iter().flatten().any(|version| *version == text.version) {
        return None;
    }
    // The first version has moved no pod.
    let is_move = |release: &&Release| release.from_version.is_some();
    let begin = status.releases.iter().rev().find(is_move)?.start_time.0;
    // The end of a move that is under way to another version is recorded only after this decision.
    let is_left = |release: &&Release| matches!(release.outcome, None | Some(ReleaseOutcome::Left));
    let left = status.releases.iter().rev().take_while(is_left).count();
    let settled = text.settle_time.0;
    let is_retried = retry_time.is_some_and(|retry| retry.0 >= settled);
    let interval_end = end(begin, MIN_INTERVAL);
    let standing_end = end(settled, STANDING_TIME);
    let (until, explanation) = if left >= MAX_LEFT_MOVES && !is_retried && now.until(standing_end).is_some() {
        (standing_end, unsettled(config, left, &text.managers))
    } else {
        let version = &text.version;
        let message = format!("version {version} begins a minute after the last move began");
        (interval_end, Reason::Unsettled.explained(message))
    };
    let wait = now.until(until)?;
    Some(ClosedGate {
        why: explanation,
        recheck_at: Some(now.steady + wait),
        ends_at: Some(until),
        keeps_message: false,
    })
}

fn unsettled(config: &VersionedConfig, left: usize, managers: &[String]) -> Explanation {
    let writers = ReleaseRequester::Managers(managers);
    let writers = if managers.is_empty() { String::new() } else { format!("; {writers} wrote it last") };
    let look = "see who writes it (kubectl get --show-managed-fields), ";
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Reason::Unsettled.explained(format!(
        "the text of config {name} has ended {left} moves in a row, so it must stay unchanged for 5 minutes{writers}; {look}or begin now with \
         kubectl nudge retry {name}"
    ))
}

/// Returns the time that is this long after another, in whole seconds.
fn end(time: Timestamp, wait: SignedDuration) -> Timestamp {
    let end = time.checked_add(wait).unwrap_or(Timestamp::MAX);
    Timestamp::from_second(end.as_second()).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::SteadyTime;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The current version is 1, the text is version 9 since second 1000, and moves began at these seconds.
    fn config(left: &[i64], outcome: &str) -> VersionedConfig {
        let releases: Vec<_> = left
            .iter()
            .map(|begin| json!({"version": "8", "fromVersion": "1", "startTime": at(*begin).to_string(), "outcome": outcome}))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": {"objects": ["ConfigMap"]},
            "status": {"currentVersion": "1", "releases": releases,
                "internal": {"text": {"version": "9", "settleTime": at(1000).to_string()}}},
        }))
        .unwrap()
    }

    fn wait(config: &VersionedConfig, second: i64) -> Option<i64> {
        wait_after_retry(config, None, second)
    }

    fn wait_after_retry(config: &VersionedConfig, retry: Option<i64>, second: i64) -> Option<i64> {
        let now = Now { time: &Time(at(second)), steady: SteadyTime(5_000) };
        let retry_time = retry.map(|second| Time(at(second)));
        let gate = pace_gate(config, config.status.as_ref().unwrap(), retry_time.as_ref(), now)?;
        assert_eq!(gate.why.reason, Reason::Unsettled);
        Some((gate.recheck_at.unwrap() - now.steady) / 1000)
    }

    #[test]
    fn moves_begin_a_minute_apart() {
        assert_eq!(wait(&config(&[], "Left"), 1000), None);
        let one = config(&[980], "Left");
        assert_eq!((wait(&one, 1000), wait(&one, 1039), wait(&one, 1040)), (Some(40), Some(1), None));
        assert_eq!(wait(&config(&[980], "RolledBack"), 1000), Some(40), "a correction waits, too");
        let mut first = config(&[980], "Current");
        first.status.as_mut().unwrap().releases[0].from_version = None;
        assert_eq!(wait(&first, 1000), None, "the first version was no move");
    }

    #[test]
    fn after_five_moves_that_texts_ended_the_text_must_stand() {
        let five = config(&[100, 200, 300, 400, 500], "Left");
        let mut open = five.clone();
        open.status.as_mut().unwrap().releases[4].outcome = None;
        assert_eq!(wait(&open, 1000), Some(300), "the fifth move ends in this decision");
        assert_eq!((wait(&five, 1000), wait(&five, 1299), wait(&five, 1300)), (Some(300), Some(1), None));
        assert_eq!(wait(&config(&[100, 200, 300, 400], "Left"), 1000), None);
        let mut ended = five.clone();
        ended.status.as_mut().unwrap().releases[4].outcome = Some(ReleaseOutcome::Current);
        assert_eq!(wait(&ended, 1000), None, "a move that ended well begins the count again");
        assert_eq!(wait_after_retry(&five, Some(1100), 1101), None);
        assert_eq!(wait_after_retry(&five, Some(999), 1101), Some(199), "that was about another text");
    }

    #[test]
    fn neither_a_return_nor_a_version_that_is_named_waits() {
        let five = config(&[100, 200, 300, 400, 980], "Left");
        for change in [
            |config: &mut VersionedConfig| config.spec.version = Some("9".to_owned()),
            |config: &mut VersionedConfig| config.status.as_mut().unwrap().current_version = Some("9".to_owned()),
            |config: &mut VersionedConfig| config.status.as_mut().unwrap().previous_version = Some("9".to_owned()),
        ] {
            let mut changed = five.clone();
            change(&mut changed);
            assert_eq!(wait(&changed, 1000), None);
        }
    }
}
