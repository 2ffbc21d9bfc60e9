//! The answers of one round, and the due times of each query.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Analysis, Answer, QueryAnswers, RolloutAnalysisStatus};
use nudge_core::analysis::{answer_period, is_rehearsal};
use nudge_protocol::backoff::Backoff;
use tokio::time::Instant;

use crate::measurement::Numbers;

/// The waits before an unanswered query of a rehearsal is sent again.
const UNANSWERED_BACKOFF: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(15) };

pub(crate) struct RoundAnswers {
    round: String,
    began: Instant,
    queries: BTreeMap<String, Query>,
}

struct Query {
    answers: Vec<Answer>,
    asked_at: Instant,
}

impl RoundAnswers {
    /// Returns a round that this process sees for the first time, with the answers that another process has written.
    pub(crate) fn new(round: &str, known: Option<&RolloutAnalysisStatus>, now: Instant) -> Self {
        let known = known.filter(|known| known.round == round);
        let query =
            |known: &QueryAnswers| (known.name.clone(), Query { answers: known.answers.clone(), asked_at: now });
        let queries = known.iter().flat_map(|known| &known.queries).map(query).collect();
        Self { round: round.to_owned(), began: now, queries }
    }

    pub(crate) fn is_of(&self, round: &str) -> bool {
        self.round == round
    }

    /// Returns when the query is due: a whole period after the round began, so that all data belong to the round. In a
    /// rehearsal, a query is due at once, and not again after an answer without an error.
    pub(crate) fn due(&self, analysis: &Analysis) -> Option<Instant> {
        let query = self.queries.get(&analysis.name);
        if !is_rehearsal(&self.round) {
            let last = query.map_or(self.began, |query| query.asked_at);
            return Some(last.checked_add(answer_period(analysis)).unwrap_or(self.began));
        }
        let Some((query, answer)) = query.and_then(|query| Some((query, query.answers.last()?))) else {
            return Some(self.began);
        };
        let tries = u32::try_from(answer.number).unwrap_or(u32::MAX);
        answer.error.as_ref().and_then(|_| query.asked_at.checked_add(UNANSWERED_BACKOFF.wait(tries)))
    }

    /// Notes an answer to a query that was sent at the time `asked_at`.
    pub(crate) fn note(
        &mut self,
        analysis: &Analysis,
        asked_at: Instant,
        answer_time: Time,
        numbers: Result<Numbers, String>,
    ) {
        let new = || Query { answers: Vec::new(), asked_at };
        let query = self.queries.entry(analysis.name.clone()).or_insert_with(new);
        query.asked_at = asked_at;
        let number = query.answers.last().map_or(1, |last| last.number.saturating_add(1));
        let answer = match numbers {
            Ok(Numbers { target, control }) => {
                // In a rehearsal there may be an answer without a number. An API server of 1.20 takes an empty text for
                // null.
                let target = Some(target).filter(|target| !target.is_empty());
                Answer { number, answer_time, target, control, error: None }
            }
            Err(error) => Answer { number, answer_time, target: None, control: None, error: Some(error) },
        };
        query.answers.push(answer);
        let surplus = query.answers.len().saturating_sub(QueryAnswers::MAX_ANSWERS);
        query.answers.drain(..surplus);
    }

    /// Returns the status with the answers of these analyses.
    pub(crate) fn status(&self, analyses: &[Analysis]) -> RolloutAnalysisStatus {
        let answers_of = |analysis: &Analysis| {
            let answers = self.queries.get(&analysis.name)?.answers.clone();
            Some(QueryAnswers { name: analysis.name.clone(), answers })
        };
        RolloutAnalysisStatus { round: self.round.clone(), queries: analyses.iter().filter_map(answers_of).collect() }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn analysis() -> Analysis {
        let prometheus = json!({"address": "http://a", "query": "rate(a{pod=~\"{{pods}}\"}[1m])"});
        serde_json::from_value(json!({"name": "errors", "prometheus": prometheus, "max": "1"})).unwrap()
    }

    #[test]
    fn the_first_answer_comes_a_period_after_the_round_began_and_twenty_are_kept() {
        let (began, at) = (Instant::now(), Time(Timestamp::UNIX_EPOCH));
        let mut series = RoundAnswers::new("a", None, began);
        let minute = Duration::from_mins(1);
        assert_eq!(series.due(&analysis()), Some(began + minute));
        for number in 1..=30 {
            let asked = began + minute * number;
            series.note(&analysis(), asked, at.clone(), Ok(Numbers { target: number.to_string(), control: None }));
            assert_eq!(series.due(&analysis()), Some(asked + minute));
        }
        let status = series.status(&[analysis()]);
        let answers = &status.queries[0].answers;
        assert_eq!((answers.len(), answers[0].number, answers[19].number), (20, 11, 30));
        // Another process continues, and waits for a period: it does not know the time of the last query.
        let later = began + minute * 40;
        let next = RoundAnswers::new("a", Some(&status), later);
        assert_eq!((next.status(&[analysis()]), next.due(&analysis())), (status.clone(), Some(later + minute)));
        assert!(RoundAnswers::new("b", Some(&status), later).status(&[analysis()]).queries.is_empty());
    }

    #[test]
    fn a_rehearsal_is_due_at_once_and_later_each_time_until_there_is_an_answer() {
        let (began, at) = (Instant::now(), Time(Timestamp::UNIX_EPOCH));
        let mut series = RoundAnswers::new("rehearsal-1", None, began);
        assert_eq!(series.due(&analysis()), Some(began));
        for minutes in [1, 2, 4, 8, 15, 15] {
            series.note(&analysis(), began, at.clone(), Err("away".to_owned()));
            assert_eq!(series.due(&analysis()), Some(began + Duration::from_mins(minutes)));
        }
        series.note(&analysis(), began, at, Ok(Numbers { target: String::new(), control: None }));
        assert_eq!(series.due(&analysis()), None);
    }
}
