//! The analysis of a version on trial: the question is written, and the answers are read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::{RolloutAnalysisSpec, RolloutAnalysisStatus, RolloutStage, VersionedConfig};
use nudge_cluster::call::CallError;
use nudge_core::analysis::is_rehearsal;
use nudge_core::config::wanted_rehearsal;
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;

use crate::controller::Controller;
use crate::memory::AnalysisMemory;

/// The minimum time between two reads of answers.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum time between two writes of the same round, and after a write that failed.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// Returns whether a version is on trial that is judged by numbers.
fn is_measured(config: &VersionedConfig) -> bool {
    let stage = config.status.as_ref().and_then(|status| status.rollout.stage);
    !config.spec.rollout.analysis.is_empty() && matches!(stage, Some(RolloutStage::Moving | RolloutStage::Baking))
}

impl Controller {
    /// Returns the answers so far, or those of a rehearsal. If they can't be read, the last ones count: a rollout must
    /// not wait, and its way back least of all.
    pub(crate) async fn answers(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<RolloutAnalysisStatus> {
        if !is_measured(config) {
            let question = wanted_rehearsal(config, config.status.as_ref())?;
            return self.rehearsal_answers(key, &question).await;
        }
        let last = self.analysis_memory(key).unwrap_or_default();
        if last.read_at.is_some_and(|at| at.elapsed() < MIN_READ_INTERVAL) {
            return last.answers();
        }
        let (read_at, before) = (Some(Instant::now()), last.answers());
        let object = self.read_analysis(key, last.object.clone()).await;
        let memory = AnalysisMemory { object, read_at, ..last };
        let answers = memory.answers();
        let (numbers, errors) = count_new_answers(before.as_ref(), answers.as_ref());
        self.metrics.count_answers(numbers, errors);
        self.keep_analysis_memory(key, memory);
        answers
    }

    /// Writes the question, or deletes it if there is none. Returns when to retry a write that had to wait or failed.
    /// Meanwhile a version without measurements is held, and nothing else waits.
    pub(crate) async fn write_question(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: Option<RolloutAnalysisSpec>,
    ) -> Option<Duration> {
        let last = self.analysis_memory(key);
        let failed_at = last.as_ref().and_then(|last| last.failed_at);
        let wait =
            failed_at.map(|time| MIN_WRITE_INTERVAL.saturating_sub(time.elapsed())).filter(|wait| !wait.is_zero());
        let Some(question) = question else {
            // While pods prove the version again, the object stays as it is.
            let may_exist =
                last.as_ref().map_or(!config.spec.rollout.analysis.is_empty(), |last| last.object.is_some());
            if !may_exist || is_measured(config) {
                return None;
            }
            if wait.is_some() {
                return wait;
            }
            return match self.delete_analysis(key).await {
                Ok(()) => {
                    self.keep_analysis_memory(key, AnalysisMemory::default());
                    None
                }
                Err(error) => Some(self.note_unwritten(key, last.unwrap_or_default(), &error)),
            };
        };
        if is_rehearsal(&question.round) {
            return self.rehearse(key, config, &question).await;
        }
        let last = last.unwrap_or_default();
        let before = last.object.as_ref().map(|object| &object.spec);
        if before == Some(&question) {
            return None;
        }
        if wait.is_some() {
            return wait;
        }
        let same_round = before.is_some_and(|before| before.round == question.round);
        let early =
            last.written_at.map(|time| MIN_WRITE_INTERVAL.saturating_sub(time.elapsed())).filter(|_| same_round);
        if let Some(early) = early.filter(|early| !early.is_zero()) {
            return Some(early);
        }
        match self.write_analysis(key, config, &question).await {
            Ok(object) => {
                let now = Some(Instant::now());
                let failed_at = now.filter(|_| object.is_none());
                let object = object.map(Arc::new);
                let memory = AnalysisMemory { object, read_at: now, written_at: now, failed_at, rehearsal: None };
                self.keep_analysis_memory(key, memory);
                failed_at.map(|_| MIN_WRITE_INTERVAL)
            }
            Err(error) => Some(self.note_unwritten(key, last, &error)),
        }
    }

    /// Remembers that the question could not be written. Returns when to try again.
    fn note_unwritten(&self, key: &ConfigKey, last: AnalysisMemory, error: &CallError) -> Duration {
        tracing::warn!(config = %key, error = chain(error), "question of an analysis not written; retrying");
        self.keep_analysis_memory(key, AnalysisMemory { failed_at: Some(Instant::now()), ..last });
        MIN_WRITE_INTERVAL
    }
}

/// Counts the answers that are new, with a number and with an error.
fn count_new_answers(before: Option<&RolloutAnalysisStatus>, after: Option<&RolloutAnalysisStatus>) -> (u64, u64) {
    let Some(after) = after.filter(|after| !is_rehearsal(&after.round)) else { return (0, 0) };
    let before = before.filter(|before| before.round == after.round);
    let (mut numbers, mut errors) = (0, 0);
    for query in &after.queries {
        let query_before = before.and_then(|before| before.queries.iter().find(|other| other.name == query.name));
        let last_number = query_before.and_then(|before| before.answers.last()).map_or(0, |last| last.number);
        for answer in query.answers.iter().filter(|answer| answer.number > last_number) {
            *(if answer.error.is_some() { &mut errors } else { &mut numbers }) += 1;
        }
    }
    (numbers, errors)
}

#[cfg(test)]
mod tests {
    use nudge_cluster::index::Index;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api_server::{FakeApiServer, controller_over, status};

