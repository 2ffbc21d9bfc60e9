//! Whole rollouts that are judged by numbers with noise, by default steps and settings: how often a good version is
//! blamed, and how soon a bad one is found. The table of injector/README.md is printed by `cargo test -p nudge-core
//! --lib measured_simulation -- --nocapture`.
//!
//! Requests come at a fixed rate, and which of them fail is chance (a Poisson distribution of the failures of a
//! minute). The clock goes from one thing that happens to the next: a look that the rollout requests, a pod that has
//! taken the version, an answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Analysis, Answer, QueryAnswers, Reason, RolloutAnalysisSpec, RolloutAnalysisStatus};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::{TestRollout, failure, reason};
use crate::rollout::judgement::probability::{poisson_binomial_tail, poisson_tail};
use crate::rollout::{Effects, Millis};

/// The query looks back for a minute, so it is asked every minute.
const MINUTE: Millis = 60_000;
/// Of each kind.
const ROLLOUTS: u32 = 200;
/// A rollout that is held has ended by then: no disturbance lasts.
const LONGEST: Millis = 6 * 60 * MINUTE;
/// The level of the assertions: a correct judge breaks one of them with this probability at most, by the seed that is
/// chosen.
const LEVEL: f64 = 1e-3;

/// A service whose numbers are noisy.
#[derive(Clone, Copy)]
struct Service {
    pods: u32,
    /// Requests of a pod in a second.
    requests: f64,
    /// The share of them that fails anyway.
    failing: f64,
    max: f64,
    ratio: Option<f64>,
    /// In such a share of all minutes every pod fails this many times as often: something else is ill.
    disturbed: (f64, f64),
    /// The share that fails on pods with the new version.
    new: f64,
}

/// A service whose new version changes nothing.
const fn service(pods: u32, requests: f64, failing: f64, max: f64) -> Service {
    Service { pods, requests, failing, max, ratio: None, disturbed: (0.0, 1.0), new: failing }
}

impl Service {
    fn analysis(&self) -> Analysis {
        let query = "sum(rate(errors{pod=~\"{{pods}}\"}[1m])) / sum(rate(requests{pod=~\"{{pods}}\"}[1m]))";
        let (max, ratio) = (self.max.to_string(), self.ratio.map(|ratio| ratio.to_string()));
        let prometheus = json!({"address": "http://a", "query": query});
        serde_json::from_value(json!({"name": "errors", "max": max, "maxRatio": ratio, "prometheus": prometheus}))
            .unwrap()
    }

    /// Returns the requests of this number of pods in a minute.
    fn in_a_minute(&self, pods: usize) -> f64 {
        f64::from(u32::try_from(pods).unwrap()) * self.requests * 60.0
    }

    /// The share of the last minute's requests to these pods that failed.
    fn share(&self, pods: usize, failing: f64, random: &mut StdRng) -> String {
        let requests = self.in_a_minute(pods);
        (poisson(requests * failing, random) / requests).to_string()
    }

    /// The probability that the share of these pods is above `max` by chance alone in a minute.
    fn is_above(&self, pods: usize, failing: f64) -> f64 {
        let requests = self.in_a_minute(pods);
        let above = whole((requests * self.max).floor()) + 1;
        let (rate, times) = self.disturbed;
        let tail = |failing: f64| poisson_tail(requests * failing, above);
        (1.0 - rate) * tail(failing) + rate * tail(failing * times)
    }

    /// Returns an upper bound of the probability that a rollout with no change is blamed. All answers above `max` count
    /// as too high here, even if the other pods have them, too. The first step is blamed if two in a row are too high
    /// before two in a row are good; each of two other steps, the last one and the bake, if their first two answers
    /// are.
    fn blamed_by_chance(&self) -> f64 {
        let one = (1..=self.pods as usize).map(|pods| self.is_above(pods, self.failing)).fold(0.0, f64::max);
        (two_high_first(one) + 4.0 * one * one).min(1.0)
    }

    /// A lower bound of the probability that the first step, of one pod, finds the new version: an answer that is too
    /// high for all counts as good.
    fn found_at_first(&self) -> f64 {
        let others = self.is_above(self.pods as usize - 1, self.failing);
        two_high_first(self.is_above(1, self.new) * (1.0 - others))
    }
}

