//! What all answers of a round say of the version.
//!
//! An answer that is too high counts against the version if pods without it have a good one at the same time. Without such pods it counts half.
//! A good answer, or one that is too high for all, ends the row. What can't be measured says nothing: it holds the version, and blames nobody.

use std::collections::HashMap;

use nudge_api::{Analysis, AnalysisStatus, AnalysisVerdict, Answer, RolloutAnalysisStatus};

use super::outcome::{Outcome, outcome};
use super::pace::period;

/// How much later than it is due an answer may be seen, in milliseconds: a query may take 10 s, and objects are read every few seconds.
const MAX_ANSWER_DELAY_MILLIS: i64 = 30_000;
/// The next answer is overdue this many periods after the last one.
const OVERDUE_PERIODS: i64 = 3;
/// How often to look for answers, at most and at least, in milliseconds.
const LOOKS: (i64, i64) = (1000, 5000);

/// What follows from all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The results say nothing against the version.
    Clear,
    /// More answers are needed: the message.
    Pending(String),
    /// The results show neither: the message.
    Inconclusive(String),
    /// The version is bad: the message.
    Bad(String),
}

/// The verdict, with the numbers behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What follows.
    pub verdict: Verdict,
    /// The last numbers of each analysis.
    pub numbers: Vec<AnalysisStatus>,
    /// After how many milliseconds there may be more answers.
    pub again: i64,
}

/// The names of both versions.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The version that is judged.
    pub target: &'a str,
    /// The version before.
    pub current: &'a str,
}

/// When the answers of a round were seen first, by the clock of one leader: those of another machine's clock may be wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    began: (i64, i64),
    round: String,
    seen: HashMap<String, (u64, i64)>,
}

impl Memory {
    /// The round that began at this time by the spec of this generation: where these are others, another one begins, with this name.
    pub fn round(&mut self, began: (i64, i64), name: impl FnOnce() -> String) -> &str {
        if self.round.is_empty() || self.began != began {
            *self = Self { began, round: name(), seen: HashMap::new() };
        }
        &self.round
    }

    /// Notes what has come.
    fn note_last(&mut self, name: &str, answers: &[Answer], now: i64) -> i64 {
        let Some(last) = answers.last() else { return self.began.0 };
        let seen = self.seen.entry(name.to_owned()).or_insert((last.number, now));
        if seen.0 != last.number {
            *seen = (last.number, now);
        }
        seen.1
    }
}

/// Judges by the answers of the round that `memory` is about. `first`: the first step is judged, from which all others follow.
pub fn judge(
    analyses: &[Analysis],
    known: Option<&RolloutAnalysisStatus>,
    memory: &mut Memory,
    names: Names<'_>,
    first: bool,
    now: i64,
) -> Judgement {
    let known = known.filter(|known| known.round == memory.round);
    let mut verdict = Verdict::Clear;
    let (mut numbers, mut again) = (Vec::new(), LOOKS.1);
    for analysis in analyses {
        let found = known.and_then(|known| known.queries.iter().find(|one| one.name == analysis.name));
        let answers = found.map(|found| found.answers.as_slice()).unwrap_or_default();
        let since = memory.note_last(&analysis.name, answers, now);
        let one = verdict_of(analysis, answers, names, first, now.saturating_sub(since));
        again = again.min(millis(analysis) / 2);
        numbers.push(status_of(analysis, answers.last(), &one));
        if weight(&one) > weight(&verdict) {
            verdict = one;
        }
    }
    Judgement { verdict, numbers, again: again.max(LOOKS.0) }
}

/// Which of several verdicts counts.
fn weight(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Clear => 0,
        Verdict::Pending(_) => 1,
        Verdict::Inconclusive(_) => 2,
        Verdict::Bad(_) => 3,
    }
}

fn millis(analysis: &Analysis) -> i64 {
    i64::try_from(period(analysis).as_millis()).unwrap_or(i64::MAX / 8)
}

