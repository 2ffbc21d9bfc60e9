//! The scans of the pods of every enabled namespace. Each scan carries out a plan.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, PostParams};
use nudge_api::Reason;
use nudge_cluster::call::{CallError, call};
use nudge_cluster::jitter::with_jitter;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::PodKey;
use nudge_core::repair_plan::{AgentlessPod, EvictionOutcome, RepairMemory, agentless_pod};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::controller::Controller;
use crate::metrics::RepairMetrics;

/// The number of pods of a page, metadata only.
const PAGE_SIZE: u32 = 500;
/// The selector of pods without an agent; others are never listed.
const AGENTLESS_SELECTOR: &str = "!nudge.dev/agent";
/// The selector of pods that are not finished; others need no agent.
const UNFINISHED_SELECTOR: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The waits until evictions are tried again in a namespace that forbids them. A server that has just started may
/// forbid an eviction that it allows a moment later.
const FORBIDDEN_BACKOFF: Backoff = Backoff { first: Duration::from_secs(15), longest: Duration::from_mins(10) };

/// Settings of the repair loop.
#[derive(Clone, Debug)]
pub struct RepairSettings {
    /// Nudge's own service account with its namespace, as kubectl takes it.
    pub account: String,
    /// The maximum number of evictions in a minute; none at 0.
    pub evictions_per_minute: u32,
    /// The time between two scans of all namespaces.
    pub scan_interval: Duration,
    /// The minimum age of a pod that counts.
    pub min_age: Duration,
}

/// Runs for ever, and scans.
pub async fn repair(controller: Arc<Controller>, settings: RepairSettings, metrics: RepairMetrics) {
    let (memory, forbidden) = (RepairMemory::default(), HashMap::new());
    RepairLoop { controller: &controller, settings, metrics, memory, forbidden }.run().await;
}

/// The refusals in a row to evict pods of a namespace.
struct EvictionRefusals {
    count: u32,
    retry_at: Instant,
}

struct RepairLoop<'a> {
    controller: &'a Controller,
    settings: RepairSettings,
    metrics: RepairMetrics,
    memory: RepairMemory,
    /// The namespaces whose admin has not allowed evictions.
    forbidden: HashMap<String, EvictionRefusals>,
}

impl Drop for RepairLoop<'_> {
    fn drop(&mut self) {
        // The new leader counts the pods.
        self.metrics.agentless.set(0);
    }
}

