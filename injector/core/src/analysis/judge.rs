//! The verdict of all answers of a round about the version.
//!
//! An answer that is too high counts against the version if the pods without the version have a good answer at the same
//! time. Without such pods it counts half. A good answer, or an answer that is too high for all pods, ends the series.
//! A failed measurement holds the version, and blames nobody.

use std::collections::HashMap;

use nudge_api::{Analysis, AnalysisStatus, AnalysisVerdict, Answer, RolloutAnalysisStatus};

use super::outcome::{MeasuredOutcome, outcome};
use super::period::answer_period;

/// The maximum delay of an answer after it is due, in milliseconds: a query may take 10 s, and objects are read every
/// few seconds.
const MAX_ANSWER_DELAY_MILLIS: i64 = 30_000;
/// The number of periods until the next answer is overdue.
const OVERDUE_PERIODS: i64 = 3;
/// The minimum time between two checks for answers, in milliseconds.
const MIN_RECHECK_MILLIS: i64 = 1000;
/// The maximum time between two checks for answers, in milliseconds.
const MAX_RECHECK_MILLIS: i64 = 5000;
/// The remedy if answers are missing.
const NO_ANSWER_HINT: &str =
    "check that Deployment nudge-analysis runs and may ask the server (deploy/TROUBLESHOOTING.md)";

/// The verdict of all answers about the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundVerdict {
    /// The results are no evidence against the version.
    Clear,
    /// More answers are needed, as the message says.
    Pending(String),
    /// The results are inconclusive, as the message says.
    Inconclusive(String),
    /// The version is bad, as the message says.
    Bad(String),
}

/// The verdict, with the numbers behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundJudgement {
    /// The verdict of the heaviest analysis.
    pub verdict: RoundVerdict,
    /// The last numbers of each analysis.
    pub numbers: Vec<AnalysisStatus>,
    /// The wait until there may be more answers, in milliseconds.
    pub recheck_after: i64,
}

/// The names of the versions that an analysis compares.
#[derive(Clone, Copy, Debug)]
pub struct VersionNames<'a> {
    /// The version that is judged.
    pub target: &'a str,
    /// The current version, whose pods are the control.
    pub current: &'a str,
}

/// The leader's memory of the times when it first saw the answers of a round, by its own clock: another machine's clock
/// may be wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundMemory {
    start: RoundStart,
    round: String,
    last_answers: HashMap<String, SeenAnswer>,
}

/// When a round began, and for which spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundStart {
    /// The time, in milliseconds of the steady clock.
    pub at: i64,
    /// The generation of the spec.
    pub generation: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenAnswer {
    number: u64,
    first_seen: i64,
}

impl RoundMemory {
    /// Returns the name of the round with this start. Another start begins another round, whose name is `name`.
    pub fn round(&mut self, start: RoundStart, name: impl FnOnce() -> String) -> &str {
        if self.round.is_empty() || self.start != start {
            *self = Self { start, round: name(), last_answers: HashMap::new() };
        }
        &self.round
    }

    /// Notes the last answer to a query, and returns when it was first seen. Without an answer that is the start of the
    /// round.
    fn note_last(&mut self, name: &str, answers: &[Answer], now: i64) -> i64 {
        let Some(Answer { number, .. }) = answers.last() else { return self.start.at };
        let last = SeenAnswer { number: *number, first_seen: now };
        let seen = self.last_answers.entry(name.to_owned()).or_insert(last);
        if seen.number != last.number {
            *seen = last;
        }
        seen.first_seen
    }
}

/// Judges the version by the answers of the round in `memory`. `is_first_step` is set for the first of all steps.
pub fn judge_round(
    analyses: &[Analysis],
    status: Option<&RolloutAnalysisStatus>,
    memory: &mut RoundMemory,
    names: VersionNames<'_>,
    is_first_step: bool,
    now: i64,
) -> RoundJudgement {
    let status = status.filter(|status| status.round == memory.round);
    let mut verdict = RoundVerdict::Clear;
    let mut numbers = Vec::new();
    let mut recheck_after = MAX_RECHECK_MILLIS;
    for analysis in analyses {
        let query = status.and_then(|status| status.queries.iter().find(|query| query.name == analysis.name));
        let answers = query.map(|query| query.answers.as_slice()).unwrap_or_default();
        let since = memory.note_last(&analysis.name, answers, now);
        let next = judge_analysis(analysis, answers, names, is_first_step, now.saturating_sub(since));
        recheck_after = recheck_after.min(period_millis(analysis) / 2);
        numbers.push(analysis_status(analysis, answers.last(), &next));
        if weight(&next) > weight(&verdict) {
            verdict = next;
        }
    }
    RoundJudgement { verdict, numbers, recheck_after: recheck_after.max(MIN_RECHECK_MILLIS) }
}

/// Returns the weight of a verdict: the heaviest one counts.
fn weight(verdict: &RoundVerdict) -> u8 {
    match verdict {
        RoundVerdict::Clear => 0,
        RoundVerdict::Pending(_) => 1,
        RoundVerdict::Inconclusive(_) => 2,
        RoundVerdict::Bad(_) => 3,
    }
}

fn period_millis(analysis: &Analysis) -> i64 {
    // No period is as long as the other value, with which sums do not overflow.
    i64::try_from(answer_period(analysis).as_millis()).unwrap_or(i64::MAX / 8)
}