/// What the answers of one analysis say. `silent`: for how many milliseconds there was no other one.
fn verdict_of(analysis: &Analysis, answers: &[Answer], names: Names<'_>, first: bool, silent: i64) -> Verdict {
    let (name, period) = (&analysis.name, millis(analysis));
    let Some(last) = answers.last() else {
        let message =
            format!("{name} has not been measured in this step yet: Nudge measures it every {} s", period / 1000);
        if silent < period.saturating_add(MAX_ANSWER_DELAY_MILLIS) {
            return Verdict::Pending(message);
        }
        return Verdict::Inconclusive(format!(
            "{name} has not been measured for {} s; {NO_ANSWER_HINT}",
            silent / 1000
        ));
    };
    // Counted in halves: an answer that is too high counts two, one without pods to compare with counts one.
    let (mut against, mut good) = (0, 0);
    for one in answers {
        match outcome(analysis, one) {
            Outcome::Good => (against, good) = (0, u32::saturating_add(good, 1)),
            Outcome::High => (against, good) = (u32::saturating_add(against, 2), 0),
            Outcome::HighAlone => (against, good) = (u32::saturating_add(against, 1), 0),
            Outcome::AllHigh | Outcome::WithinRatio => (against, good) = (0, 0),
            Outcome::Unknown(_) => good = 0,
        }
    }
    let said = describe(analysis, last, names);
    let last = outcome(analysis, last);
    let high = matches!(last, Outcome::High | Outcome::HighAlone);
    if high && against >= analysis.failures.saturating_mul(2) {
        let times = if last == Outcome::HighAlone { against } else { analysis.failures };
        let times = if times == 1 { String::new() } else { format!(", {times} times in a row") };
        return Verdict::Bad(format!("{said}{times}"));
    }
    if silent > period.saturating_mul(OVERDUE_PERIODS).saturating_add(MAX_ANSWER_DELAY_MILLIS) {
        return Verdict::Inconclusive(format!("{name} was last measured {} s ago; {NO_ANSWER_HINT}", silent / 1000));
    }
    let needed = if first { analysis.failures } else { 1 };
    match last {
        Outcome::Good if good >= needed => Verdict::Clear,
        Outcome::Good => Verdict::Pending(format!("{said}; the first step needs {needed} good answers in a row")),
        Outcome::High | Outcome::HighAlone => Verdict::Pending(format!("{said}; it is measured again")),
        Outcome::AllHigh => Verdict::Inconclusive(format!(
            "{said}: the other pods are bad too, so the version is not the cause. No more pods get version {}",
            names.target
        )),
        Outcome::WithinRatio => Verdict::Inconclusive(format!(
            "{said}: this is above max, but not above maxRatio, so it does not show whether the version is bad. No more pods get \
             version {} until the result is at most max",
            names.target
        )),
        Outcome::Unknown(why) => Verdict::Inconclusive(format!(
            "{name} has no result: {why}. No more pods get version {} until it has one",
            names.target
        )),
    }
}

const NO_ANSWER_HINT: &str =
    "check that Deployment nudge-analysis runs and may ask the server (deploy/TROUBLESHOOTING.md)";

/// The numbers in words.
fn describe(analysis: &Analysis, answer: &Answer, Names { target, current }: Names<'_>) -> String {
    let number = |text: &Option<String>| text.as_deref().map_or_else(|| "nothing".to_owned(), short);
    let limits = [("max", &analysis.max), ("maxRatio", &analysis.max_ratio)];
    let limits: Vec<String> =
        limits.into_iter().filter_map(|(name, limit)| Some(format!("{name} {}", limit.as_ref()?))).collect();
    let others = match &answer.control {
        Some(_) => format!("those on {current} have {}", number(&answer.control)),
        None => format!("no pod runs {current} to compare with"),
    };
    let (name, limits) = (&analysis.name, limits.join(", "));
    format!("{name}: pods on {target} have {}, {others} ({limits})", number(&answer.target))
}

/// A number with no more digits than people read.
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

/// What the status says of it.
fn status_of(analysis: &Analysis, last: Option<&Answer>, verdict: &Verdict) -> AnalysisStatus {
    let verdict = match verdict {
        Verdict::Clear => AnalysisVerdict::Clear,
        Verdict::Pending(_) => AnalysisVerdict::Pending,
        Verdict::Inconclusive(_) => AnalysisVerdict::Inconclusive,
        Verdict::Bad(_) => AnalysisVerdict::Bad,
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
