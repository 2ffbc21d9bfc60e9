//! Decides whether a container has taken a version, by what it shows before and after its notification. Does no I/O.

use nudge_protocol::Key;
use nudge_protocol::expectation::JsonPointer;
use nudge_protocol::status::Outcome;

use super::finding::Finding;
use super::metric_scan::MetricReading;
use super::new_workers::compare_workers;
use crate::proc::Process;

/// What a container shows at one time, or the reason why that is not known.
pub(super) type SignResult = Result<SignReading, String>;

/// What a container shows at one time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SignReading {
    /// The values of its metrics.
    Metrics(MetricReading),
    /// Whether the container's answer is the new value of the key.
    Answer { key: Key, is_value: bool },
    /// The children of its main process.
    Workers(Vec<Process>),
}

/// What it means if the answer already is the value of the key before the notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyAnswer {
    /// The version has another value than the one before, so the page does not show what the container has loaded.
    Fault,
    /// The version does not change the key.
    SameValue,
    /// The container may have read the version already.
    MayHaveVersion,
}

/// What a container shows until its notification.
#[derive(Clone, Debug)]
pub(super) struct Baseline {
    /// What it shows right before the notification.
    pub(super) reading: SignResult,
    /// What it means if that is the new value of a key.
    pub(super) early_answer: EarlyAnswer,
}

/// Compares what a container showed before its notification with what it shows after it. `last` is the reading before
/// `after`, if that was after the notification as well.
pub(super) fn compare(baseline: &Baseline, last: Option<&SignResult>, after: &SignResult) -> Finding {
    match (&baseline.reading, after) {
        (_, Err(cause)) => Finding::NotYet(cause.clone()),
        (Err(cause), Ok(_)) => {
            Finding::NotYet(format!("there is nothing to compare with, since before the notification {cause}"))
        }
        (Ok(SignReading::Metrics(before)), Ok(SignReading::Metrics(after))) => compare_metrics(before, after),
        (Ok(SignReading::Answer { is_value, .. }), Ok(SignReading::Answer { key, is_value: true })) => {
            if *is_value {
                judge_early_answer(baseline.early_answer, key)
            } else {
                Finding::Taken
            }
        }
        (_, Ok(SignReading::Answer { key, .. })) => {
            Finding::NotYet(format!("the answer is not the new value of key {key}"))
        }
        (Ok(SignReading::Workers(before)), Ok(SignReading::Workers(after))) => {
            let last = if let Some(Ok(SignReading::Workers(last))) = last { last.as_slice() } else { &[] };
            compare_workers(before, last, after)
        }
        // Both readings are of the same kind.
        _ => Finding::NotYet(String::new()),
    }
}

fn judge_early_answer(early_answer: EarlyAnswer, key: &Key) -> Finding {
    let cause = match early_answer {
        EarlyAnswer::Fault => {
            return Finding::NotYet(format!(
                "the answer already was the value of key {key} before the notification, so it shows nothing; name a \
                 page that changes with the notification"
            ));
        }
        EarlyAnswer::SameValue => format!("the version does not change key {key}"),
        EarlyAnswer::MayHaveVersion => {
            format!("the answer already was the value of key {key} when the agent began to read it")
        }
    };
    Finding::NothingToShow(format!(
        "it was notified, which alone counts for this version, since its page can't show more: {cause}"
    ))
}

/// A metric that says whether the container could take the version counts if it has changed, or belongs to the metric
/// that has grown: it may be 0 since an earlier failure.
fn compare_metrics(before: &MetricReading, after: &MetricReading) -> Finding {
    let metric = after.metric.name.as_str();
    let Some(value) = after.metric.value else {
        return Finding::NotYet(format!("the page has no metric {metric}"));
    };
    let has_grown = before.metric.value.is_none_or(|before| value > before);
    // A container that has restarted may show values from before it has read its configuration.
    let is_same = before.metric.value == Some(value);
    let was_ok = is_same && before.ok.as_ref().is_some_and(|ok| ok.value.is_some_and(|value| value != 0.0));
    if let Some(ok) = &after.ok {
        let name = ok.name.as_str();
        match ok.value {
            None => return Finding::NotYet(format!("the page has no metric {name}")),
            Some(0.0) if has_grown || was_ok => {
                return Finding::Refused(format!(
                    "it was notified, and could not take the version: its metric {name} is 0; see its log"
                ));
            }
            Some(0.0) => return Finding::NotYet(format!("metric {name} is 0, as before the notification")),
            Some(_) => {}
        }
    }
    if has_grown { Finding::Taken } else { Finding::NotYet(format!("metric {metric} is as before the notification")) }
}

