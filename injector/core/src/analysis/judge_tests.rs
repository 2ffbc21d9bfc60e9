//! Answers in a row, and how often a good version is blamed by chance.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Analysis, AnalysisVerdict, Answer, QueryAnswers, RolloutAnalysisStatus};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::json;

use super::judge::{RoundJudgement, RoundMemory, RoundStart, RoundVerdict, VersionNames, judge_round};

const NAMES: VersionNames<'static> = VersionNames { target: "1.0.2", current: "1.0.1" };

/// Requested every minute.
fn analysis(max: Option<&str>, ratio: Option<&str>) -> Analysis {
    let query = "sum(rate(errors{pod=~\"{{pods}}\"}[1m])) / sum(rate(requests{pod=~\"{{pods}}\"}[1m]))";
    let prometheus = json!({"address": "http://a", "query": query});
    serde_json::from_value(json!({"name": "errors", "prometheus": prometheus, "max": max, "maxRatio": ratio})).unwrap()
}

/// The answers so far, and when each is seen.
struct Asked {
    analysis: Analysis,
    memory: RoundMemory,
    answers: Vec<Answer>,
    first: bool,
    now: i64,
}

impl Asked {
    fn new(analysis: Analysis) -> Self {
        let mut memory = RoundMemory::default();
        memory.round(RoundStart { at: 0, generation: 1 }, || "a".to_owned());
        Self { analysis, memory, answers: Vec::new(), first: false, now: 0 }
    }

    fn judged(&mut self) -> RoundJudgement {
        let queries = vec![QueryAnswers { name: "errors".to_owned(), answers: self.answers.clone() }];
        let known = RolloutAnalysisStatus { round: "a".to_owned(), queries };
        judge_round(std::slice::from_ref(&self.analysis), Some(&known), &mut self.memory, NAMES, self.first, self.now)
    }

    /// A minute later there is one more answer.
    fn answer(&mut self, target: Result<f64, &str>, control: Option<f64>) -> RoundVerdict {
        self.now += 60_000;
        self.answers.push(Answer {
            number: u64::try_from(self.answers.len()).unwrap() + 1,
            answer_time: Time(Timestamp::UNIX_EPOCH),
            target: target.ok().map(|number| number.to_string()),
            control: control.map(|number| number.to_string()),
            error: target.err().map(str::to_owned),
        });
        self.judged().verdict
    }
}

fn is_pending(verdict: &RoundVerdict) -> bool {
    matches!(verdict, RoundVerdict::Pending(_))
}

fn is_inconclusive(verdict: &RoundVerdict) -> bool {
    matches!(verdict, RoundVerdict::Inconclusive(_))
}

#[test]
fn a_version_is_bad_after_two_answers_in_a_row() {
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    assert!(is_pending(&asked.answer(Ok(0.25), Some(0.002))));
    let said = "errors: pods on 1.0.2 have 0.25, those on 1.0.1 have 0.002 (max 0.01), 2 times in a row";
    assert_eq!(asked.answer(Ok(0.25), Some(0.002)), RoundVerdict::Bad(said.to_owned()));
    let numbers = &asked.judged().numbers[0];
    assert_eq!((numbers.verdict, numbers.target.as_deref()), (AnalysisVerdict::Bad, Some("0.25")));
    // A good one between them ends the row.
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    assert!(is_pending(&asked.answer(Ok(0.25), Some(0.0))));
    assert_eq!(asked.answer(Ok(0.001), Some(0.0)), RoundVerdict::Clear);
    assert!(is_pending(&asked.answer(Ok(0.25), Some(0.0))));
}

#[test]
fn the_first_step_needs_as_many_good_answers() {
    let mut asked = Asked { first: true, ..Asked::new(analysis(Some("0.01"), None)) };
    assert!(is_pending(&asked.answer(Ok(0.0), Some(0.0))));
    assert_eq!(asked.answer(Ok(0.0), Some(0.0)), RoundVerdict::Clear);
}

#[test]
fn what_rises_everywhere_holds_and_blames_nobody() {
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    for _ in 0..50 {
        assert!(is_inconclusive(&asked.answer(Ok(0.25), Some(0.2))));
    }
    assert_eq!(asked.answer(Ok(0.0), Some(0.0)), RoundVerdict::Clear, "it continues when that is over");
    // Values that begin and end together with the version, on this side alone.
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    assert!(is_pending(&asked.answer(Ok(0.25), Some(0.01))));
    assert!(is_inconclusive(&asked.answer(Ok(0.25), Some(0.2))));
    assert!(is_pending(&asked.answer(Ok(0.25), Some(0.01))));
}

