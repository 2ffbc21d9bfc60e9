//! The condition `Measurable`: whether the analyses of a config can be asked, as their rehearsal has found before a
//! rollout needs them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use nudge_api::{
    ConditionType, Reason, RolloutAnalysisSpec, RolloutAnalysisStatus, VersionedConfig, VersionedConfigStatus,
    condition, find_condition, set_condition,
};

use crate::analysis::{Rehearsal, parse_server, rehearsal_question, rehearsal_result};
use crate::event_record::EventRecord;

/// The message before the first answer.
const UNASKED_MESSAGE: &str =
    "no query of spec.rollout.analysis has been asked yet; if this stays so, install the component analysis";

/// The results of a rehearsal, besides the condition.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RehearsalEffects {
    /// The question to ask.
    pub(super) question: Option<RolloutAnalysisSpec>,
    /// The Event that says that the analyses can't be asked.
    pub(super) event: Option<EventRecord>,
}

/// Returns the question for the rehearsal of a config with this status. There is no question while pods move, because a
/// rehearsal would be meaningless then, and none once each analysis has had an answer.
pub fn wanted_rehearsal(
    config: &VersionedConfig,
    status: Option<&VersionedConfigStatus>,
) -> Option<RolloutAnalysisSpec> {
    let analyses = &config.spec.rollout.analysis;
    let moves = status.is_some_and(|status| status.rollout.stage.is_some());
    if analyses.is_empty() || moves || analyses.iter().any(|analysis| parse_server(analysis).is_err()) {
        return None;
    }
    let question = rehearsal_question(analyses);
    let is_measurable = status
        .and_then(|status| rehearsal_condition(status, &question.round))
        .is_some_and(|condition| condition.status == "True");
    (!is_measurable).then_some(question)
}

/// Sets the condition by the measured answers, and removes the result of an earlier rehearsal.
pub(super) fn set_measurable(
    config: &VersionedConfig,
    status: &mut VersionedConfigStatus,
    measured: Option<&RolloutAnalysisStatus>,
    now: &Time,
) -> RehearsalEffects {
    let analyses = &config.spec.rollout.analysis;
    if analyses.is_empty() {
        remove_rehearsal(status);
        return RehearsalEffects::default();
    }
    let round = rehearsal_question(analyses).round;
    let worked = rehearsal_condition(status, &round).map(|condition| condition.status == "True");
    let generation = config.metadata.generation;
    let set = |status: &mut VersionedConfigStatus, is_measurable: bool, reason: Reason, message: &str| {
        let kind = ConditionType::Measurable;
        set_condition(&mut status.conditions, condition(kind, is_measurable, reason, message, generation, now));
    };
    let (is_measurable, reason, message) = match rehearsal_result(analyses, measured) {
        Rehearsal::Pending => {
            let question = wanted_rehearsal(config, Some(&*status));
            match (worked, &question) {
                (Some(_), _) => {}
                (None, Some(_)) => {
                    status.internal.rehearsed = None;
                    set(status, false, Reason::NotMeasurable, UNASKED_MESSAGE);
                }
                (None, None) => remove_rehearsal(status),
            }
            return RehearsalEffects { question, event: None };
        }
        Rehearsal::Works => (true, Reason::Measurable, "each query of spec.rollout.analysis has an answer".to_owned()),
        Rehearsal::Fails(cause) => (false, Reason::NotMeasurable, cause),
    };
    status.internal.rehearsed = Some(round);
    set(status, is_measurable, reason, &message);
    let event = (!is_measurable && worked != Some(false)).then(|| EventRecord::new(reason, message));
    RehearsalEffects { question: wanted_rehearsal(config, Some(&*status)), event }
}

/// Returns the condition, if it concerns the answers of this rehearsal.
fn rehearsal_condition<'a>(status: &'a VersionedConfigStatus, round: &str) -> Option<&'a Condition> {
    let condition = find_condition(&status.conditions, ConditionType::Measurable);
    condition.filter(|_| status.internal.rehearsed.as_deref() == Some(round))
}

/// Removes the result of any rehearsal.
fn remove_rehearsal(status: &mut VersionedConfigStatus) {
    status.internal.rehearsed = None;
    status.conditions.retain(|condition| condition.type_ != ConditionType::Measurable.as_str());
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::RolloutStage;
    use serde_json::json;

    use super::*;
    use crate::config::{StatusExtent, reduce_status};

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
        let round = rehearsal_question(&config.spec.rollout.analysis).round;
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
        let asked = set_measurable(&one, &mut status, None, &now);
        assert_eq!((asked.question.is_some(), asked.event), (true, None));
        assert_eq!(says(&status), said("False", "NotMeasurable"), "nobody has asked yet");
        let failing = answer(&one, Some("Secret metrics can't be read"));
        let failed = set_measurable(&one, &mut status, Some(&failing), &now);
        assert!(failed.question.is_some());
        assert_eq!(says(&status), said("False", "NotMeasurable"));
        let event = failed.event.unwrap();
        assert!(event.warning && event.explanation.message == "errors: Secret metrics can't be read");
        assert_eq!(set_measurable(&one, &mut status, Some(&failing), &now).event, None, "it is said once");
        // A rollout has other answers, and requests its own.
        status.rollout.stage = Some(RolloutStage::Moving);
        assert_eq!(set_measurable(&one, &mut status, None, &now), RehearsalEffects::default());
        assert_eq!(says(&status), said("False", "NotMeasurable"));
        status.rollout.stage = None;
        assert_eq!(set_measurable(&one, &mut status, Some(&answer(&one, None)), &now), RehearsalEffects::default());
        assert_eq!(says(&status), said("True", "Measurable"));
        assert_eq!(set_measurable(&one, &mut status, None, &now), RehearsalEffects::default(), "it is asked no more");
        assert_eq!(says(&status), said("True", "Measurable"));
        let other = config("rate(down{pod=~\"{{pods}}\"}[1m])");
        assert!(set_measurable(&other, &mut status, Some(&answer(&one, None)), &now).question.is_some());
        assert_eq!(says(&status), said("False", "NotMeasurable"), "of other queries");
        let none = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        set_measurable(&one, &mut status, Some(&answer(&one, None)), &now);
        assert_eq!(
            (set_measurable(&none, &mut status, None, &now), says(&status)),
            (RehearsalEffects::default(), None)
        );
    }

    #[test]
    fn a_status_without_texts_says_as_much() {
        let [now, later] = [0, 60].map(|second| Time(Timestamp::from_second(second).unwrap()));
        let one = config("rate(up{pod=~\"{{pods}}\"}[1m])");
        for error in [None, Some("Secret metrics can't be read")] {
            let mut decided = VersionedConfigStatus::default();
            let answer = answer(&one, error);
            set_measurable(&one, &mut decided, Some(&answer), &now);
            let stored = VersionedConfigStatus::default();
            let stored = reduce_status(StatusExtent::Plain, &stored, &decided, "a policy", &now);
            let mut next = stored.clone();
            next.conditions.retain(|condition| condition.type_ != ConditionType::StatusComplete.as_str());
            let RehearsalEffects { question, event } = set_measurable(&one, &mut next, None, &later);
            assert_eq!((question.is_some(), event), (error.is_some(), None));
            let written = reduce_status(StatusExtent::Plain, &stored, &next, "a policy", &later);
            assert_eq!(written, stored, "nothing is written again");
        }
    }
}