/// Returns whether an answer is a key's value: the whole answer, or a text, number or truth value in its JSON. White
/// space around both does not count.
pub fn is_value(answer: &[u8], pointer: Option<&JsonPointer>, value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let Some(pointer) = pointer else { return answer.trim_ascii() == value };
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(answer) else { return false };
    match document.pointer(pointer.as_str()) {
        Some(serde_json::Value::String(text)) => text.trim().as_bytes() == value,
        Some(scalar @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => {
            scalar.to_string().as_bytes() == value
        }
        _ => false,
    }
}

/// The findings about one notification so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Whether the last finding was a refusal. One alone does not count: a page may be read between two changes of it.
    was_refused: bool,
    /// The outcome that was reported.
    reported: Option<Outcome>,
}

impl Findings {
    /// Adds a finding. Returns the outcome and its message, if they are new.
    pub(super) fn add(&mut self, finding: Finding, is_overdue: bool, seconds: u64) -> Option<(Outcome, String)> {
        let was_refused = std::mem::replace(&mut self.was_refused, matches!(finding, Finding::Refused(_)));
        let (outcome, message) = match finding {
            Finding::Taken => (Outcome::Delivered, String::new()),
            Finding::NothingToShow(message) => (Outcome::Delivered, message),
            Finding::Refused(message) if was_refused => (Outcome::Failed, message),
            Finding::NotYet(cause) if is_overdue && self.reported.is_none() => {
                let message =
                    format!("it was notified, and has not shown within {seconds} s that it took the version: {cause}");
                (Outcome::NotVerified, message)
            }
            Finding::Refused(_) | Finding::NotYet(_) => return None,
        };
        (self.reported.replace(outcome) != Some(outcome)).then_some((outcome, message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::notify::metric_scan::Sample;

    #[allow(clippy::option_option, reason = "a page may lack a metric that is requested")]
    #[allow(clippy::unnecessary_wraps, reason = "a reading may fail")]
    fn metrics(value: Option<f64>, ok: Option<Option<f64>>) -> SignResult {
        let sample = |name: &str, value| Sample { name: name.parse().unwrap(), value };
        let reading = MetricReading { metric: sample("time", value), ok: ok.map(|value| sample("ok", value)) };
        Ok(SignReading::Metrics(reading))
    }

    #[allow(clippy::unnecessary_wraps, reason = "a reading may fail")]
    fn answer(is_value: bool) -> SignResult {
        Ok(SignReading::Answer { key: Key::new("mark").unwrap(), is_value })
    }

    #[allow(clippy::unnecessary_wraps, reason = "a reading may fail")]
    fn workers(processes: &[(i32, u64)]) -> SignResult {
        Ok(SignReading::Workers(processes.iter().map(|&(pid, started)| Process { pid, started }).collect()))
    }

    /// The first letter of what is found, and its message. The reading after the notification is made twice.
    fn found(before: &SignResult, after: &SignResult) -> (char, String) {
        found_by(EarlyAnswer::Fault, before, after, after)
    }

    fn found_by(
        early_answer: EarlyAnswer,
        before: &SignResult,
        last: &SignResult,
        after: &SignResult,
    ) -> (char, String) {
        match compare(&Baseline { reading: before.clone(), early_answer }, Some(last), after) {
            Finding::Taken => ('t', String::new()),
            Finding::NothingToShow(message) => ('s', message),
            Finding::Refused(message) => ('r', message),
            Finding::NotYet(cause) => ('n', cause),
        }
    }

    #[test]
    fn a_metric_that_has_grown_shows_a_version_and_one_that_fell_to_0_a_failure() {
        let (ok, failed, lacking) = (Some(Some(1.0)), Some(Some(0.0)), Some(None));
        for (before, after, expected) in [
            (metrics(Some(1.0), None), metrics(Some(2.0), None), 't'),
            (metrics(None, None), metrics(Some(2.0), None), 't'),
            (metrics(Some(1.0), None), metrics(Some(1.0), None), 'n'),
            (metrics(Some(2.0), None), metrics(Some(1.0), None), 'n'),
            (metrics(Some(2.0), None), metrics(None, None), 'n'),
            (metrics(Some(1.0), ok), metrics(Some(2.0), ok), 't'),
            (metrics(Some(1.0), ok), metrics(Some(1.0), failed), 'r'),
            (metrics(Some(1.0), ok), metrics(Some(2.0), failed), 'r'),
            (metrics(Some(1.0), failed), metrics(Some(2.0), failed), 'r'),
            (metrics(Some(1.0), failed), metrics(Some(1.0), failed), 'n'),
            (metrics(Some(1.0), failed), metrics(Some(1.0), ok), 'n'),
            (metrics(Some(1.0), failed), metrics(Some(2.0), ok), 't'),
            (metrics(Some(1.0), lacking), metrics(Some(1.0), failed), 'n'),
            (metrics(Some(1.0), ok), metrics(Some(2.0), lacking), 'n'),
        ] {
            let (letter, message) = found(&before, &after);
            assert_eq!(letter, expected, "{before:?} {after:?}");
            assert_eq!(message.is_empty(), letter == 't', "{message}");
        }
        assert!(found(&metrics(Some(1.0), ok), &metrics(Some(1.0), failed)).1.contains("its metric ok is 0"));
        assert!(found(&metrics(Some(1.0), ok), &metrics(Some(2.0), lacking)).1.contains("no metric ok"));
    }

    #[test]
    fn an_answer_that_was_there_before_shows_nothing() {
        assert_eq!(found(&answer(false), &answer(true)).0, 't');
        assert_eq!(found(&answer(false), &answer(false)), ('n', "the answer is not the new value of key mark".into()));
        let (letter, message) = found(&answer(true), &answer(true));
        assert!(
            letter == 'n' && message.contains("already was the value of key mark before the notification"),
            "{message}"
        );
        assert_eq!(found(&answer(true), &answer(false)).0, 'n');
    }

    #[test]
    fn a_value_that_can_not_change_leaves_the_notification_alone_to_count() {
        for (early_answer, cause) in [
            (EarlyAnswer::SameValue, "the version does not change key mark"),
            (
                EarlyAnswer::MayHaveVersion,
                "the answer already was the value of key mark when the agent began to read it",
            ),
        ] {
            let found = |before, after| found_by(early_answer, &before, &after, &after);
            let (letter, message) = found(answer(true), answer(true));
            assert!(letter == 's' && message.ends_with(cause) && message.contains("which alone counts"), "{message}");
            assert_eq!(found(answer(true), answer(false)).0, 'n', "it has lost the value");
            assert_eq!(found(answer(true), Err("away".to_owned())).0, 'n');
            assert_eq!((found(answer(false), answer(true)).0, found(answer(false), answer(false)).0), ('t', 'n'));
        }
    }

    #[test]
    fn new_workers_have_come_and_the_old_ones_are_gone() {
        let before = workers(&[(7, 1), (8, 1)]);
        for (after, expected) in [
            (&[(9, 2), (10, 2)][..], 't'),
            // The number of a process is used again.
            (&[(7, 2)], 't'),
            (&[(7, 1), (8, 1)], 'n'),
            (&[(7, 1), (8, 1), (9, 2)], 'n'),
            (&[(8, 1), (9, 2)], 'n'),
            (&[], 'n'),
        ] {
            assert_eq!(found(&before, &workers(after)).0, expected, "{after:?}");
        }
        assert_eq!(found(&before, &workers(&[(8, 1), (9, 2)])).1, "a child of its main process from before still runs");
        assert_eq!(found(&workers(&[]), &workers(&[(7, 1)])).0, 't');
    }

    #[test]
    fn a_child_that_comes_and_goes_is_no_worker() {
        let (before, fault) = (workers(&[(7, 1)]), EarlyAnswer::Fault);
        let found = |last: &[_], after: &[_]| found_by(fault, &before, &workers(last), &workers(after));
        for (last, after) in [(&[(7, 1)][..], &[(9, 2)][..]), (&[(8, 2)], &[(9, 3)]), (&[], &[(9, 3)])] {
            let stays = "its main process has no new child that stays".to_owned();
            assert_eq!(found(last, after), ('n', stays), "{last:?} {after:?}");
        }
        assert_eq!(found(&[(9, 2), (8, 2)], &[(9, 2), (10, 3)]).0, 't', "another one may end");
        let baseline = Baseline { reading: before.clone(), early_answer: fault };
        assert!(matches!(compare(&baseline, None, &workers(&[(9, 2)])), Finding::NotYet(_)), "the first reading");
        let away = Err("it has no process".to_owned());
        assert!(matches!(compare(&baseline, Some(&away), &workers(&[(9, 2)])), Finding::NotYet(_)));
        assert_eq!(found_by(fault, &before, &away, &away), ('n', "it has no process".to_owned()), "the master died");
    }

    #[test]
    fn what_could_not_be_read_is_said() {
        let away = || Err("the target answered 404".to_owned());
        assert_eq!(found(&answer(false), &away()), ('n', "the target answered 404".to_owned()));
        assert!(found(&away(), &answer(true)).1.contains("since before the notification the target answered 404"));
    }

    #[test]
    fn a_value_is_the_answer_or_a_scalar_in_it() {
        let is = |answer: &str, pointer: Option<&str>, value: &str| {
            is_value(answer.as_bytes(), pointer.map(|text| text.parse().unwrap()).as_ref(), value.as_bytes())
        };
        assert!(is("1.0.1\n", None, "1.0.1") && is("1.0.1", None, " 1.0.1\n") && !is("1.0.10", None, "1.0.1"));
        let document = r#"{"data": {"mark": " new ", "a/b": [17, true, null, {}]}}"#;
        assert!(is(document, Some("/data/mark"), "new\n"));
        assert!(is(document, Some("/data/a~1b/0"), "17") && is(document, Some("/data/a~1b/1"), "true"));
        for (pointer, value) in
            [("/data/a~1b/2", "null"), ("/data/a~1b/3", "{}"), ("/data/other", ""), ("/data", "new"), ("/", "")]
        {
            assert!(!is(document, Some(pointer), value), "{pointer}");
        }
        assert!(!is("{", Some("/a"), "{"));
    }

    #[test]
    fn a_refusal_counts_when_it_stays_and_silence_when_the_time_is_over() {
        let refused = || Finding::Refused("no".to_owned());
        let not_yet = || Finding::NotYet("metric a is as before".to_owned());
        let mut findings = Findings::default();
        let mut add = |finding, is_overdue| findings.add(finding, is_overdue, 30).map(|(outcome, _)| outcome);
        assert_eq!((add(not_yet(), false), add(refused(), false), add(not_yet(), false)), (None, None, None));
        assert_eq!((add(refused(), false), add(refused(), false)), (None, Some(Outcome::Failed)));
        assert_eq!((add(refused(), true), add(not_yet(), true)), (None, None), "a refusal says more");
        assert_eq!(add(Finding::Taken, true), Some(Outcome::Delivered), "it may take it later");

        let mut findings = Findings::default();
        let (outcome, message) = findings.add(not_yet(), true, 30).unwrap();
        assert_eq!(outcome, Outcome::NotVerified);
        assert!(message.ends_with("has not shown within 30 s that it took the version: metric a is as before"));
        assert_eq!(findings.add(not_yet(), true, 30), None);
        assert_eq!(findings.add(refused(), true, 30), None);
        assert_eq!(findings.add(refused(), true, 30), Some((Outcome::Failed, "no".to_owned())));
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(answer in vec(any::<u8>(), 0..60), value in vec(any::<u8>(), 0..20), pointer in "/[a-z0-9/]{0,8}") {
            let pointer: JsonPointer = pointer.parse().unwrap();
            let _ = is_value(&answer, Some(&pointer), &value);
            prop_assert_eq!(is_value(&answer, None, &value), answer.trim_ascii() == value.trim_ascii());
        }

        #[test]
        fn a_text_at_its_place_is_found(name in "\\PC{1,8}", text in "\\PC{0,20}") {
            let answer = serde_json::json!({"a": [{ name.as_str(): text.as_str() }]}).to_string();
            let pointer = format!("/a/0/{}", name.replace('~', "~0").replace('/', "~1")).parse().unwrap();
            prop_assert!(is_value(answer.as_bytes(), Some(&pointer), text.as_bytes()) || text.trim() != text);
        }
    }
}