#[test]
fn another_cause_is_named_only_where_the_others_break_the_limit_too() {
    // Each case has the limits, the numbers of the pods with the version, and the numbers of the other pods.
    let other = "the other pods are bad too, so the version is not the cause";
    for (max, ratio, target, control, another) in [
        (Some("0.01"), None, 0.25, 0.2, true),
        (Some("0.01"), Some("2"), 0.25, 0.2, true),
        (Some("0.01"), Some("2"), 0.011, 0.006, false),
        (Some("0.01"), Some("2"), 0.011, 0.01, false),
    ] {
        let verdict = Asked::new(analysis(max, ratio)).answer(Ok(target), Some(control));
        let RoundVerdict::Inconclusive(said) = &verdict else { panic!("{verdict:?}") };
        assert_eq!(said.contains(other), another, "{said}");
    }
}

#[test]
fn what_can_not_be_measured_holds_and_blames_nobody() {
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    let verdict = asked.judged().verdict;
    assert!(is_pending(&verdict), "{verdict:?}");
    asked.now += 90_000;
    assert!(is_inconclusive(&asked.judged().verdict), "nobody asks");
    for _ in 0..50 {
        assert!(is_inconclusive(&asked.answer(Err("no answer in 10 s"), None)));
    }
    assert_eq!(asked.answer(Ok(0.0), Some(0.0)), RoundVerdict::Clear);
    asked.now += 180_000;
    assert_eq!(asked.judged().verdict, RoundVerdict::Clear);
    asked.now += 31_000;
    assert!(is_inconclusive(&asked.judged().verdict), "what was good is too old");
    // A value that is too high stays so while nothing is measured.
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    asked.answer(Ok(0.25), Some(0.0));
    assert!(is_inconclusive(&asked.answer(Err("no answer"), None)));
    assert!(matches!(asked.answer(Ok(0.25), Some(0.0)), RoundVerdict::Bad(_)));
}

#[test]
fn without_others_twice_as_many_are_needed() {
    let mut asked = Asked::new(analysis(Some("0.01"), Some("2")));
    for _ in 0..3 {
        assert!(is_pending(&asked.answer(Ok(0.25), None)));
    }
    let said =
        "errors: pods on 1.0.2 have 0.25, no pod runs 1.0.1 to compare with (max 0.01, maxRatio 2), 4 times in a row";
    assert_eq!(asked.answer(Ok(0.25), None), RoundVerdict::Bad(said.to_owned()));
    // A ratio alone has nothing to say then.
    let mut asked = Asked::new(analysis(None, Some("2")));
    assert_eq!(asked.answer(Ok(0.25), None), RoundVerdict::Clear);
}

#[test]
fn answers_of_another_round_do_not_count() {
    let mut asked = Asked::new(analysis(Some("0.01"), None));
    asked.answer(Ok(0.25), Some(0.0));
    asked.answer(Ok(0.25), Some(0.0));
    assert_eq!(asked.memory.round(RoundStart { at: 0, generation: 1 }, || unreachable!()), "a");
    asked.memory.round(RoundStart { at: 121_000, generation: 1 }, || "b".to_owned());
    assert!(is_pending(&asked.judged().verdict), "they are of the step before");
}

#[test]
fn the_worst_of_several_counts() {
    let (mut memory, good, ill) = (RoundMemory::default(), analysis(Some("1"), None), analysis(Some("0.01"), None));
    let ill = Analysis { name: "ill".to_owned(), failures: 1, ..ill };
    memory.round(RoundStart { at: 0, generation: 1 }, || "a".to_owned());
    let answer = |name: &str| QueryAnswers {
        name: name.to_owned(),
        answers: vec![Answer {
            number: 1,
            answer_time: Time(Timestamp::UNIX_EPOCH),
            target: Some("0.25".to_owned()),
            control: Some("0".to_owned()),
            error: None,
        }],
    };
    let known = RolloutAnalysisStatus { round: "a".to_owned(), queries: vec![answer("errors"), answer("ill")] };
    let judged = judge_round(&[good.clone(), ill], Some(&known), &mut memory, NAMES, false, 60_000);
    assert!(matches!(&judged.verdict, RoundVerdict::Bad(said) if said.starts_with("ill: ")), "{judged:?}");
    assert_eq!(judged.numbers.iter().map(|one| one.verdict).collect::<Vec<_>>().len(), 2);
    let other = Analysis { name: "other".to_owned(), ..good.clone() };
    let judged = judge_round(&[good, other], Some(&known), &mut memory, NAMES, false, 60_000);
    assert!(is_pending(&judged.verdict), "one of them has no answer");
}

