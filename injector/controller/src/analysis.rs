//! What is measured of a version on trial: the answers are read from the `RolloutAnalysis` of the config's name, and whose numbers are wanted is
//! written there. The role `analysis` asks for them, so the controllers need neither the network nor a Secret for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Resource as _};
use nudge_api::{RolloutAnalysis, RolloutAnalysisSpec, RolloutAnalysisStatus, RolloutStage, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::analysis::is_rehearsal;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::wanted_rehearsal;
use nudge_protocol::error_chain::chain;
use serde_json::json;

use super::asked::Asked;
use super::controller::{Controller, FIELD_MANAGER};

/// Answers are read no more often.
const READS: Duration = Duration::from_secs(1);
/// Other pods of the same round are written no more often.
const WRITES: Duration = Duration::from_secs(5);

/// Whether a version is on trial that is judged by numbers.
fn is_measured(config: &VersionedConfig) -> bool {
    let stage = config.status.as_ref().and_then(|status| status.rollout.stage);
    !config.spec.rollout.analysis.is_empty() && matches!(stage, Some(RolloutStage::Moving | RolloutStage::Baking))
}

impl Controller {
    /// The answers so far, or those of a rehearsal. Where they can't be read those count that were read last: a rollout, and above all its way
    /// back, waits for nobody.
    pub(super) async fn measured(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<RolloutAnalysisStatus> {
        if !is_measured(config) {
            let question = wanted_rehearsal(config, config.status.as_ref())?;
            return self.rehearsed(key, &question).await;
        }
        let asked = self.asked(key).unwrap_or_default();
        if asked.read.is_some_and(|read| read.elapsed() < READS) {
            return status(asked.object.as_deref());
        }
        let read = Instant::now();
        let api = self.analyses(key);
        let found = call(|| format!("reading RolloutAnalysis {key}"), api.get_opt(key.name.as_str())).await;
        let object = match found.or_else(|error| if_allowed(key, error)) {
            Ok(object) => object.map(Arc::new),
            Err(error) => {
                tracing::warn!(config = %key, error = chain(&error), "answers of an analysis not read; retrying");
                asked.object.clone()
            }
        };
        let answers = status(object.as_deref());
        let (numbers, errors) = added(status(asked.object.as_deref()).as_ref(), answers.as_ref());
        self.metrics.measured(numbers, errors);
        self.keep_asked(key, Asked { object, read: Some(read), ..asked });
        answers
    }

    /// Writes whose numbers are wanted, or that none are any more. Returns when to write what had to wait, or could not be written: what is not
    /// measured holds the version, and nothing else.
    pub(super) async fn ask(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: Option<RolloutAnalysisSpec>,
    ) -> Option<Duration> {
        let known = self.asked(key);
        let failed = known.as_ref().and_then(|known| known.failed);
        let rests = failed.map(|failed| WRITES.saturating_sub(failed.elapsed())).filter(|rests| !rests.is_zero());
        let Some(question) = question else {
            // While pods prove the version again, the object stays as it is.
            let may_be_there =
                known.as_ref().map_or(!config.spec.rollout.analysis.is_empty(), |known| known.object.is_some());
            if !may_be_there || is_measured(config) {
                return None;
            }
            if rests.is_some() {
                return rests;
            }
            let api = self.analyses(key);
            let parameters = DeleteParams::default();
            let deleting = api.delete(key.name.as_str(), &parameters);
            let deleted = call(|| format!("deleting RolloutAnalysis {key}"), deleting).await;
            return match deleted.map(|_| None).or_else(|error| if_allowed(key, error)) {
                Ok(_) => {
                    self.keep_asked(key, Asked::default());
                    None
                }
                Err(error) => Some(self.not_asked(key, known.unwrap_or_default(), &error)),
            };
        };
        if is_rehearsal(&question.round) {
            return self.rehearse(key, config, &question).await;
        }
        let known = known.unwrap_or_default();
        let before = known.object.as_ref().map(|object| &object.spec);
        if before == Some(&question) {
            return None;
        }
        if rests.is_some() {
            return rests;
        }
        let same_round = before.is_some_and(|before| before.round == question.round);
        let early = known.written.map(|written| WRITES.saturating_sub(written.elapsed())).filter(|_| same_round);
        if let Some(early) = early.filter(|early| !early.is_zero()) {
            return Some(early);
        }
        match self.write_question(key, config, &question).await {
            Ok(object) => {
                let now = Some(Instant::now());
                let failed = now.filter(|_| object.is_none());
                let asked = Asked { object: object.map(Arc::new), read: now, written: now, failed, rehearsal: None };
                self.keep_asked(key, asked);
                failed.map(|_| WRITES)
            }
            Err(error) => Some(self.not_asked(key, known, &error)),
        }
    }

    /// Writes whose numbers are wanted. `None` where that is not possible.
    pub(super) async fn write_question(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: &RolloutAnalysisSpec,
    ) -> Result<Option<RolloutAnalysis>, CallError> {
        let owner = config.owner_ref(&());
        let object = json!({
            "apiVersion": RolloutAnalysis::api_version(&()), "kind": RolloutAnalysis::kind(&()),
            "metadata": {"name": key.name.as_str(), "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
            "spec": question,
        });
        let (api, parameters) = (self.analyses(key), PatchParams::apply(FIELD_MANAGER).force());
        let patch = Patch::Apply(object);
        let writing = api.patch(key.name.as_str(), &parameters, &patch);
        let written = call(|| format!("writing RolloutAnalysis {key}"), writing).await.map(Some);
        written.or_else(|error| if_allowed(key, error))
    }

    /// Remembers that the object could not be written. Returns when to try again.
    fn not_asked(&self, key: &ConfigKey, known: Asked, error: &CallError) -> Duration {
        tracing::warn!(config = %key, error = chain(error), "question of an analysis not written; retrying");
        self.keep_asked(key, Asked { failed: Some(Instant::now()), ..known });
        WRITES
    }

    /// What was asked about the version on trial.
    pub(super) fn asked(&self, key: &ConfigKey) -> Option<Asked> {
        self.memories.known(key, |memory| memory.asked.clone()).flatten()
    }

    pub(super) fn keep_asked(&self, key: &ConfigKey, asked: Asked) {
        self.memories.change(key, |memory| memory.asked = Some(asked));
    }

    pub(super) fn analyses(&self, key: &ConfigKey) -> Api<RolloutAnalysis> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn status(object: Option<&RolloutAnalysis>) -> Option<RolloutAnalysisStatus> {
    object?.status.clone()
}

/// How many answers have come since, with a number and with an error.
fn added(before: Option<&RolloutAnalysisStatus>, after: Option<&RolloutAnalysisStatus>) -> (u64, u64) {
    let Some(after) = after.filter(|after| !is_rehearsal(&after.round)) else { return (0, 0) };
    let before = before.filter(|before| before.round == after.round);
    let (mut numbers, mut errors) = (0, 0);
    for query in &after.queries {
        let known = before.and_then(|before| before.queries.iter().find(|one| one.name == query.name));
        let known = known.and_then(|known| known.answers.last()).map_or(0, |last| last.number);
        for answer in query.answers.iter().filter(|answer| answer.number > known) {
            *(if answer.error.is_some() { &mut errors } else { &mut numbers }) += 1;
        }
    }
    (numbers, errors)
}

/// Where the component is not installed, nothing is measured, which holds versions and breaks nothing else.
pub(super) fn if_allowed(key: &ConfigKey, error: CallError) -> Result<Option<RolloutAnalysis>, CallError> {
    match error.code() {
        404 => Ok(None),
        403 => {
            tracing::debug!(config = %key, error = chain(&error), "analysis is not allowed");
            Ok(None)
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use hyper::http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use nudge_cluster::index::Index;
    use ring::hmac;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;
    use crate::metrics::RolloutMetrics;

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

    /// A controller whose requests about analyses are taken, or fail, and how many of them there were.
    fn controller(config: Value, takes: bool) -> (Arc<Controller>, Arc<Mutex<usize>>) {
        let failed: Arc<Mutex<usize>> = Arc::default();
        let count = Arc::clone(&failed);
        let service = service_fn(move |request: Request<Body>| {
            let count = Arc::clone(&count);
            async move {
                let answer = |code: u16| {
                    let reason = if code == 404 { "NotFound" } else { "InternalError" };
                    let text = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
                    Response::builder().status(code).body(Body::from(text.to_string().into_bytes())).unwrap()
                };
                if request.uri().path().contains("/rolloutanalyses/") {
                    *count.lock().unwrap() += 1;
                    if !takes {
                        return Ok::<_, Infallible>(answer(500));
                    }
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let mut object: Value = serde_json::from_slice(&body).unwrap();
                    object["status"] = json!({"round": object["spec"]["round"], "queries": []});
                    return Ok(Response::new(Body::from(object.to_string().into_bytes())));
                }
                if request.method() != Method::PUT {
                    return Ok(answer(404));
                }
                let body = request.into_body().collect_bytes().await.unwrap();
                Ok(Response::new(Body::from(body.to_vec())))
            }
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        index.put_config(serde_json::from_value(config).unwrap());
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        (Arc::new(Controller::new(client, index, key, "a", silence, RolloutMetrics::default())), failed)
    }

    #[tokio::test]
    async fn nothing_but_the_version_waits_for_what_cannot_be_measured() {
        let key = ConfigKey::parse("ns", "shop").unwrap();
        for stage in ["Moving", "Baking", "Restarting", "RollingBack"] {
            let (controller, failed) = controller(config(stage), false);
            for _ in 0..5 {
                Box::pin(controller.reconcile(&key)).await.unwrap_or_else(|error| panic!("{stage}: {error}"));
            }
            // It is not tried again at once. Where the rollout ends meanwhile, the analyses are rehearsed.
            assert!((1..=2).contains(&*failed.lock().unwrap()), "{stage}");
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
            assert_eq!(controller.measured(&key, &config).await, None);
            let again = controller.ask(&key, &config, Some(question.clone())).await;
            assert_eq!(again, None, "the config is looked at no sooner");
        }
        assert_eq!(*failed.lock().unwrap(), 1);
        // Other analyses are tried at once, and so is a rollout.
        let other = RolloutAnalysisSpec { round: "rehearsal-000000000000".to_owned(), ..question.clone() };
        controller.ask(&key, &config, Some(other)).await;
        assert_eq!(*failed.lock().unwrap(), 2);
        let round = RolloutAnalysisSpec { target_version: Some("3".to_owned()), round: "3-1".to_owned(), ..question };
        assert_eq!(controller.ask(&key, &config, Some(round)).await, Some(WRITES));
        assert_eq!(*failed.lock().unwrap(), 3);
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
            assert_eq!(controller.ask(&key, &config, Some(question.clone())).await, Some(WRITES));
            let known = controller.measured(&key, &config).await.unwrap();
            assert_eq!(known.round, question.round, "what was answered before another leader came counts");
        }
        assert_eq!(*asked.lock().unwrap(), 1);
        // A rollout's question takes its place at once, and afterwards it does not rest.
        let round =
            RolloutAnalysisSpec { target_version: Some("3".to_owned()), round: "3-1".to_owned(), ..question.clone() };
        assert_eq!(controller.ask(&key, &config, Some(round)).await, None);
        assert_eq!(controller.ask(&key, &config, Some(question)).await, Some(WRITES));
        assert_eq!(*asked.lock().unwrap(), 3);
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
        assert_eq!(added(None, Some(&first)), (1, 1));
        assert_eq!(added(Some(&first), Some(&first)), (0, 0));
        assert_eq!(added(Some(&first), Some(&more)), (2, 1));
        assert_eq!(added(Some(&more), Some(&known("b", &[1]))), (1, 0), "another round counts from one");
        assert_eq!(added(Some(&more), None), (0, 0));
    }
}