/// Returns the probability that two answers in a row are too high before two in a row are good. Each answer is too high
/// with the given probability.
fn two_high_first(high: f64) -> f64 {
    let good = 1.0 - high;
    high * (1.0 - good * good) / (1.0 - high * good)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of failures in a minute are small")]
fn whole(number: f64) -> u32 {
    number as u32
}

/// Returns a random number of events, of which `expected` occur on average (Poisson distribution).
fn poisson(expected: f64, random: &mut StdRng) -> f64 {
    // The sum of two is one, too; exp(-700) is nearly nothing.
    if expected > 300.0 {
        return poisson(expected / 2.0, random) + poisson(expected / 2.0, random);
    }
    let (limit, mut product, mut count) = ((-expected).exp(), random.random::<f64>(), 0.0);
    while product > limit {
        product *= random.random::<f64>();
        count += 1.0;
    }
    count
}

/// The most of all rollouts that end in a way that has this probability, but for [`LEVEL`].
fn at_most(probability: f64) -> u32 {
    let all = [probability; ROLLOUTS as usize];
    (0..ROLLOUTS).find(|count| poisson_binomial_tail(&all, count + 1) < LEVEL).unwrap_or(ROLLOUTS)
}

/// How a rollout ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Current,
    Blamed,
    /// The rollout did not end.
    Stuck,
}

/// One rollout.
struct Run {
    end: End,
    /// Whether it was held for a while because nobody could say.
    held: bool,
    /// The step that was out when it ended, and the most pods that had the version.
    step: u32,
    exposed: usize,
    took: Millis,
    /// Requests that failed on pods with the version.
    failed: f64,
}

/// The role `analysis` and its Prometheus.
struct Prometheus {
    service: Service,
    random: StdRng,
    round: String,
    due: Millis,
    answers: Vec<Answer>,
}

impl Prometheus {
    /// Begins a round, or answers the queries that are due.
    fn see(&mut self, question: &RolloutAnalysisSpec, now: Millis) -> RolloutAnalysisStatus {
        if self.round != question.round {
            (self.round, self.due) = (question.round.clone(), now + MINUTE);
            self.answers.clear();
        } else if now >= self.due {
            self.due = now + MINUTE;
            self.answer(question, now);
        }
        let queries = vec![QueryAnswers { name: "errors".to_owned(), answers: self.answers.clone() }];
        RolloutAnalysisStatus { round: self.round.clone(), queries }
    }

    fn answer(&mut self, question: &RolloutAnalysisSpec, now: Millis) {
        let Self { service, random, .. } = self;
        let (rate, times) = service.disturbed;
        let factor = if random.random::<f64>() < rate { times } else { 1.0 };
        let target = service.share(question.pods.len(), service.new * factor, random);
        let others = question.control.len();
        let control = (others > 0).then(|| service.share(others, service.failing * factor, random));
        let number = self.answers.last().map_or(1, |last| last.number + 1);
        let answer_time = Time(Timestamp::from_millisecond(now).unwrap());
        self.answers.push(Answer { number, answer_time, target: Some(target), control, error: None });
        let surplus = self.answers.len().saturating_sub(QueryAnswers::MAX_ANSWERS);
        self.answers.drain(..surplus);
    }
}

fn run(service: Service, seed: u64) -> Run {
    let mut rollout = TestRollout::new(&[("web", service.pods as usize)]);
    rollout.spec.analysis = vec![service.analysis()];
    rollout.rest("1");
    let random = StdRng::seed_from_u64(seed);
    let mut prometheus = Prometheus { service, random, round: String::new(), due: 0, answers: Vec::new() };
    let began = rollout.millis;
    let mut run = Run { end: End::Stuck, held: false, step: 0, exposed: 0, took: 0, failed: 0.0 };
    while run.took < LONGEST {
        let before = rollout.millis;
        let effects = rollout.rest("2");
        let next = happens(&mut rollout, &mut prometheus, &effects);
        run.held |= reason(&effects) == Some(Reason::AnalysisInconclusive);
        let exposed = rollout.assigned("2");
        run.exposed = run.exposed.max(exposed);
        run.took = before - began;
        if let Some((why, message)) = failure(&rollout) {
            assert_eq!(why, Reason::AnalysisFailed, "{message}");
            run.end = End::Blamed;
            return run;
        }
        run.step = rollout.status.rollout.step.max(run.step);
        if rollout.status.current_version.as_deref() == Some("2") {
            run.end = End::Current;
            return run;
        }
        rollout.millis = next.max(before + 1);
        #[allow(clippy::cast_precision_loss, reason = "milliseconds of hours")]
        let minutes = (rollout.millis - before) as f64 / MINUTE as f64;
        run.failed += service.in_a_minute(exposed) * service.new * minutes;
    }
    run
}