/// Judges by the answers of one analysis. `silence` is the time since the last answer, in milliseconds.
fn judge_analysis(
    analysis: &Analysis,
    answers: &[Answer],
    names: VersionNames<'_>,
    is_first_step: bool,
    silence: i64,
) -> RoundVerdict {
    let name = &analysis.name;
    let period = period_millis(analysis);
    let Some(last) = answers.last() else {
        let message =
            format!("{name} has not been measured in this step yet: Nudge measures it every {} s", period / 1000);
        if silence < period.saturating_add(MAX_ANSWER_DELAY_MILLIS) {
            return RoundVerdict::Pending(message);
        }
        return RoundVerdict::Inconclusive(format!(
            "{name} has not been measured for {} s; {NO_ANSWER_HINT}",
            silence / 1000
        ));
    };
    // The count is in halves: an answer that is too high counts two, or one if there are no pods to compare with.
    let mut bad_answers = 0;
    let mut good = 0;
    for answer in answers {
        match outcome(analysis, answer) {
            MeasuredOutcome::Good => (bad_answers, good) = (0, u32::saturating_add(good, 1)),
            MeasuredOutcome::High => (bad_answers, good) = (u32::saturating_add(bad_answers, 2), 0),
            MeasuredOutcome::HighAlone => (bad_answers, good) = (u32::saturating_add(bad_answers, 1), 0),
            MeasuredOutcome::AllHigh | MeasuredOutcome::WithinRatio => (bad_answers, good) = (0, 0),
            MeasuredOutcome::Unknown(_) => good = 0,
        }
    }
    let description = describe(analysis, last, names);
    let last = outcome(analysis, last);
    let high = matches!(last, MeasuredOutcome::High | MeasuredOutcome::HighAlone);
    if high && bad_answers >= analysis.failures.saturating_mul(2) {
        let times = if last == MeasuredOutcome::HighAlone { bad_answers } else { analysis.failures };
        let times = if times == 1 { String::new() } else { format!(", {times} times in a row") };
        return RoundVerdict::Bad(format!("{description}{times}"));
    }
    if silence > period.saturating_mul(OVERDUE_PERIODS).saturating_add(MAX_ANSWER_DELAY_MILLIS) {
        return RoundVerdict::Inconclusive(format!(
            "{name} was last measured {} s ago; {NO_ANSWER_HINT}",
            silence / 1000
        ));
    }
    let needed = if is_first_step { analysis.failures } else { 1 };
    match last {
        MeasuredOutcome::Good if good >= needed => RoundVerdict::Clear,
        MeasuredOutcome::Good => {
            RoundVerdict::Pending(format!("{description}; the first step needs {needed} good answers in a row"))
        }
        MeasuredOutcome::High | MeasuredOutcome::HighAlone => {
            RoundVerdict::Pending(format!("{description}; it is measured again"))
        }
        MeasuredOutcome::AllHigh => RoundVerdict::Inconclusive(format!(
            "{description}: the other pods are bad too, so the version is not the cause. No more pods get version {}",
            names.target
        )),
        MeasuredOutcome::WithinRatio => RoundVerdict::Inconclusive(format!(
            "{description}: this is above max, but not above maxRatio, so the version may be good. No more pods get \
             version {} until the result is at most max",
            names.target
        )),
        MeasuredOutcome::Unknown(cause) => RoundVerdict::Inconclusive(format!(
            "{name} has no result: {cause}. No more pods get version {} until it has one",
            names.target
        )),
    }
}

/// Describes the numbers of an answer in words.
fn describe(analysis: &Analysis, answer: &Answer, VersionNames { target, current }: VersionNames<'_>) -> String {
    let number = |text: &Option<String>| text.as_deref().map_or_else(|| "nothing".to_owned(), short);
    let limits = [("max", &analysis.max), ("maxRatio", &analysis.max_ratio)];
    let limits: Vec<String> =
        limits.into_iter().filter_map(|(name, limit)| Some(format!("{name} {}", limit.as_ref()?))).collect();
    let others = match &answer.control {
        Some(_) => format!("those on {current} have {}", number(&answer.control)),
        None => format!("no pod runs {current} to compare with"),
    };
    let name = &analysis.name;
    let limits = limits.join(", ");
    format!("{name}: pods on {target} have {}, {others} ({limits})", number(&answer.target))
}

/// Returns the number with no more digits than people read.
fn short(text: &str) -> String {
    let Ok(number) = text.parse::<f64>() else { return "nothing".to_owned() };
    if text.len() <= 6 || number == 0.0 {
        return text.to_owned();
    }
    let digits = match number.abs() {
        1000.0.. => 0,
        1.0.. => 2,
        0.001.. => 5,
        _ => return format!("{number:.2e}"),
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn analysis_status(analysis: &Analysis, last: Option<&Answer>, verdict: &RoundVerdict) -> AnalysisStatus {
    let verdict = match verdict {
        RoundVerdict::Clear => AnalysisVerdict::Clear,
        RoundVerdict::Pending(_) => AnalysisVerdict::Pending,
        RoundVerdict::Inconclusive(_) => AnalysisVerdict::Inconclusive,
        RoundVerdict::Bad(_) => AnalysisVerdict::Bad,
    };
    let number = |text: &Option<String>| text.as_deref().map(short);
    AnalysisStatus {
        name: analysis.name.clone(),
        verdict,
        target: last.and_then(|last| number(&last.target)),
        control: last.and_then(|last| number(&last.control)),
        measure_time: last.map(|last| last.answer_time.clone()),
    }
}
