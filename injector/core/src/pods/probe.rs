//! The maximum time until a pod's probes notice that the application got worse, or has started.
//!
//! Only probes of containers that get the configuration count: a slow sidecar says nothing about a version.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use nudge_protocol::{env, pod};

/// The time that is added: the kubelet starts probes at a random point of their period and writes the status in
/// batches.
const MARGIN_SECONDS: u32 = 6;
/// The grace period that Kubernetes gives a pod whose grace period is not set.
const GRACE_SECONDS: u32 = 30;
/// The time that a container without a startup probe has until its readiness probe counts.
const START_SECONDS: u32 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    Readiness,
    Liveness,
}

/// The slowest readiness or liveness probe of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowestProbe {
    kind: ProbeKind,
    container: Box<str>,
    failures: u32,
    /// The time between two attempts: the period, or as many periods as one attempt may last.
    interval: u32,
    timeout: u32,
    /// The time that a container may take to end after its liveness probe failed: the restart shows only then.
    grace: u32,
}

/// The times that the probes of a pod allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeTimes {
    /// The probe that takes longest to notice that its application got worse.
    pub slowest: Option<SlowestProbe>,
    /// The minimum time that the readiness probes take to notice that the application got worse: anything noticed
    /// sooner began earlier.
    pub notice_time: Duration,
    /// The maximum time that the pod takes from its start until it is ready.
    pub start_time: Duration,
}

impl ProbeTimes {
    /// Returns the times of a pod with this spec.
    pub fn of(spec: &PodSpec) -> Self {
        Self { slowest: slowest_probe(spec), notice_time: notice_time(spec), start_time: start_time(spec) }
    }
}

impl SlowestProbe {
    /// Returns the longest time until a change is observed: `failureThreshold` × `periodSeconds` + `timeoutSeconds` and
    /// six seconds; for a liveness probe also the termination grace period.
    pub fn seconds(&self) -> u32 {
        let noticed = self.failures.saturating_mul(self.interval).saturating_add(self.timeout);
        noticed.saturating_add(self.grace).saturating_add(MARGIN_SECONDS)
    }

    /// Returns the time between two attempts.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval.into())
    }
}

impl std::fmt::Display for SlowestProbe {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            ProbeKind::Readiness => "readiness",
            ProbeKind::Liveness => "liveness",
        };
        let Self { container, failures, interval, timeout, grace, .. } = self;
        write!(out, "the {kind} probe of container {container} needs {failures} x {interval} s + {timeout} s")?;
        if *grace > 0 {
            write!(out, " + {grace} s to end the container")?;
        }
        Ok(())
    }
}

/// Returns the containers whose probes count: the ones that get the configuration, or all but the agent if none of them
/// shows that it gets the configuration.
pub(super) fn subscribed(spec: &PodSpec) -> Vec<&Container> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let others = spec.containers.iter().chain(sidecars).filter(|container| container.name != pod::AGENT_CONTAINER);
    let containers: Vec<&Container> = others.collect();
    let is_subscribed =
        |container: &&&Container| container.env.iter().flatten().any(|variable| variable.name == env::ENDPOINT);
    let subscribed: Vec<&Container> = containers.iter().filter(is_subscribed).copied().collect();
    if subscribed.is_empty() { containers } else { subscribed }
}

/// Returns the containers that get the configuration and have no readiness probe: if one of them does not serve, nobody
/// sees it.
pub fn unprobed_containers(spec: &PodSpec) -> Vec<&str> {
    let unprobed = subscribed(spec).into_iter().filter(|container| container.readiness_probe.is_none());
    unprobed.map(|container| container.name.as_str()).collect()
}

/// Returns whether the container is a native sidecar, which is started again after any exit.
pub(super) fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

/// Returns the slowest probe of the pod's subscribed containers.
fn slowest_probe(spec: &PodSpec) -> Option<SlowestProbe> {
    let grace = spec.termination_grace_period_seconds.and_then(|seconds| u32::try_from(seconds).ok());
    let probes = subscribed(spec).into_iter().flat_map(|container| {
        let readiness =
            container.readiness_probe.as_ref().map(|probe| probe_timing(ProbeKind::Readiness, container, probe, 0));
        let liveness = container.liveness_probe.as_ref().map(|probe| {
            let grace_of_probe = probe.termination_grace_period_seconds.and_then(|seconds| u32::try_from(seconds).ok());
            probe_timing(ProbeKind::Liveness, container, probe, grace_of_probe.or(grace).unwrap_or(GRACE_SECONDS))
        });
        [readiness, liveness].into_iter().flatten()
    });
    probes.max_by_key(SlowestProbe::seconds)
}

fn notice_time(spec: &PodSpec) -> Duration {
    let probes =
        subscribed(spec).into_iter().filter_map(|container| Some((container, container.readiness_probe.as_ref()?)));
    let least = probes.map(|(container, probe)| probe_timing(ProbeKind::Readiness, container, probe, 0));
    let seconds = least.map(|probe| (probe.failures - 1).saturating_mul(probe.interval)).min().unwrap_or(0);
    Duration::from_secs(seconds.into())
}

