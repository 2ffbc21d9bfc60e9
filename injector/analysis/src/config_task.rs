//! The task of one config that is being moved, or whose analyses are rehearsed. The task requests numbers while the
//! controller wants them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{Analysis, RolloutAnalysis, RolloutAnalysisSpec, RolloutAnalysisStatus, RolloutStage, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::analysis::{is_rehearsal, rehearsal_question};
use nudge_protocol::error_chain::chain;
use serde_json::json;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until, timeout};

use crate::analyses::Analyses;
use crate::measurement::{Numbers, internal_error_message, measure};
use crate::round_answers::RoundAnswers;

/// The time until the next read of a config that has no question or could not be read.
const RECHECK_INTERVAL: Duration = Duration::from_secs(15);

pub(crate) struct ConfigTask {
    pub(crate) analyses: Arc<Analyses>,
    pub(crate) namespace: String,
    pub(crate) receiver: Receiver<Arc<RolloutAnalysis>>,
}

impl ConfigTask {
    /// Requests numbers until dropped.
    pub(crate) async fn run(mut self) {
        let mut round: Option<RoundAnswers> = None;
        let mut next = Instant::now();
        loop {
            let object = Arc::clone(&self.receiver.borrow_and_update());
            let now = Instant::now();
            if round.as_ref().is_none_or(|current| !current.is_of(&object.spec.round)) {
                next = now;
            }
            let same_round = round.take().filter(|round| round.is_of(&object.spec.round));
            let new = || RoundAnswers::new(&object.spec.round, object.status.as_ref(), now);
            let current = round.insert(same_round.unwrap_or_else(new));
            if next <= now {
                let mut rounds = self.receiver.clone();
                let result = tokio::select! {
                    result = self.ask_due(&object, current) => result,
                    // Answers of the last round no longer count.
                    other = rounds.wait_for(|other| other.spec.round != object.spec.round) => match other {
                        Ok(_) => continue,
                        Err(_) => return,
                    },
                };
                next = match result {
                    Ok(due) => due,
                    Err(error) => {
                        let (namespace, config) = (&self.namespace, object.name_any());
                        tracing::warn!(namespace, config, error = chain(&error), "analysis interrupted; retrying");
                        next_check()
                    }
                };
            }
            tokio::select! {
                changed = self.receiver.changed() => if changed.is_err() {
                    return;
                },
                () = sleep_until(next) => {}
            }
        }
    }

    /// Answers all queries with a failure of Nudge itself. Then waits for the given time, or until another round
    /// begins.
    pub(crate) async fn report_panic(mut self, wait: Duration) {
        let (object, now) = (Arc::clone(&self.receiver.borrow_and_update()), Instant::now());
        if let Err(error) = self.write_failure(&object, now).await {
            let (namespace, config) = (&self.namespace, object.name_any());
            tracing::warn!(namespace, config, error = chain(&error), "failure of Nudge not written");
        }
        let changed = self.receiver.wait_for(|other| other.spec.round != object.spec.round);
        let _ = timeout(wait.saturating_sub(now.elapsed()), changed).await;
    }

    async fn write_failure(&self, object: &RolloutAnalysis, now: Instant) -> Result<(), CallError> {
        let name = object.name_any();
        let Some(analyses) = self.analyses_to_ask(object, &name).await? else { return Ok(()) };
        let mut round = RoundAnswers::new(&object.spec.round, object.status.as_ref(), now);
        for analysis in &analyses {
            round.note(analysis, now, Time(Timestamp::now()), Err(internal_error_message()));
        }
        self.write(&name, &round.status(&analyses)).await
    }

    /// Sends the queries that are due. Returns when the next query is due.
    async fn ask_due(&self, object: &RolloutAnalysis, round: &mut RoundAnswers) -> Result<Instant, CallError> {
        let name = object.name_any();
        let Some(analyses) = self.analyses_to_ask(object, &name).await? else { return Ok(next_check()) };
        let now = Instant::now();
        let is_due = |analysis: &&Analysis| round.due(analysis).is_some_and(|due| due <= now);
        let due: Vec<&Analysis> = analyses.iter().filter(is_due).collect();
        let measurements = due.iter().map(async |analysis| {
            let numbers = measure(&self.analyses, &self.namespace, analysis, &object.spec).await;
            (*analysis, numbers, Time(Timestamp::now()))
        });
        for (analysis, numbers, asked_at) in join_all(measurements).await {
            let (namespace, query) = (&self.namespace, &analysis.name);
            match &numbers {
                Ok(Numbers { target, control }) => {
                    tracing::debug!(namespace, config = name, query, target, control, "measured");
                }
                Err(error) => tracing::info!(namespace, config = name, query, error, "not measured"),
            }
            round.note(analysis, now, asked_at, numbers);
        }
        if !due.is_empty() {
            self.write(&name, &round.status(&analyses)).await?;
        }
        let next = analyses.iter().filter_map(|analysis| round.due(analysis)).min();
        Ok(next.unwrap_or_else(next_check))
    }

