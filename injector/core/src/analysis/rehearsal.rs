//! The rehearsal of the analyses of a spec: each is asked about no pods before a rollout waits for its numbers. What it finds does not matter, only
//! that there is an answer.

use nudge_api::{Analysis, QueryAnswers, RolloutAnalysisSpec, RolloutAnalysisStatus};
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use super::answer::AnswerError;

/// Begins the name of the round of a rehearsal.
const PREFIX: &str = "rehearsal-";
/// What follows it: so many hex digits that stand for the analyses.
const DIGITS: usize = 12;
/// A name that no pod can have.
const IMPOSSIBLE_POD_NAME: &str = "-";

/// What came of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// Answers are missing.
    Pending,
    /// Each analysis has an answer.
    Works,
    /// Some queries have no answer: why.
    Fails(String),
}

/// The question by which these analyses are tried. Its round is another one for each change of them.
pub fn rehearsal(analyses: &[Analysis]) -> RolloutAnalysisSpec {
    let text = serde_json::to_vec(analyses).unwrap_or_default();
    let digits: String = hex(digest(&SHA256, &text).as_ref()).chars().take(DIGITS).collect();
    RolloutAnalysisSpec {
        target_version: None,
        generation: 0,
        round: format!("{PREFIX}{digits}"),
        pods: vec![IMPOSSIBLE_POD_NAME.to_owned()],
        control: Vec::new(),
    }
}

/// Returns whether the answers of this round are those of a rehearsal.
pub fn is_rehearsal(round: &str) -> bool {
    round.starts_with(PREFIX)
}

/// Returns whether the server has answered, although nothing can be said of pods by it: there are none.
pub fn is_answered(error: &AnswerError) -> bool {
    matches!(error, AnswerError::Empty | AnswerError::NotANumber | AnswerError::Infinite)
}

/// What the last answers say about the rehearsal of these analyses.
pub fn rehearsed(analyses: &[Analysis], status: Option<&RolloutAnalysisStatus>) -> Rehearsal {
    let Some(status) = status.filter(|status| status.round == rehearsal(analyses).round) else {
        return Rehearsal::Pending;
    };
    let mut errors = Vec::new();
    for analysis in analyses {
        let of = |one: &&QueryAnswers| one.name == analysis.name;
        let Some(answer) = status.queries.iter().find(of).and_then(|one| one.answers.last()) else {
            return Rehearsal::Pending;
        };
        errors.extend(answer.error.as_ref().map(|error| format!("{}: {error}", analysis.name)));
    }
    if errors.is_empty() { Rehearsal::Works } else { Rehearsal::Fails(errors.join("; ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn analyses(queries: &[&str]) -> Vec<Analysis> {
        let analysis = |(number, query): (usize, &&str)| {
            let prometheus = json!({"address": "http://prometheus:9090", "query": query});
            serde_json::from_value(json!({"name": format!("a{number}"), "max": "1", "prometheus": prometheus})).unwrap()
        };
        queries.iter().enumerate().map(analysis).collect()
    }

    #[test]
    fn every_change_of_the_analyses_is_another_rehearsal_and_nobody_is_named() {
        let [one, other] = [analyses(&["up{pod=~\"{{pods}}\"}"]), analyses(&["down{pod=~\"{{pods}}\"}"])];
        assert_eq!(rehearsal(&one), rehearsal(&one.clone()));
        assert_ne!(rehearsal(&one).round, rehearsal(&other).round);
        assert!(is_rehearsal(&rehearsal(&one).round) && !is_rehearsal("3-1790000000000000"));
        assert_eq!(crate::analysis::fill("up{pod=~\"{{pods}}\"}", "ns", &rehearsal(&one).pods), "up{pod=~\"-\"}");
    }

    #[test]
    fn it_works_once_each_has_an_answer() {
        let two = analyses(&["{{pods}}", "1 * {{pods}}"]);
        let answers = |errors: &[Option<&str>]| {
            let query = |(number, error): (usize, Option<&str>)| -> Value {
                let answer = json!({"number": 1, "answerTime": "2026-01-01T00:00:00Z", "error": error});
                json!({"name": format!("a{number}"), "answers": [answer]})
            };
            let queries: Vec<Value> = errors.iter().copied().enumerate().map(query).collect();
            let status = json!({"round": rehearsal(&two).round, "queries": queries});
            serde_json::from_value::<RolloutAnalysisStatus>(status).unwrap()
        };
        let of = |errors: &[Option<&str>]| rehearsed(&two, Some(&answers(errors)));
        assert_eq!(rehearsed(&two, None), Rehearsal::Pending);
        assert_eq!(of(&[None]), Rehearsal::Pending);
        assert_eq!(of(&[None, None]), Rehearsal::Works);
        assert_eq!(of(&[Some("no answer"), None]), Rehearsal::Fails("a0: no answer".to_owned()));
        assert_eq!(of(&[Some("b"), Some("c")]), Rehearsal::Fails("a0: b; a1: c".to_owned()));
        let other = RolloutAnalysisStatus { round: "rehearsal-0".to_owned(), ..answers(&[None, None]) };
        assert_eq!(rehearsed(&two, Some(&other)), Rehearsal::Pending, "of other queries");
    }
}