/// Simulates the events of this moment. Returns the time of the next event.
fn happens(rollout: &mut TestRollout, prometheus: &mut Prometheus, effects: &Effects) -> Millis {
    let now = rollout.millis;
    let runs: Vec<_> = rollout.pods.iter().map(|pod| pod.runs.clone()).collect();
    rollout.take();
    if rollout.pods.iter().zip(&runs).any(|(pod, runs)| pod.runs != *runs) {
        return now + 1000;
    }
    let Some(question) = &effects.question else { return effects.reconcile_at.map_or(now + 1000, |at| at.0) };
    let known = rollout.measured.take();
    let status = prometheus.see(question, now);
    let is_new = known.as_ref() != Some(&status);
    rollout.measured = Some(status);
    // A new answer is read soon. Between two answers the rollout checks for answers every few seconds; but the end of
    // the bake may come, too.
    if is_new {
        now + 1000
    } else {
        effects.reconcile_at.map_or(prometheus.due, |at| at.0.max(now + 20_000).min(prometheus.due))
    }
}

/// The outcomes of all rollouts of a kind.
struct Outcomes {
    runs: Vec<Run>,
}

impl Outcomes {
    fn of(service: Service) -> Self {
        Self { runs: (0..u64::from(ROLLOUTS)).map(|seed| run(service, seed)).collect() }
    }

    fn count(&self, is: impl Fn(&Run) -> bool) -> u32 {
        u32::try_from(self.runs.iter().filter(|run| is(run)).count()).unwrap()
    }

    fn median<T: Copy + PartialOrd>(&self, of: impl Fn(&Run) -> T) -> T {
        let mut all: Vec<T> = self.runs.iter().map(of).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all[all.len() / 2]
    }
}

#[test]
fn of_rollouts_with_no_change_few_are_blamed_and_all_others_end_well() {
    println!(
        "| pods | requests/s of each | fail | `max` | `maxRatio` | disturbed | current | false alarms (bound) | held a while | minutes |"
    );
    let outage = (0.05, 20.0);
    for service in [
        // Far from the limit, near it, and a service with so few requests that a pod's share is noise.
        service(8, 10.0, 0.001, 0.01),
        service(8, 10.0, 0.005, 0.01),
        service(8, 1.0, 0.005, 0.05),
        service(40, 10.0, 0.005, 0.01),
        service(3, 10.0, 0.005, 0.01),
        // Something else is ill in one of twenty minutes.
        Service { disturbed: outage, ..service(8, 10.0, 0.002, 0.01) },
        Service { disturbed: outage, ratio: Some(2.0), ..service(8, 10.0, 0.002, 0.01) },
        // `max` is hardly higher than the usual value: the documentation warns of such limits.
        service(8, 10.0, 0.008, 0.01),
    ] {
        let outcomes = Outcomes::of(service);
        let (current, blamed) =
            (outcomes.count(|run| run.end == End::Current), outcomes.count(|run| run.end == End::Blamed));
        let held = outcomes.count(|run| run.held);
        let bound = at_most(service.blamed_by_chance());
        println!(
            "| {} | {} | {}% | {} | {:?} | {:?} | {current} | {blamed} ({bound}) | {held} | {} |",
            service.pods,
            service.requests,
            service.failing * 100.0,
            service.max,
            service.ratio,
            service.disturbed,
            outcomes.median(|run| run.took) / MINUTE
        );
        assert_eq!(current + blamed, ROLLOUTS, "every rollout ends");
        assert!(blamed <= bound, "{blamed} of {ROLLOUTS} are blamed, and chance explains {bound}");
    }
}

#[test]
fn a_version_whose_numbers_rise_is_found_at_the_first_step() {
    println!(
        "| pods | requests/s of each | fail before, with the new version | found | at the first step | pods (most) | seconds (median) | failed requests |"
    );
    for service in [
        Service { new: 0.02, ..service(8, 10.0, 0.005, 0.01) },
        Service { new: 0.05, ..service(8, 10.0, 0.005, 0.01) },
        Service { new: 0.10, ..service(8, 1.0, 0.005, 0.05) },
        Service { new: 0.25, ..service(8, 1.0, 0.005, 0.05) },
        Service { new: 0.05, disturbed: (0.05, 20.0), ..service(8, 10.0, 0.002, 0.01) },
    ] {
        let outcomes = Outcomes::of(service);
        let found = outcomes.count(|run| run.end == End::Blamed);
        let first = outcomes.count(|run| run.end == End::Blamed && run.step <= 1);
        let most = outcomes.runs.iter().map(|run| run.exposed).max().unwrap();
        println!(
            "| {} | {} | {}%, {}% | {found} | {first} | {most} | {} | {:.0} |",
            service.pods,
            service.requests,
            service.failing * 100.0,
            service.new * 100.0,
            outcomes.median(|run| run.took) / 1000,
            outcomes.median(|run| run.failed)
        );
        let least = ROLLOUTS - at_most(1.0 - service.found_at_first());
        assert!(
            first >= least,
            "{first} of {ROLLOUTS} end at the first step, and at least {least} would but for bad luck"
        );
        assert_eq!(found, ROLLOUTS, "a later step finds what the first one has not");
    }
}