    /// Returns the analyses to query; `None` if the question no longer fits the config, because the config is not in
    /// this move or has another spec.
    async fn analyses_to_ask(&self, object: &RolloutAnalysis, name: &str) -> Result<Option<Vec<Analysis>>, CallError> {
        let api = Api::<VersionedConfig>::namespaced(self.analyses.client.clone(), &self.namespace);
        let config = call(|| format!("reading VersionedConfig {}/{name}", self.namespace), api.get_opt(name)).await?;
        let question = &object.spec;
        Ok(config.filter(|config| is_current(config, question)).map(|config| config.spec.rollout.analysis))
    }

    async fn write(&self, name: &str, status: &RolloutAnalysisStatus) -> Result<(), CallError> {
        let api = Api::<RolloutAnalysis>::namespaced(self.analyses.client.clone(), &self.namespace);
        let what = || format!("writing the status of RolloutAnalysis {}/{name}", self.namespace);
        let patch = Patch::Merge(json!({"status": status}));
        match call(what, api.patch_status(name, &PatchParams::default(), &patch)).await {
            // The object is deleted when the rollout ends.
            Err(error) if error.code() == Some(404) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn next_check() -> Instant {
    let now = Instant::now();
    now.checked_add(RECHECK_INTERVAL).unwrap_or(now)
}

/// Returns whether the question concerns the current state of the config.
fn is_current(config: &VersionedConfig, question: &RolloutAnalysisSpec) -> bool {
    if is_rehearsal(&question.round) {
        return rehearsal_question(&config.spec.rollout.analysis).round == question.round;
    }
    question.target_version.as_deref().is_some_and(|target| is_moving(config, question.generation, target))
}

/// Returns whether the config is being moved to this version by a spec of this generation.
fn is_moving(config: &VersionedConfig, generation: i64, target: &str) -> bool {
    config.metadata.generation == Some(generation)
        && config.status.as_ref().is_some_and(|status| {
            let stage = matches!(status.rollout.stage, Some(RolloutStage::Moving | RolloutStage::Baking));
            let failed = status.rollout.failure.as_ref().is_some_and(|failure| failure.version == target);
            stage && !failed && status.target_version.as_deref() == Some(target)
        })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use nudge_cluster::guarded_reader::GuardedReader;
    use tokio::sync::watch;
    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;

    fn object(round: &str) -> Arc<RolloutAnalysis> {
        let (round, pods) = (round.to_owned(), vec!["-".to_owned()]);
        let spec = RolloutAnalysisSpec { target_version: None, generation: 1, round, pods, control: Vec::new() };
        Arc::new(RolloutAnalysis::new("shop", spec))
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_does_not_wait_for_the_answers_of_another_one() {
        let asked: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&asked);
        // The API server does not answer.
        let service = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            pending::<Result<Response<Body>, Infallible>>()
        });
        let client = Client::new(service, "ns");
        let guard = GuardedReader::new(client.clone(), "https://192.0.2.1", Vec::new());
        let analyses = Arc::new(Analyses::new(client, guard, "account".to_owned(), 60));
        let (sender, receiver) = watch::channel(object("rehearsal-000000000000"));
        let task = tokio::spawn(ConfigTask { analyses, namespace: "ns".to_owned(), receiver }.run());
        let after_a_second = async || {
            sleep(Duration::from_secs(1)).await;
            asked.load(Ordering::Relaxed)
        };
        assert_eq!(after_a_second().await, 1);
        sender.send_replace(object("rehearsal-000000000000"));
        assert_eq!(after_a_second().await, 1, "the same round continues");
        sender.send_replace(object("2-1"));
        assert_eq!(after_a_second().await, 2);
        drop(sender);
        sleep(Duration::from_secs(1)).await;
        assert!(task.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_the_answer_to_all_queries_until_the_task_begins_again() {
        let query = json!({"name": "errors", "prometheus": {"address": "http://a", "query": "a"}, "max": "1"});
        let config = json!({"metadata": {"name": "shop"}, "spec": {"rollout": {"analysis": [query]}}});
        let analyses: Vec<Analysis> = serde_json::from_value(config["spec"]["rollout"]["analysis"].clone()).unwrap();
        let object = object(&rehearsal_question(&analyses).round);
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&written);
        let answer = serde_json::to_value(&*object).unwrap();
        let service = service_fn(move |request: Request<Body>| {
            let (log, config, answer) = (Arc::clone(&log), config.clone(), answer.clone());
            async move {
                let is_read = request.method() == hyper::Method::GET;
                if !is_read {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    log.lock().unwrap().push(serde_json::from_slice::<serde_json::Value>(&body).unwrap());
                }
                let answer = if is_read { config } else { answer };
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let client = Client::new(service, "ns");
        let guard = GuardedReader::new(client.clone(), "https://192.0.2.1", Vec::new());
        let analyses = Arc::new(Analyses::new(client, guard, "account".to_owned(), 60));
        let (_sender, receiver) = watch::channel(object);
        let began = Instant::now();
        ConfigTask { analyses, namespace: "ns".to_owned(), receiver }.report_panic(Duration::from_secs(5)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        let written = written.lock().unwrap().clone();
        let answers = &written[0]["status"]["queries"][0]["answers"];
        assert_eq!((written.len(), &answers[0]["number"]), (1, &json!(1)));
        assert!(answers[0]["error"].as_str().unwrap().starts_with("InternalError: Nudge itself failed"), "{answers}");
    }
}
