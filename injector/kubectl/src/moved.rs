//! How many pods a rollout has told and reached. Pure, apart from what a watch feeds it.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use nudge_api::VersionedConfig;
use nudge_core::pods::{PodState, pod_state};
use nudge_core::rollout::told;

/// Numbers of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Told the version that is moved to, or away from.
    pub(super) told: u32,
    /// Running it.
    pub(super) runs: u32,
    /// All that use the config.
    pub(super) total: u32,
}

/// The pods with an agent, as a watch shows them.
#[derive(Debug, Default)]
pub(super) struct Pods {
    known: Option<HashMap<String, PodState>>,
    /// While the watch lists them anew.
    listed: HashMap<String, PodState>,
}

impl Pods {
    /// Takes in what the watch says.
    pub(super) fn take(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => drop(pod_state(&pod).map(|pod| self.listed.insert(pod.uid.clone(), pod))),
            Event::InitDone => self.known = Some(std::mem::take(&mut self.listed)),
            Event::Apply(pod) => {
                if let (Some(known), Some(pod)) = (&mut self.known, pod_state(&pod)) {
                    known.insert(pod.uid.clone(), pod);
                }
            }
            Event::Delete(pod) => {
                if let (Some(known), Some(uid)) = (&mut self.known, &pod.metadata.uid) {
                    known.remove(uid);
                }
            }
        }
    }

    /// How many have been told the target of the config, and run it; nothing before all of them are known.
    pub(super) fn moved(&self, config: &VersionedConfig) -> Option<Moved> {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let uid = config.metadata.uid.as_deref().unwrap_or_default();
        let status = config.status.as_ref()?;
        let target = status.target.as_deref();
        let mut moved = Moved::default();
        for pod in self.known.as_ref()?.values() {
            if pod.terminating || pod.finished || !pod.configs.iter().any(|config| config.as_str() == name) {
                continue;
            }
            let told = told(status, uid, pod);
            let runs = pod.runs(name);
            moved.total += 1;
            moved.told += u32::from(target.is_some() && told == target);
            moved.runs += u32::from(runs.is_some() && runs.as_deref() == target);
        }
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, runs: &str, finished: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "team", "uid": name, "labels": {"nudge.dev/agent": "0.1.0"}},
            "spec": {"containers": [{"name": "nudge-agent", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]}]},
            "status": {
                "phase": if finished { "Succeeded" } else { "Running" },
                "conditions": [{"type": "nudge.dev/ConfigCurrent", "status": "True", "reason": "Applied", "message": format!("shop={runs}")}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn those_that_were_told_and_those_that_run_it_are_counted() {
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "uid": "c"},
            "spec": {"current": "2"},
            "status": {"current": "1", "target": "2", "rollout": {"revision": 1, "groups": [{"workload": "", "threshold": 1_u64 << 32}]}},
        }))
        .unwrap();
        let mut pods = Pods::default();
        pods.take(Event::Init);
        pods.take(Event::InitApply(pod("a", "2", false)));
        pods.take(Event::InitApply(pod("b", "1", false)));
        assert_eq!(pods.moved(&config), None, "not before all are known");
        pods.take(Event::InitDone);
        pods.take(Event::Apply(pod("c", "2", true)));
        assert_eq!(pods.moved(&config), Some(Moved { told: 2, runs: 1, total: 2 }));
        pods.take(Event::Apply(pod("b", "2", false)));
        pods.take(Event::Delete(pod("a", "2", false)));
        assert_eq!(pods.moved(&config), Some(Moved { told: 1, runs: 1, total: 1 }));
    }
}
