//! The statuses of approvals. Only the leader writes them, independently of all other work: a failed write is retried
//! later, and nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::VersionApproval;
use nudge_cluster::call::{CallError, call};
use nudge_cluster::queue::Priority;
use nudge_core::config::{ApprovalContext, Provenance, approval_status};
use nudge_core::keys::ConfigKey;
use nudge_core::requester::Requesters;
use nudge_core::rollout::Now;
use nudge_protocol::error_chain::chain;

use crate::controller::{Controller, written_by_us};
use crate::work_item::WorkItem;

/// The time from a reconcile to the write of the statuses, so that several reconciles of a config lead to one write.
const WRITE_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of statuses of one config that are written at once. The others come next.
const MAX_WRITES_AT_ONCE: usize = 16;

/// Runs for ever, and writes the changed statuses of approvals, config by config.
pub async fn keep_approval_statuses(controller: Arc<Controller>) {
    let queue = &controller.approval_queue;
    controller.index.wait_until_synced().await;
    // Configs that do not exist are not reconciled.
    controller.index.configs_with_approvals().into_iter().for_each(|key| queue.add(key, WRITE_DELAY));
    loop {
        let key = queue.next(Priority::Any).await;
        let mut item = WorkItem { queue, key: &key, success: false };
        item.success = controller.write_approval_statuses(&key).await;
    }
}

impl Controller {
    /// Queues the approvals of the config, whose statuses may have to change.
    pub(crate) fn queue_approval_statuses(&self, key: &ConfigKey) {
        self.approval_queue.add(key.clone(), WRITE_DELAY);
    }

    /// Writes the statuses of the approvals of one config. Returns whether all writes have succeeded.
    async fn write_approval_statuses(&self, key: &ConfigKey) -> bool {
        // A namespace that is listed in part would look complete.
        if !self.index.is_complete(&key.namespace) || self.index.is_left_out(key) {
            return true;
        }
        let changed = self.changed_approvals(key);
        if changed.len() > MAX_WRITES_AT_ONCE {
            self.queue_approval_statuses(key);
        }
        let mut success = true;
        for approval in changed.iter().take(MAX_WRITES_AT_ONCE) {
            if let Err(error) = self.write_approval_status(&key.namespace, approval).await {
                success = false;
                // The watch brings the change of another client.
                if !error.is_conflict() {
                    tracing::warn!(config = %key, error = chain(&error), "status of an approval not written; retrying");
                }
            }
        }
        success
    }

    /// Returns the approvals whose status must change, each with its new status.
    fn changed_approvals(&self, key: &ConfigKey) -> Vec<VersionApproval> {
        let approvals = self.index.known_approvals(key);
        if approvals.is_empty() {
            return Vec::new();
        }
        let (time, policies) = (Time(Timestamp::now()), self.index.policies(&key.namespace));
        let now = Now { time: &time, steady: self.steady() };
        let config = self.index.config(key);
        let context = config.as_deref().map(|config| {
            let (parts, facts, seals) = (self.index.parts(key), self.memories.part_facts(key), self.seals(key, config));
            let requesters = Requesters::of(config, &self.keys.note);
            (config, parts, facts, seals, requesters, self.signed_approvals(key, config).err())
        });
        let scene = context.as_ref().map(|(config, parts, facts, seals, requesters, uncounted)| ApprovalContext {
            config,
            provenance: Provenance { parts, facts, seals, requesters },
            policies: &policies,
            incomplete: uncounted.as_deref(),
            now,
        });
        let changed = approvals.iter().filter_map(|approval| {
            let status =
                approval_status(approval, self.approval_decision(key, approval).as_ref(), scene.as_ref(), &time);
            let differs = approval.status.clone().unwrap_or_default() != status;
            differs.then(|| VersionApproval { status: Some(status), ..(**approval).clone() })
        });
        changed.collect()
    }

    async fn write_approval_status(&self, namespace: &str, next: &VersionApproval) -> Result<(), CallError> {
        let api: Api<VersionApproval> = Api::namespaced(self.client.clone(), namespace);
        let name = next.metadata.name.as_deref().unwrap_or_default();
        let writing = || format!("writing the status of VersionApproval {namespace}/{name}");
        match call(writing, api.replace_status(name, &written_by_us(), next)).await {
            // The approval is gone.
            Err(error) if error.code() == Some(404) => Ok(()),
            other => other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use nudge_cluster::index::Index;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api_server::{FakeApiServer, controller_over, status};

    type Writes = Arc<Mutex<Vec<(String, Value)>>>;

    /// Returns an approval of a config that is not there.
    fn approval(name: &str, revision: &str, status: &Value) -> VersionApproval {
        let spec = json!({"configName": "shop", "version": "2", "digest": "d", "decision": "Approve", "reason": "r", "approver": "bob"});
        let meta = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": revision, "generation": 1});
        let approval = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": meta, "spec": spec, "status": status
        });
        serde_json::from_value(approval).unwrap()
    }

    /// Returns a controller whose writes the API server answers so, and these writes.
    fn controller(code: u16) -> (Controller, Writes) {
        let writes = Writes::default();
        let noted = Arc::clone(&writes);
        let client = Arc::<FakeApiServer>::default().client(move |_, path, body| {
            noted.lock().push((path.to_owned(), body));
            (code, if code == 200 { json!(approval("one", "2", &Value::Null)) } else { status(code) })
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        (controller_over(client, index), writes)
    }

    fn shop() -> ConfigKey {
        ConfigKey::parse("ns", "shop").unwrap()
    }

    #[tokio::test]
    async fn a_status_is_written_once_and_at_rest_none() {
        let (controller, writes) = controller(200);
        controller.index.put_approval(approval("one", "1", &Value::Null));
        assert!(controller.write_approval_statuses(&shop()).await);
        let (path, body) = writes.lock().pop().unwrap();
        assert_eq!(path, "/apis/nudge.dev/v1alpha1/namespaces/ns/versionapprovals/one/status");
        assert_eq!(body["status"]["conditions"][0]["reason"], "NoConfig");
        controller.index.put_approval(approval("one", "2", &body["status"]));
        assert!(controller.write_approval_statuses(&shop()).await);
        assert!(writes.lock().is_empty());
    }

    #[tokio::test]
    async fn an_approval_that_can_not_be_written_keeps_no_other_waiting() {
        let (controller, writes) = controller(500);
        for name in ["one", "two"] {
            controller.index.put_approval(approval(name, "1", &Value::Null));
        }
        assert!(!controller.write_approval_statuses(&shop()).await, "it is tried again");
        assert_eq!(writes.lock().len(), 2);
    }

    #[tokio::test]
    async fn a_limited_number_is_written_in_one_turn() {
        let (controller, writes) = controller(200);
        for number in 0..=MAX_WRITES_AT_ONCE {
            controller.index.put_approval(approval(&format!("one-{number}"), "1", &Value::Null));
        }
        assert!(controller.write_approval_statuses(&shop()).await);
        assert_eq!((writes.lock().len(), controller.approval_queue.len()), (MAX_WRITES_AT_ONCE, 1));
    }
}