    fn config(stage: &str) -> Value {
        let version = |name: &str| {
            let part = json!({"kind": "Secret", "name": format!("shop-{name}"), "uid": name, "digest": "seal:00"});
            json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1})
        };
        let failure = (stage == "RollingBack")
            .then(|| json!({"version": "3", "generation": 1, "reason": "PodNotReady", "message": "m"}));
        let prometheus = json!({"address": "http://prometheus:9090", "query": "errors{pod=~\"{{pods}}\"}"});
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "ns", "uid": "uid", "resourceVersion": "1", "generation": 1},
            "spec": {"version": "3", "rollout": {"analysis": [{"name": "errors", "prometheus": prometheus, "max": "1"}]}},
            "status": {
                "currentVersion": "2", "targetVersion": "3", "versions": [version("2"), version("3")],
                "rollout": {"stage": stage, "step": 1, "failure": failure}, "internal": {"revision": 5},
            },
        })
    }

    /// Returns a controller whose requests about analyses are taken, or fail, and how many of them there were.
    fn controller(config: Value, takes: bool) -> (Arc<Controller>, Arc<Mutex<usize>>) {
        let requests: Arc<Mutex<usize>> = Arc::default();
        let count = Arc::clone(&requests);
        let client = Arc::<FakeApiServer>::default().client(move |method, path, mut object| {
            if !path.contains("/rolloutanalyses/") {
                return if method == "PUT" { (200, object) } else { (404, status(404)) };
            }
            *count.lock() += 1;
            object["status"] = json!({"round": object["spec"]["round"], "queries": []});
            if takes { (200, object) } else { (500, status(500)) }
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        index.put_config(serde_json::from_value(config).unwrap());
        (Arc::new(controller_over(client, index)), requests)
    }

    #[tokio::test]
    async fn nothing_but_the_version_waits_for_what_cannot_be_measured() {
        let key = ConfigKey::parse("ns", "shop").unwrap();
        for stage in ["Moving", "Baking", "Restarting", "RollingBack"] {
            let (controller, failed) = controller(config(stage), false);
            for _ in 0..5 {
                Box::pin(controller.reconcile(&key)).await.unwrap_or_else(|error| panic!("{stage}: {error}"));
            }
            // The write is not tried again at once. If the rollout ends meanwhile, the analyses are rehearsed.
            assert!((1..=2).contains(&*failed.lock()), "{stage}");
        }
    }

    #[tokio::test]
    async fn a_rehearsal_that_nobody_takes_costs_one_request_and_keeps_no_rollout_waiting() {
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut config = config("Moving");
        config["status"]["rollout"] = json!({});
        let (controller, failed) = controller(config.clone(), false);
        let config: VersionedConfig = serde_json::from_value(config).unwrap();
        let question = wanted_rehearsal(&config, config.status.as_ref()).unwrap();
        for _ in 0..3 {
            assert_eq!(controller.answers(&key, &config).await, None);
            let again = controller.write_question(&key, &config, Some(question.clone())).await;
            assert_eq!(again, None, "the config is reconciled no sooner");
        }
        assert_eq!(*failed.lock(), 1);
        // Other analyses are tried at once, and so is a rollout.
        let other = RolloutAnalysisSpec { round: "rehearsal-000000000000".to_owned(), ..question.clone() };
        controller.write_question(&key, &config, Some(other)).await;
        assert_eq!(*failed.lock(), 2);
        let round = RolloutAnalysisSpec { target_version: Some("3".to_owned()), round: "3-1".to_owned(), ..question };
        assert_eq!(controller.write_question(&key, &config, Some(round)).await, Some(MIN_WRITE_INTERVAL));
        assert_eq!(*failed.lock(), 3);
    }

    #[tokio::test]
    async fn a_rehearsal_is_written_once_and_its_answers_are_read_later() {
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let mut config = config("Moving");
        config["status"]["rollout"] = json!({});
        let (controller, asked) = controller(config.clone(), true);
        let config: VersionedConfig = serde_json::from_value(config).unwrap();
        let question = wanted_rehearsal(&config, config.status.as_ref()).unwrap();
        for _ in 0..3 {
            assert_eq!(
                controller.write_question(&key, &config, Some(question.clone())).await,
                Some(MIN_WRITE_INTERVAL)
            );
            let known = controller.answers(&key, &config).await.unwrap();
            assert_eq!(known.round, question.round, "what was answered before another leader came counts");
        }
        assert_eq!(*asked.lock(), 1);
        // A rollout's question takes its place at once, and afterwards it does not rest.
        let round =
            RolloutAnalysisSpec { target_version: Some("3".to_owned()), round: "3-1".to_owned(), ..question.clone() };
        assert_eq!(controller.write_question(&key, &config, Some(round)).await, None);
        assert_eq!(controller.write_question(&key, &config, Some(question)).await, Some(MIN_WRITE_INTERVAL));
        assert_eq!(*asked.lock(), 3);
    }

    #[test]
    fn every_answer_is_counted_once() {
        let known = |round: &str, numbers: &[u64]| -> RolloutAnalysisStatus {
            let answer = |number: &u64| {
                let error = number.is_multiple_of(2).then_some("away");
                json!({"number": number, "answerTime": "2026-01-01T00:00:00Z", "error": error})
            };
            let answers: Vec<_> = numbers.iter().map(answer).collect();
            serde_json::from_value(json!({"round": round, "queries": [{"name": "errors", "answers": answers}]}))
                .unwrap()
        };
        let (first, more) = (known("a", &[1, 2]), known("a", &[2, 3, 4, 5]));
        assert_eq!(count_new_answers(None, Some(&first)), (1, 1));
        assert_eq!(count_new_answers(Some(&first), Some(&first)), (0, 0));
        assert_eq!(count_new_answers(Some(&first), Some(&more)), (2, 1));
        assert_eq!(count_new_answers(Some(&more), Some(&known("b", &[1]))), (1, 0), "another round counts from one");
        assert_eq!(count_new_answers(Some(&more), None), (0, 0));
    }
}
