//! The condition `Measurable`: whether the analyses of a config can be asked, as their rehearsal has found before a rollout needs them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, Reason, RolloutAnalysisSpec, RolloutAnalysisStatus, VersionedConfig, VersionedConfigStatus,
    condition, find_condition, set_condition,
};

use crate::analysis::{Rehearsal, rehearsal, rehearsed, server};
use crate::event_record::EventRecord;
use crate::rollout::Millis;

/// How soon to look for the first answers of a rehearsal, in milliseconds.
const PENDING: Millis = 5_000;
/// What is said before the first answer.
const UNASKED: &str = "no query of spec.rollout.analysis has been asked yet; if this stays so, nobody asks: install the component analysis";
/// How soon to look whether what could not be asked can be, in milliseconds.
const FAILING: Millis = 15_000;

/// What follows from a rehearsal, beside the condition.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Measurable {
    /// What is to be asked.
    pub(super) question: Option<RolloutAnalysisSpec>,
    /// The Event that says that it can't be.
    pub(super) event: Option<EventRecord>,
    /// After how many milliseconds there may be more answers.
    pub(super) again: Option<Millis>,
}

/// The question that is to be asked of the analyses of a config with this status: none while something moves, where one
/// has no meaning, nor once each has had an answer.
pub fn wanted_rehearsal(
    config: &VersionedConfig,
    status: Option<&VersionedConfigStatus>,
) -> Option<RolloutAnalysisSpec> {
    let analyses = &config.spec.rollout.analysis;
    let moves = status.is_some_and(|status| status.rollout.stage.is_some());
    if analyses.is_empty() || moves || analyses.iter().any(|analysis| server(analysis).is_err()) {
        return None;
    }
    let question = rehearsal(analyses);
    let known = status.and_then(|status| find_condition(&status.conditions, ConditionType::Measurable));
    let works = known.is_some_and(|known| known.status == "True" && known.message.starts_with(&begin(&question.round)));
    (!works).then_some(question)
}

/// Sets the condition by what was measured. What another rehearsal has said goes.
pub(super) fn measurable(
    config: &VersionedConfig,
    status: &mut VersionedConfigStatus,
    measured: Option<&RolloutAnalysisStatus>,
    now: &Time,
) -> Measurable {
    let analyses = &config.spec.rollout.analysis;
    let is_it = |kind: &str| kind == ConditionType::Measurable.as_str();
    if analyses.is_empty() {
        status.conditions.retain(|condition| !is_it(&condition.type_));
        return Measurable::default();
    }
    let begin = begin(&rehearsal(analyses).round);
    status.conditions.retain(|condition| !is_it(&condition.type_) || condition.message.starts_with(&begin));
    let known = find_condition(&status.conditions, ConditionType::Measurable).cloned();
    let failed = known.as_ref().is_some_and(|known| known.status == "False" && !known.message.ends_with(UNASKED));
    let generation = config.metadata.generation;
    let set = |status: &mut VersionedConfigStatus, works: bool, reason: Reason, message: &str| {
        let kind = ConditionType::Measurable;
        set_condition(&mut status.conditions, condition(kind, works, reason, message, generation, now));
    };
    let (works, reason, message) = match rehearsed(analyses, measured) {
        Rehearsal::Pending => {
            let question = wanted_rehearsal(config, Some(&*status));
            let again = question.as_ref().map(|_| if known.is_some() { FAILING } else { PENDING });
            if question.is_some() && known.is_none() {
                set(status, false, Reason::NotMeasurable, &format!("{begin}{UNASKED}"));
            }
            return Measurable { question, event: None, again };
        }
        Rehearsal::Works => (true, Reason::Measurable, "each query of spec.rollout.analysis has an answer".to_owned()),
        Rehearsal::Fails(why) => (false, Reason::NotMeasurable, why),
    };
    let message = format!("{begin}{message}");
    let event = (!works && !failed).then(|| EventRecord::new(reason, message.as_str()));
    set(status, works, reason, &message);
    let question = wanted_rehearsal(config, Some(&*status));
    let again = question.as_ref().map(|_| FAILING);
    Measurable { question, event, again }
}

