//! The count of a rollout's pods, from a watch of pods.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use nudge_api::VersionedConfig;
use nudge_core::identity::Identity;
use nudge_core::keys::PodUid;
use nudge_core::pods::{PodState, pod_state};
use nudge_core::rollout::assigned_version;
use nudge_protocol::VersionName;

/// The number of pods that a rollout has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCount {
    /// Pods that the target is assigned to.
    pub(crate) assigned: u32,
    /// Pods that run the target.
    pub(crate) running: u32,
    /// Pods that use the config.
    pub(crate) total: u32,
}

/// The pods with an agent, kept by a watch.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// The pods by uid; absent until the first list is complete.
    pods: Option<HashMap<PodUid, PodState>>,
    /// The list that the watch is receiving.
    listed: HashMap<PodUid, PodState>,
}

impl Pods {
    /// Applies an event of the watch.
    pub(crate) fn apply(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => drop(pod_state(&pod).map(|pod| self.listed.insert(pod.uid.clone(), pod))),
            Event::InitDone => self.pods = Some(std::mem::take(&mut self.listed)),
            Event::Apply(pod) => {
                if let (Some(pods), Some(pod)) = (&mut self.pods, pod_state(&pod)) {
                    pods.insert(pod.uid.clone(), pod);
                }
            }
            Event::Delete(pod) => {
                let uid = pod.metadata.uid.as_deref().and_then(PodUid::new);
                if let (Some(pods), Some(uid)) = (&mut self.pods, uid) {
                    pods.remove(&uid);
                }
            }
        }
    }

    /// Returns all pods, or `None` until the first list is complete.
    pub(crate) fn values(&self) -> Option<impl Iterator<Item = &PodState>> {
        self.pods.as_ref().map(HashMap::values)
    }

    /// Counts the pods of the config. Returns `None` until the first list is complete.
    pub(crate) fn count(&self, config: &VersionedConfig) -> Option<PodCount> {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let identity = Identity::of(config);
        let status = config.status.as_ref()?;
        let target = status.target_version.as_deref();
        let mut count = PodCount::default();
        for pod in self.pods.as_ref()?.values() {
            let has_config = pod.configs.iter().any(|config| config.as_str() == name);
            if !pod.is_live() || !has_config || !config.spec.admits(&pod.service_account) {
                continue;
            }
            let assigned = assigned_version(status, identity, pod);
            let running = pod.runs(name);
            count.total += 1;
            count.assigned += u32::from(target.is_some() && assigned == target);
            count.running += u32::from(running.is_some() && running.map(VersionName::as_str) == target);
        }
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, version: &str, finished: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "team", "uid": name, "labels": {"nudge.dev/agent": "0.1.0"}},
            "spec": {"containers": [{"name": "nudge-agent", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]}]},
            "status": {
                "phase": if finished { "Succeeded" } else { "Running" },
                "conditions": [{"type": "nudge.dev/ConfigCurrent", "status": "True", "reason": "Applied", "message": format!("shop={version}")}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn pods_with_the_target_are_counted() {
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "uid": "c"},
            "spec": {"version": "2"},
            "status": {"currentVersion": "1", "targetVersion": "2", "internal": {"revision": 1, "threshold": 1_u64 << 32}},
        }))
        .unwrap();
        let mut pods = Pods::default();
        pods.apply(Event::Init);
        pods.apply(Event::InitApply(pod("a", "2", false)));
        pods.apply(Event::InitApply(pod("b", "1", false)));
        assert_eq!(pods.count(&config), None, "not before all are known");
        pods.apply(Event::InitDone);
        pods.apply(Event::Apply(pod("c", "2", true)));
        assert_eq!(pods.count(&config), Some(PodCount { assigned: 2, running: 1, total: 2 }));
        pods.apply(Event::Apply(pod("b", "2", false)));
        pods.apply(Event::Delete(pod("a", "2", false)));
        assert_eq!(pods.count(&config), Some(PodCount { assigned: 1, running: 1, total: 1 }));
    }
}