/// Returns the maximum time that the subscribed containers take from their start until they are ready: for each, the
/// time of its startup probe, or 300 s without one, plus the time of its readiness probe.
fn start_time(spec: &PodSpec) -> Duration {
    let time = |container: &Container, probe: &Probe| {
        let delay = probe.initial_delay_seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or_default();
        probe_timing(ProbeKind::Readiness, container, probe, 0).seconds().saturating_add(delay)
    };
    let start_time = |container: &Container| {
        let startup = container.startup_probe.as_ref().map_or(START_SECONDS, |probe| time(container, probe));
        startup.saturating_add(container.readiness_probe.as_ref().map_or(0, |probe| time(container, probe)))
    };
    Duration::from_secs(subscribed(spec).into_iter().map(start_time).max().unwrap_or(START_SECONDS).into())
}

fn probe_timing(kind: ProbeKind, container: &Container, probe: &Probe, grace: u32) -> SlowestProbe {
    // The API server has these defaults.
    let number = |value: Option<i32>, default: u32| {
        value.and_then(|value| u32::try_from(value).ok()).filter(|&value| value > 0).unwrap_or(default)
    };
    let (period, timeout) = (number(probe.period_seconds, 10), number(probe.timeout_seconds, 1));
    SlowestProbe {
        kind,
        container: container.name.clone().into(),
        failures: number(probe.failure_threshold, 3),
        interval: period.saturating_mul(timeout.div_ceil(period)),
        timeout,
        grace,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slowest(containers: &Value) -> Option<(u32, String)> {
        let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
        slowest_probe(&spec).map(|probe| (probe.seconds(), probe.to_string()))
    }

    #[test]
    fn a_probe_of_default_timing_needs_37_seconds() {
        let text = "the readiness probe of container app needs 3 x 10 s + 1 s".to_owned();
        assert_eq!(slowest(&json!([{"name": "app", "readinessProbe": {}}])), Some((37, text)));
        assert_eq!(slowest(&json!([{"name": "app"}])), None);
    }

    #[test]
    fn a_start_takes_as_long_as_the_startup_probe_and_then_the_readiness_probe_allow() {
        let start = |containers: Value| {
            let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
            start_time(&spec).as_secs()
        };
        let slow = json!({"failureThreshold": 30, "initialDelaySeconds": 20});
        assert_eq!(start(json!([{"name": "app", "startupProbe": slow, "readinessProbe": {}}])), 327 + 37);
        assert_eq!(start(json!([{"name": "app", "readinessProbe": {}}])), 300 + 37);
        let late = json!({"initialDelaySeconds": 400});
        assert_eq!(
            start(json!([{"name": "app", "readinessProbe": late}])),
            300 + 437,
            "it is not even probed for 400 s"
        );
        let fast = json!({"name": "a", "startupProbe": {"periodSeconds": 1}});
        assert_eq!(start(json!([fast])), 10);
        assert_eq!(start(json!([fast, {"name": "b"}])), 300, "the other container has its own time");
    }

    #[test]
    fn the_fastest_readiness_probe_needs_all_its_periods_but_one() {
        let least = |containers: Value| {
            let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
            notice_time(&spec).as_secs()
        };
        let fast = json!({"name": "b", "readinessProbe": {"periodSeconds": 2, "failureThreshold": 2}});
        assert_eq!(least(json!([{"name": "a", "readinessProbe": {}}])), 20);
        assert_eq!(least(json!([{"name": "a", "readinessProbe": {}}, fast])), 2);
        assert_eq!(least(json!([{"name": "a", "livenessProbe": {}}])), 0);
    }

    #[test]
    fn a_liveness_probe_is_seen_when_the_container_has_ended() {
        let probe = json!({"periodSeconds": 5, "failureThreshold": 2, "terminationGracePeriodSeconds": 20});
        let text = "the liveness probe of container app needs 2 x 5 s + 1 s + 20 s to end the container".to_owned();
        assert_eq!(slowest(&json!([{"name": "app", "livenessProbe": probe}])), Some((37, text)));
        let both = json!([{"name": "app", "readinessProbe": {}, "livenessProbe": {}}]);
        assert_eq!(slowest(&both).map(|(seconds, _)| seconds), Some(67), "the slower one of both");
    }

    #[test]
    fn an_attempt_that_lasts_longer_than_the_period_delays_the_next() {
        let probe = json!({"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2});
        assert_eq!(slowest(&json!([{"name": "app", "readinessProbe": probe}])).map(|(seconds, _)| seconds), Some(21));
    }

    #[test]
    fn agents_and_containers_without_configuration_do_not_count() {
        let slow = json!({"periodSeconds": 60});
        let endpoint = json!([{"name": "MY_CONFIG_ENDPOINT", "value": "https://10.0.0.7:9001/config"}]);
        let pod = json!([
            {"name": "app", "readinessProbe": {}, "env": endpoint},
            {"name": "mesh", "readinessProbe": slow}, {"name": "nudge-agent", "readinessProbe": slow},
        ]);
        assert_eq!(slowest(&pod).map(|(seconds, _)| seconds), Some(37));
        let by_hand = json!([{"name": "mesh", "readinessProbe": slow}, {"name": "nudge-agent"}]);
        assert_eq!(slowest(&by_hand).map(|(seconds, _)| seconds), Some(187));
    }

    #[test]
    fn a_liveness_probe_says_nothing_about_readiness() {
        let spec = json!({"containers": [{"name": "app", "readinessProbe": {}}, {"name": "web", "livenessProbe": {}},
            {"name": "nudge-agent"}]});
        assert_eq!(unprobed_containers(&serde_json::from_value(spec).unwrap()), ["web"]);
    }
}