/// How messages about this rehearsal begin.
fn begin(round: &str) -> String {
    format!("{round}: ")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::RolloutStage;
    use serde_json::json;

    use super::*;
    use crate::versions::{Extent, reduced};

    fn config(query: &str) -> VersionedConfig {
        let prometheus = json!({"address": "http://prometheus:9090", "query": query});
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": {"rollout": {"analysis": [{"name": "errors", "prometheus": prometheus, "max": "1"}]}},
        }))
        .unwrap()
    }

    fn answer(config: &VersionedConfig, error: Option<&str>) -> RolloutAnalysisStatus {
        let answers = json!([{"number": 1, "answerTime": "2026-01-01T00:00:00Z", "error": error}]);
        let round = rehearsal(&config.spec.rollout.analysis).round;
        serde_json::from_value(json!({"round": round, "queries": [{"name": "errors", "answers": answers}]})).unwrap()
    }

    #[test]
    fn analyses_are_tried_until_they_work_and_once_more_after_each_change() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let mut status = VersionedConfigStatus::default();
        let says = |status: &VersionedConfigStatus| {
            find_condition(&status.conditions, ConditionType::Measurable)
                .map(|it| (it.status.clone(), it.reason.clone()))
        };
        let said = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
        let one = config("rate(up{pod=~\"{{pods}}\"}[1m])");
        let asked = measurable(&one, &mut status, None, &now);
        assert_eq!((asked.question.is_some(), asked.again, asked.event), (true, Some(PENDING), None));
        assert_eq!(says(&status), said("False", "NotMeasurable"), "nobody has asked yet");
        let failing = answer(&one, Some("Secret metrics can't be read"));
        let failed = measurable(&one, &mut status, Some(&failing), &now);
        assert_eq!((failed.question.is_some(), failed.again), (true, Some(FAILING)));
        assert_eq!(says(&status), said("False", "NotMeasurable"));
        let event = failed.event.unwrap();
        assert!(event.warning && event.explanation.message.ends_with(": errors: Secret metrics can't be read"));
        assert_eq!(measurable(&one, &mut status, Some(&failing), &now).event, None, "it is said once");
        // A rollout has other answers, and asks for itself.
        status.rollout.stage = Some(RolloutStage::Moving);
        assert_eq!(measurable(&one, &mut status, None, &now), Measurable::default());
        assert_eq!(says(&status), said("False", "NotMeasurable"));
        status.rollout.stage = None;
        assert_eq!(measurable(&one, &mut status, Some(&answer(&one, None)), &now), Measurable::default());
        assert_eq!(says(&status), said("True", "Measurable"));
        assert_eq!(measurable(&one, &mut status, None, &now), Measurable::default(), "it is asked no more");
        assert_eq!(says(&status), said("True", "Measurable"));
        let other = config("rate(down{pod=~\"{{pods}}\"}[1m])");
        assert!(measurable(&other, &mut status, Some(&answer(&one, None)), &now).question.is_some());
        assert_eq!(says(&status), said("False", "NotMeasurable"), "of other queries");
        let none = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        measurable(&one, &mut status, Some(&answer(&one, None)), &now);
        assert_eq!((measurable(&none, &mut status, None, &now), says(&status)), (Measurable::default(), None));
    }

    #[test]
    fn a_status_without_texts_says_as_much() {
        let [now, later] = [0, 60].map(|second| Time(Timestamp::from_second(second).unwrap()));
        let one = config("rate(up{pod=~\"{{pods}}\"}[1m])");
        for error in [None, Some("Secret metrics can't be read")] {
            let mut decided = VersionedConfigStatus::default();
            let answer = answer(&one, error);
            measurable(&one, &mut decided, Some(&answer), &now);
            let stored = VersionedConfigStatus::default();
            let stored = reduced(Extent::Plain, &stored, &decided, "a policy", &now);
            let mut next = stored.clone();
            next.conditions.retain(|condition| condition.type_ != ConditionType::StatusComplete.as_str());
            let Measurable { question, event, .. } = measurable(&one, &mut next, None, &later);
            assert_eq!((question.is_some(), event), (error.is_some(), None));
            let written = reduced(Extent::Plain, &stored, &next, "a policy", &later);
            assert_eq!(written, stored, "nothing is written again");
        }
    }
}
