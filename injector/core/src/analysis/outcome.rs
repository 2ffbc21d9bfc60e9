//! The outcome of one answer: its verdict on the version.

use nudge_api::{Analysis, Answer};

/// The outcome of one answer about the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MeasuredOutcome {
    /// The pods with the version stay within the limits.
    Good,
    /// Pods with the target exceed `max`, and control does not.
    High,
    /// Pods with the target exceed `max`, and there is no control.
    HighAlone,
    /// Pods with the target exceed `max`, and so does control.
    AllHigh,
    /// Pods with the target exceed `max` and control does not, but they stay within `maxRatio` times control.
    WithinRatio,
    /// The result is unknown, with the reason.
    Unknown(String),
}

/// Returns the outcome of an answer about the version.
pub(super) fn outcome(analysis: &Analysis, answer: &Answer) -> MeasuredOutcome {
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<f64>().ok());
    let max = number(&analysis.max);
    let ratio = number(&analysis.max_ratio);
    if let Some(error) = &answer.error {
        return MeasuredOutcome::Unknown(error.clone());
    }
    let Some(target) = number(&answer.target) else { return MeasuredOutcome::Unknown("there is no number".to_owned()) };
    let above_max = max.is_none_or(|max| target > max);
    if !above_max {
        return MeasuredOutcome::Good;
    }
    match (number(&answer.control), max, ratio) {
        (None, Some(_), _) => MeasuredOutcome::HighAlone,
        (Some(control), _, Some(ratio)) if target > ratio * control => {
            if control <= 0.0 && max.is_none() {
                let cause = "the other pods have 0, so there is no ratio; set max too, so that the result can be judged without one";
                MeasuredOutcome::Unknown(cause.to_owned())
            } else {
                MeasuredOutcome::High
            }
        }
        (Some(control), Some(max), Some(_)) if control <= max => MeasuredOutcome::WithinRatio,
        (Some(_), Some(_), Some(_)) => MeasuredOutcome::AllHigh,
        // The target is within the ratio, or there is neither control nor `max` to compare with.
        (_, None, _) => MeasuredOutcome::Good,
        (Some(control), Some(max), None) if control > max => MeasuredOutcome::AllHigh,
        (Some(_), Some(_), None) => MeasuredOutcome::High,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn outcome_of(limits: (Option<&str>, Option<&str>), target: &str, control: Option<&str>) -> MeasuredOutcome {
        let (max, ratio) = limits;
        let prometheus = json!({"address": "http://a", "query": "{{pods}}"});
        let analysis = json!({"name": "errors", "prometheus": prometheus, "max": max, "maxRatio": ratio});
        let answer = Answer {
            number: 1,
            answer_time: Time(Timestamp::UNIX_EPOCH),
            target: Some(target.to_owned()),
            control: control.map(str::to_owned),
            error: None,
        };
        outcome(&serde_json::from_value(analysis).unwrap(), &answer)
    }

    #[test]
    fn a_threshold_counts_where_the_others_keep_it() {
        let max = (Some("0.01"), None);
        assert_eq!(outcome_of(max, "0.01", Some("0")), MeasuredOutcome::Good);
        assert_eq!(outcome_of(max, "0.02", Some("0.01")), MeasuredOutcome::High);
        assert_eq!(outcome_of(max, "0.02", Some("0.011")), MeasuredOutcome::AllHigh);
        assert_eq!(outcome_of(max, "0.02", None), MeasuredOutcome::HighAlone);
        assert_eq!(outcome_of(max, "0.01", Some("0.9")), MeasuredOutcome::Good);
    }

    #[test]
    fn a_ratio_needs_others_that_have_more_than_nothing() {
        let ratio = (None, Some("2"));
        assert_eq!(outcome_of(ratio, "0.2", Some("0.1")), MeasuredOutcome::Good);
        assert_eq!(outcome_of(ratio, "0.21", Some("0.1")), MeasuredOutcome::High);
        assert_eq!(outcome_of(ratio, "0", Some("0")), MeasuredOutcome::Good);
        assert!(matches!(outcome_of(ratio, "0.001", Some("0")), MeasuredOutcome::Unknown(_)));
        assert_eq!(outcome_of(ratio, "9", None), MeasuredOutcome::Good);
    }

    #[test]
    fn with_both_limits_both_must_be_broken() {
        let both = (Some("0.01"), Some("2"));
        assert_eq!(outcome_of(both, "0.009", Some("0.001")), MeasuredOutcome::Good);
        assert_eq!(outcome_of(both, "0.011", Some("0")), MeasuredOutcome::High);
        assert_eq!(outcome_of(both, "0.011", Some("0.006")), MeasuredOutcome::WithinRatio);
        assert_eq!(outcome_of(both, "0.011", Some("0.01")), MeasuredOutcome::WithinRatio);
        assert_eq!(outcome_of(both, "0.021", Some("0.011")), MeasuredOutcome::AllHigh);
        assert_eq!(
            outcome_of(both, "0.9", Some("0.02")),
            MeasuredOutcome::High,
            "it is far worse than others that are ill too"
        );
        assert_eq!(outcome_of(both, "0.011", None), MeasuredOutcome::HighAlone);
    }
}