impl RepairLoop<'_> {
    async fn run(&mut self) {
        let index = &self.controller.index;
        index.wait_until_synced().await;
        let enabled = index.enabled_namespaces();
        loop {
            let namespaces = Arc::clone(&enabled.borrow());
            self.forbidden.retain(|namespace, _| namespaces.contains(namespace));
            let mut agentless = 0;
            // If Nudge has no rights, the log of the watches says so.
            for namespace in namespaces.iter().filter(|namespace| index.is_complete(namespace)) {
                match self.scan(namespace).await {
                    Ok(count) => agentless += count,
                    Err(error) => {
                        self.metrics.failures.inc();
                        let error = chain(&error);
                        tracing::warn!(namespace, error, "scanning for pods without an agent failed; retrying");
                    }
                }
            }
            self.metrics.agentless.set(i64::try_from(agentless).unwrap_or(i64::MAX));
            self.metrics.scans.inc();
            sleep(with_jitter(self.settings.scan_interval)).await;
        }
    }

    /// Scans one namespace. Returns how many pods lack an agent.
    async fn scan(&mut self, namespace: &str) -> Result<usize, CallError> {
        let pods = self.list(namespace).await?;
        let count = pods.len();
        let is_forbidden = self.forbidden.get(namespace).is_some_and(|refusals| Instant::now() < refusals.retry_at);
        let rate = if is_forbidden { 0 } else { self.settings.evictions_per_minute };
        let rate = usize::try_from(rate).unwrap_or(usize::MAX);
        let plan = self.memory.plan(pods, Instant::now().into_std(), rate);
        for (pod, vain) in &plan.report {
            self.report(namespace, pod, Reason::AgentMissing, missing_agent_message(namespace, *vain)).await;
        }
        for pod in &plan.evict {
            // The time before the eviction counts, since the replacement may exist before the answer arrives.
            let (now, unix) = (Instant::now().into_std(), Timestamp::now().as_second());
            let outcome = self.evict(namespace, pod).await;
            self.memory.note_attempt(pod, outcome, now, unix);
            if outcome == EvictionOutcome::Forbidden {
                break;
            }
        }
        Ok(count)
    }

    async fn list(&self, namespace: &str) -> Result<Vec<AgentlessPod>, CallError> {
        let api = Api::<Pod>::namespaced(self.controller.client.clone(), namespace);
        // `match_any`, which reads from the API server's cache, does not help: kube leaves it out of a request that has
        // a limit.
        let mut params = ListParams::default().labels(AGENTLESS_SELECTOR).fields(UNFINISHED_SELECTOR).limit(PAGE_SIZE);
        let now = Timestamp::now().as_second();
        let mut pods = Vec::new();
        loop {
            let page = call(|| format!("listing pods of {namespace}"), api.list_metadata(&params)).await?;
            pods.extend(page.items.iter().filter_map(|pod| agentless_pod(&pod.metadata, now, self.settings.min_age)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(pods),
            }
        }
    }

    async fn report(&self, namespace: &str, pod: &AgentlessPod, reason: Reason, message: String) {
        tracing::info!(namespace, pod = pod.name, %reason, message, "pod without an agent reported");
        let key = PodKey::new(namespace, &*pod.name);
        self.controller.events.record_on_pod(&key, &pod.uid, EventRecord::warning(reason, message)).await;
    }

    /// Evicts the pod, which respects PodDisruptionBudgets.
    async fn evict(&mut self, namespace: &str, pod: &AgentlessPod) -> EvictionOutcome {
        let api = Api::<Pod>::namespaced(self.controller.client.clone(), namespace);
        // The uid keeps another pod of that name, as of a StatefulSet. `Api::evict` writes this field under another
        // name.
        let body = json!({
            "metadata": {"name": pod.name, "namespace": namespace}, "deleteOptions": {"preconditions": {"uid": pod.uid}},
        });
        let action = || format!("evicting Pod {namespace}/{}", pod.name);
        let parameters = PostParams::default();
        let evicting = api.create_subresource::<_, Value>("eviction", &pod.name, &parameters, &body);
        match call(action, evicting).await {
            Ok(_) => {
                self.forbidden.remove(namespace);
                self.metrics.evicted.inc();
                let message = "evicted because it opts in to Nudge but has no agent; its replacement gets one";
                self.report(namespace, pod, Reason::AgentMissingEvicted, message.to_owned()).await;
                EvictionOutcome::Evicted
            }
            Err(error) if error.code() == Some(403) => {
                let count = self.forbidden.get(namespace).map_or(1, |refusals| refusals.count.saturating_add(1));
                let retry_at = Instant::now() + FORBIDDEN_BACKOFF.jittered_wait(count, rand::random());
                self.forbidden.insert(namespace.to_owned(), EvictionRefusals { count, retry_at });
                if count == 1 {
                    tracing::error!(
                        namespace,
                        error = chain(&error),
                        "pods can't be evicted in namespace {namespace}; its admin can allow it: kubectl create rolebinding \
                         nudge-restart --clusterrole=nudge-restart --serviceaccount={} --namespace={namespace}",
                        self.settings.account
                    );
                }
                EvictionOutcome::Forbidden
            }
            Err(error) => {
                // 429: a PodDisruptionBudget. 404, 409: the pod is gone, or was replaced.
                tracing::info!(namespace, pod = pod.name, error = chain(&error), "pod not evicted; retrying");
                EvictionOutcome::Refused
            }
        }
    }
}

fn missing_agent_message(namespace: &str, vain: bool) -> String {
    let action = if vain {
        "a newer pod of its workload has none either: check whether the opt-in is a label, which every server supports, or an annotation, \
         which needs the component admission-policies"
    } else {
        "it was created before its namespace was enabled, or without the webhook; delete the pod, and its replacement gets an agent"
    };
    format!(
        "the pod opts in to Nudge (nudge.dev/inject) but has no agent in namespace {namespace}, and so no configuration: {action}"
    )
}
