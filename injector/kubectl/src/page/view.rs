//! The stream of a window that shows one config.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::cell::{Cell, Cells, StepCache, cells};
use super::detail::Detail;
use super::feed::{Feed, Key};
use super::reply::to_json;
use super::stream::{Last, PageView};

/// A view of one config with its pods.
#[derive(Debug, Default)]
pub(crate) struct ConfigView {
    key: Key,
    config: Last,
    fault: Last,
    pods_fault: Last,
    /// The number of pods that are not shown.
    hidden_pods: Last,
    /// The pods that the window shows, by name.
    sent_pods: BTreeMap<String, Cell>,
    plan: StepCache,
}

impl ConfigView {
    pub(crate) fn new(key: Key) -> Self {
        Self { key, ..Self::default() }
    }

    fn put_pods(&mut self, line: &mut Value, cells: Cells) {
        self.hidden_pods.put(line, "more", &(cells.count.total - cells.shown.len()));
        let names: BTreeSet<&str> = cells.shown.iter().map(|cell| cell.pod.as_str()).collect();
        let gone: Vec<String> = self.sent_pods.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
        for name in &gone {
            self.sent_pods.remove(name);
        }
        let changed: Vec<Cell> =
            cells.shown.into_iter().filter(|cell| self.sent_pods.get(&cell.pod) != Some(cell)).collect();
        if !changed.is_empty() {
            line["pods"] = to_json(&changed);
            self.sent_pods.extend(changed.into_iter().map(|cell| (cell.pod.clone(), cell)));
        }
        if !gone.is_empty() {
            line["gone"] = json!(gone);
        }
    }
}

impl PageView for ConfigView {
    fn next(&mut self, feed: &Feed) -> Option<Value> {
        let state = feed.state();
        let mut line = json!({});
        self.fault.put(&mut line, "fault", &state.fault());
        self.pods_fault.put(&mut line, "podsFault", &state.pods_fault);
        if let Some(configs) = state.configs() {
            match configs.get(&self.key) {
                Some(config) => {
                    let pods = state.pods.values();
                    let are_listed = pods.is_some();
                    let cells = pods.map(|pods| cells(config, pods, &mut self.plan)).unwrap_or_default();
                    self.config.put(&mut line, "config", &Detail::new(config, &cells, state.approvals(&self.key.0)));
                    if are_listed {
                        self.put_pods(&mut line, cells);
                    }
                }
                None => self.config.put(&mut line, "config", &json!({"absent": true})),
            }
        }
        (line != json!({})).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::watcher::Event;
    use nudge_api::VersionedConfig;

    use super::*;

    fn pod(name: &str, version: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "team", "uid": name, "labels": {"nudge.dev/agent": "0.1.0"}},
            "spec": {"containers": [{"name": "nudge-agent", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"},
                {"type": "nudge.dev/ConfigCurrent", "status": "True", "reason": "Applied", "message": format!("shop={version}")}]},
        }))
        .unwrap()
    }

    fn config(current: &str) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "team", "uid": "c"}, "spec": {}, "status": {"currentVersion": current},
        }))
        .unwrap()
    }

    fn names(line: &Value, field: &str) -> Vec<String> {
        let name = |pod: &Value| pod.as_str().or_else(|| pod["pod"].as_str()).unwrap().to_owned();
        line[field].as_array().into_iter().flatten().map(name).collect()
    }

    #[test]
    fn a_window_is_sent_what_has_changed_alone() {
        let feed = Feed::new();
        let mut view = ConfigView::new(("team".to_owned(), "shop".to_owned()));
        // A window assumes that there is no fault.
        assert_eq!(view.next(&feed), None);
        feed.state().set_configs([(("team".to_owned(), "shop".to_owned()), config("1"))].into());
        let line = view.next(&feed).unwrap();
        assert!(line["config"]["config"] == "shop" && line.get("pods").is_none(), "{line}");
        for event in [Event::Init, Event::InitApply(pod("a", "1")), Event::InitApply(pod("b", "1")), Event::InitDone] {
            feed.state().pods.apply(event);
        }
        assert_eq!(names(&view.next(&feed).unwrap(), "pods"), ["a", "b"]);
        assert_eq!(view.next(&feed), None);
        feed.state().pods.apply(Event::Apply(pod("b", "2")));
        feed.state().pods.apply(Event::Delete(pod("a", "1")));
        let line = view.next(&feed).unwrap();
        assert_eq!((names(&line, "pods"), names(&line, "gone")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        feed.state().set_configs(BTreeMap::new());
        assert_eq!(view.next(&feed).unwrap(), json!({"config": {"absent": true}}));
    }
}
