//! Versions that are judged by numbers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    Analysis, AnalysisVerdict, Answer, OnFailure, QueryAnswers, Reason, RolloutAnalysisSpec, RolloutAnalysisStatus,
};
use serde_json::json;

use super::scene::{Nature, Scene};
use super::{failure, reason};
use crate::rollout::Effects;

/// The numbers of pods with the version, and of the other pods.
type Numbers = (Result<f64, &'static str>, f64);

/// A rollout whose numbers are requested in the way of the role `analysis`: every minute, and first a minute after a
/// round began.
struct Measured {
    scene: Scene,
    numbers: Numbers,
    /// Whether anybody asks.
    asks: bool,
    round: Option<(RolloutAnalysisSpec, i64)>,
    answers: Vec<Answer>,
}

impl Measured {
    fn new(pods: usize, numbers: Numbers) -> Self {
        let mut scene = Scene::new(&[("web", pods)], Nature::Good);
        let query = "sum(rate(errors{pod=~\"{{pods}}\"}[1m]))";
        let analysis = json!({"name": "errors", "max": "0.01", "prometheus": {"address": "http://a", "query": query}});
        scene.rollout.spec.analysis = vec![serde_json::from_value::<Analysis>(analysis).unwrap()];
        Self { scene, numbers, asks: true, round: None, answers: Vec::new() }
    }

    fn second(&mut self) -> Effects {
        let effects = self.scene.second();
        let Some(question) = effects.question.clone() else { return effects };
        let now = self.scene.seconds;
        if self.round.as_ref().is_none_or(|(known, _)| known.round != question.round) {
            self.answers.clear();
            self.round = Some((question.clone(), now));
        }
        let began = self.round.as_ref().map_or(now, |(_, began)| *began);
        if self.asks && now > began && (now - began) % 60 == 0 {
            let (target, control) = self.numbers;
            let control = (!question.control.is_empty()).then(|| control.to_string());
            self.answers.push(Answer {
                number: self.answers.last().map_or(1, |last| last.number + 1),
                answer_time: Time(Timestamp::from_second(now).unwrap()),
                target: target.ok().map(|number| number.to_string()),
                control,
                error: target.err().map(str::to_owned),
            });
            let surplus = self.answers.len().saturating_sub(QueryAnswers::MAX_ANSWERS);
            self.answers.drain(..surplus);
        }
        let queries = vec![QueryAnswers { name: "errors".to_owned(), answers: self.answers.clone() }];
        self.scene.rollout.measured = Some(RolloutAnalysisStatus { round: question.round, queries });
        effects
    }

    fn watch(&mut self, seconds: i64) -> Effects {
        let mut last = Effects::default();
        (0..seconds).for_each(|_| last = self.second());
        last
    }

    /// Until it is current. After how many seconds that was.
    fn passes(&mut self, within: i64) -> i64 {
        let began = self.scene.seconds;
        while !self.scene.is_current() {
            assert!(self.scene.seconds - began < within, "{:?}", self.scene.rollout.status);
            self.second();
        }
        self.scene.seconds - began
    }
}

#[test]
fn a_good_version_needs_an_answer_in_each_step() {
    let mut measured = Measured::new(8, (Ok(0.001), 0.001));
    // Two answers in the first step, then one in each of two more, and one in the bake.
    let seconds = measured.passes(420);
    assert!(seconds >= 300, "{seconds} s");
    let evidence = measured.scene.rollout.status.releases.last().unwrap().evidence.clone().unwrap();
    assert_eq!(evidence.analysis[0].verdict, AnalysisVerdict::Clear, "the release keeps the numbers");
    assert_eq!((evidence.analysis[0].target.as_deref(), failure(&measured.scene.rollout)), (Some("0.001"), None));
}

#[test]
fn numbers_that_rise_with_the_version_alone_end_it_at_the_first_step() {
    let mut measured = Measured::new(8, (Ok(0.25), 0.002));
    measured.watch(150);
    let (why, message) = failure(&measured.scene.rollout).unwrap();
    assert_eq!((why, measured.scene.exposed), (Reason::AnalysisFailed, 1));
    assert_eq!(message, "errors: pods on 2 have 0.25, those on 1 have 0.002 (max 0.01), 2 times in a row");
    let release = measured.scene.rollout.status.releases.last().unwrap();
    assert_eq!(release.evidence.as_ref().unwrap().analysis[0].verdict, AnalysisVerdict::Bad);
}

#[test]
fn numbers_that_rise_everywhere_hold_until_they_fall() {
    let mut measured = Measured::new(8, (Ok(0.25), 0.2));
    let effects = measured.watch(7_200);
    assert_eq!((reason(&effects), effects.continuation.is_blocked()), (Some(Reason::AnalysisInconclusive), true));
    assert_eq!((measured.scene.exposed, failure(&measured.scene.rollout)), (1, None));
    measured.numbers = (Ok(0.001), 0.001);
    measured.passes(420);
}

#[test]
fn a_server_that_is_away_holds_for_hours_and_it_continues_when_it_is_back() {
    // Answers with an error, and no answers at all.
    for asks in [true, false] {
        let mut measured = Measured::new(8, (Ok(0.001), 0.001));
        measured.watch(200);
        let (exposed, good) = (measured.scene.exposed, measured.numbers);
        (measured.numbers, measured.asks) = ((Err("no answer in 10 s"), 0.0), asks);
        let effects = measured.watch(3 * 3_600);
        assert_eq!(reason(&effects), Some(Reason::AnalysisInconclusive), "{asks}");
        assert_eq!((measured.scene.exposed, failure(&measured.scene.rollout)), (exposed, None), "{asks}");
        (measured.numbers, measured.asks) = (good, true);
        measured.passes(420);
    }
}

#[test]
fn the_last_pods_are_judged_without_others_by_twice_as_many_answers() {
    let mut measured = Measured::new(8, (Ok(0.001), 0.001));
    while measured.scene.rollout.assigned("2") < 8 {
        measured.second();
    }
    measured.numbers = (Ok(0.25), 0.0);
    measured.watch(230);
    assert_eq!(failure(&measured.scene.rollout), None);
    measured.watch(60);
    let (why, message) = failure(&measured.scene.rollout).unwrap();
    assert!(why == Reason::AnalysisFailed && message.contains("no pod runs 1 to compare with"), "{message}");
}

#[test]
fn a_new_leader_and_a_new_spec_begin_anew() {
    for hands_over in [true, false] {
        let mut measured = Measured::new(8, (Ok(0.25), 0.0));
        measured.watch(70);
        let round = measured.round.clone().unwrap().0.round;
        if hands_over {
            measured.scene.hand_over();
        } else {
            measured.scene.rollout.generation += 1;
        }
        measured.watch(20);
        assert_ne!(measured.round.clone().unwrap().0.round, round);
        measured.watch(60);
        assert_eq!(failure(&measured.scene.rollout), None, "one answer of the round before does not count");
        measured.watch(120);
        assert!(failure(&measured.scene.rollout).is_some());
    }
}

#[test]
fn what_can_not_wait_is_not_asked_about() {
    let mut measured = Measured::new(8, (Err("away"), 0.0));
    measured.watch(100);
    measured.scene.rollout.override_reason = Some("outage");
    measured.passes(190);
    let mut measured = Measured::new(8, (Err("away"), 0.0));
    measured.watch(200);
    measured.scene.requested = "1";
    measured.watch(3);
    assert_eq!(measured.scene.rollout.assigned("2"), 0, "the way back waits for no numbers");
}

#[test]
fn a_failure_can_hold_in_place_of_going_back() {
    let mut measured = Measured::new(8, (Ok(0.25), 0.0));
    measured.scene.rollout.spec.on_failure = OnFailure::Hold;
    let effects = measured.watch(200);
    assert_eq!((reason(&effects), measured.scene.rollout.assigned("2")), (Some(Reason::Failed), 1));
    assert_eq!(effects.question, None, "nothing is asked any more");
}

#[test]
fn the_others_are_of_the_same_workloads_where_there_are_any() {
    let mut measured = Measured::new(8, (Ok(0.0), 0.0));
    measured.scene = Scene::new(&[("web", 4), ("api", 4)], Nature::Good);
    measured.scene.rollout.spec.analysis = Measured::new(1, (Ok(0.0), 0.0)).scene.rollout.spec.analysis;
    measured.watch(60);
    let question = measured.round.clone().unwrap().0;
    let of = question.pods[0].split('-').next().unwrap();
    assert_eq!((question.pods.len(), question.control.len(), question.target_version.as_deref()), (1, 3, Some("2")));
    assert!(question.control.iter().all(|pod| pod.starts_with(of)), "{question:?}");
    // One of each: the others are better than none.
    let mut measured = Measured::new(8, (Ok(0.0), 0.0));
    measured.scene = Scene::new(&[("web", 1), ("api", 1), ("db", 1)], Nature::Good);
    measured.scene.rollout.spec.analysis = Measured::new(1, (Ok(0.0), 0.0)).scene.rollout.spec.analysis;
    measured.watch(60);
    let question = measured.round.unwrap().0;
    assert_eq!((question.pods.len(), question.control.len()), (1, 2));
}
