//! The rehearsal of the analyses of a spec: each query is asked about no pods before a rollout waits for its numbers.
//! Only whether there is an answer matters.

use nudge_api::{Analysis, QueryAnswers, RolloutAnalysisSpec, RolloutAnalysisStatus};
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use super::answer::AnswerError;

/// The prefix of the name of a rehearsal's round.
const ROUND_PREFIX: &str = "rehearsal-";
/// The number of hex digits after the prefix, which stand for the analyses.
const ROUND_DIGITS: usize = 12;
/// A name that no pod can have.
const IMPOSSIBLE_POD_NAME: &str = "-";

/// The result of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// Answers are missing.
    Pending,
    /// Each analysis has an answer.
    Works,
    /// Some queries have no answer, with the reasons.
    Fails(String),
}

/// Returns the question that tries these analyses. Each change of the analyses gives the round another name.
pub fn rehearsal_question(analyses: &[Analysis]) -> RolloutAnalysisSpec {
    let text = serde_json::to_vec(analyses).unwrap_or_default();
    let digits: String = hex(digest(&SHA256, &text).as_ref()).chars().take(ROUND_DIGITS).collect();
    RolloutAnalysisSpec {
        target_version: None,
        generation: 0,
        round: format!("{ROUND_PREFIX}{digits}"),
        pods: vec![IMPOSSIBLE_POD_NAME.to_owned()],
        control: Vec::new(),
    }
}

/// Returns whether the answers of this round are those of a rehearsal.
pub fn is_rehearsal(round: &str) -> bool {
    round.starts_with(ROUND_PREFIX)
}

/// Returns whether the server has answered, although the answer has no number, because there are no pods.
pub fn is_answer_without_pods(error: &AnswerError) -> bool {
    matches!(error, AnswerError::Empty | AnswerError::NotANumber | AnswerError::Infinite)
}

/// Returns the result of rehearsing these analyses, according to the last answers.
pub fn rehearsal_result(analyses: &[Analysis], status: Option<&RolloutAnalysisStatus>) -> Rehearsal {
    let Some(status) = status.filter(|status| status.round == rehearsal_question(analyses).round) else {
        return Rehearsal::Pending;
    };
    let mut errors = Vec::new();
    for analysis in analyses {
        let has_name = |query: &&QueryAnswers| query.name == analysis.name;
        let Some(answer) = status.queries.iter().find(has_name).and_then(|query| query.answers.last()) else {
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
        assert_eq!(rehearsal_question(&one), rehearsal_question(&one.clone()));
        assert_ne!(rehearsal_question(&one).round, rehearsal_question(&other).round);
        assert!(is_rehearsal(&rehearsal_question(&one).round) && !is_rehearsal("3-1790000000000000"));
        assert_eq!(
            crate::analysis::fill_query("up{pod=~\"{{pods}}\"}", "ns", &rehearsal_question(&one).pods),
            "up{pod=~\"-\"}"
        );
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
            let status = json!({"round": rehearsal_question(&two).round, "queries": queries});
            serde_json::from_value::<RolloutAnalysisStatus>(status).unwrap()
        };
        let result = |errors: &[Option<&str>]| rehearsal_result(&two, Some(&answers(errors)));
        assert_eq!(rehearsal_result(&two, None), Rehearsal::Pending);
        assert_eq!(result(&[None]), Rehearsal::Pending);
        assert_eq!(result(&[None, None]), Rehearsal::Works);
        assert_eq!(result(&[Some("no answer"), None]), Rehearsal::Fails("a0: no answer".to_owned()));
        assert_eq!(result(&[Some("b"), Some("c")]), Rehearsal::Fails("a0: b; a1: c".to_owned()));
        let other = RolloutAnalysisStatus { round: "rehearsal-0".to_owned(), ..answers(&[None, None]) };
        assert_eq!(rehearsal_result(&two, Some(&other)), Rehearsal::Pending, "of other queries");
    }
}