proptest! {
    /// Whatever comes, a version is not blamed while the others break the limit too, or while nothing is measured.
    #[test]
    fn nobody_is_blamed_without_a_good_control(answers in proptest::collection::vec(prop_oneof![
        Just(None), (0.0..1.0_f64).prop_map(Some)], 1..40), max in 0.0..0.5_f64)
    {
        let mut asked = Asked::new(analysis(Some(&max.to_string()), None));
        for answer in answers {
            let verdict = match answer {
                Some(number) => asked.answer(Ok(number), Some(max + 0.001)),
                None => asked.answer(Err("away"), None),
            };
            prop_assert!(!matches!(verdict, RoundVerdict::Bad(_)));
        }
    }

    /// A version that is too high, while its control is good, is found after a fixed number of answers, regardless of
    /// failed measurements between them.
    #[test]
    fn who_is_too_high_is_found(gaps in proptest::collection::vec(0_usize..4, 1..4), failures in 1_u32..4) {
        let mut asked = Asked::new(Analysis { failures, ..analysis(Some("0.1"), None) });
        let mut high = 0;
        for gap in gaps {
            for _ in 0..gap {
                asked.answer(Err("away"), None);
            }
            high += 1;
            let bad = matches!(asked.answer(Ok(0.2), Some(0.1)), RoundVerdict::Bad(_));
            prop_assert_eq!(bad, high >= failures);
            if bad {
                break;
            }
        }
    }
}

/// Returns a random number of events, of which `expected` occur on average (Poisson distribution).
fn poisson(expected: f64, random: &mut StdRng) -> f64 {
    let (limit, mut product, mut count) = ((-expected).exp(), random.random::<f64>(), 0.0);
    while product > limit {
        product *= random.random::<f64>();
        count += 1.0;
    }
    count
}

/// Simulates rollouts of 8 pods in four steps and a bake. Returns the number of rollouts that are blamed, and the
/// number of rollouts that are held at some time. Each pod has a number of requests per minute; the failing share is
/// given for pods with the version, and for the other pods.
fn simulated(rollouts: u32, analysis: &Analysis, requests: f64, (target, control): (f64, f64)) -> (u32, u32, u32) {
    let mut random = StdRng::seed_from_u64(7);
    let (mut blamed, mut held, mut first) = (0, 0, 0);
    for _ in 0..rollouts {
        let mut holds = false;
        let is_bad = [1.0, 2.0, 4.0, 8.0].into_iter().enumerate().find_map(|(step, pods)| {
            let mut asked = Asked { first: step == 0, ..Asked::new(analysis.clone()) };
            for _ in 0..200 {
                let mut share = |pods: f64, failing: f64| {
                    (pods > 0.0).then(|| poisson(pods * requests * failing, &mut random) / (pods * requests))
                };
                let (with, without) = (share(pods, target).unwrap(), share(8.0 - pods, control));
                match asked.answer(Ok(with), without) {
                    RoundVerdict::Clear => return None,
                    RoundVerdict::Bad(_) => return Some(step),
                    RoundVerdict::Inconclusive(_) => holds = true,
                    RoundVerdict::Pending(_) => {}
                }
                let surplus = asked.answers.len().saturating_sub(QueryAnswers::MAX_ANSWERS);
                asked.answers.drain(..surplus);
            }
            None
        });
        blamed += u32::from(is_bad.is_some());
        first += u32::from(is_bad == Some(0));
        held += u32::from(holds);
    }
    (blamed, held, first)
}

#[test]
fn of_rollouts_without_a_change_few_are_blamed() {
    // Requests of a pod and minute, the share that fails, max and maxRatio: a busy service, a slow one, one near its
    // limit, and a ratio.
    for (requests, failing, max, ratio) in [
        (600.0, 0.001, Some("0.01"), None),
        (600.0, 0.005, Some("0.01"), None),
        (60.0, 0.002, Some("0.02"), None),
        (600.0, 0.005, Some("0.01"), Some("2")),
        (600.0, 0.02, None, Some("2")),
    ] {
        let analysis = analysis(max, ratio);
        let (blamed, held, _) = simulated(2000, &analysis, requests, (failing, failing));
        println!(
            "{requests} requests a minute, {failing} fail, max {max:?}, maxRatio {ratio:?}: of 2000 {blamed} blamed, {held} held for a while"
        );
        assert!(blamed <= 10, "{blamed} of 2000, at most 0.5%");
    }
}

#[test]
fn of_rollouts_of_a_bad_version_most_end_at_the_first_step() {
    for (requests, target, max, ratio) in
        [(600.0, 0.05, Some("0.01"), None), (60.0, 0.10, Some("0.02"), None), (600.0, 0.03, Some("0.01"), Some("2"))]
    {
        let (blamed, _, first) = simulated(2000, &analysis(max, ratio), requests, (target, 0.002));
        println!(
            "{requests} requests a minute, {target} fail, max {max:?}, maxRatio {ratio:?}: of 2000 {blamed} found, {first} at the first step"
        );
        assert!(first >= 1980, "{first} of 2000");
    }
}
