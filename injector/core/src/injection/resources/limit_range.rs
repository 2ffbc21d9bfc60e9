//! The LimitRanges of the pod's namespace: the agent's resources fit into them, or the pod is refused with a message
//! about the resources to set.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRangeItem;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::qos::{QosClass, amount, limit, request};
use super::requests_and_limits::{AgentResources, CPU_LIMIT};
use crate::injection::annotation_values::MIN_MEMORY;
use crate::injection::quantity::Quantity;
use crate::injection::refusal::InjectionRefusal;
use crate::injection::request::PodRequest;
use crate::injection::request::annotations::{AGENT_CPU, AGENT_MEMORY};
use crate::injection::user_pod::{ContainerRole, UserPod};

/// The bounds for one resource of one container.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    min: Option<Quantity>,
    max: Option<Quantity>,
    /// The largest allowed ratio of a limit to its request.
    ratio: Option<Quantity>,
    /// Whether the API server sets a limit on containers without a limit.
    default_limit: bool,
}

impl Bounds {
    fn of(ranges: &[LimitRangeItem], resource: &str) -> Self {
        let mut bounds = Self::default();
        for range in ranges.iter().filter(|range| range.type_ == "Container") {
            let get = |map: &Option<BTreeMap<String, Text>>| amount(map.as_ref(), resource);
            let lowest = |a: Option<Quantity>, b: Option<Quantity>| a.into_iter().chain(b).min();
            bounds.min = bounds.min.max(get(&range.min));
            bounds.max = lowest(bounds.max, get(&range.max));
            bounds.ratio = lowest(bounds.ratio, get(&range.max_limit_request_ratio));
            bounds.default_limit |= get(&range.default).is_some();
        }
        bounds.default_limit |= bounds.max.is_some() || bounds.ratio.is_some();
        bounds
    }

    /// Returns the user's own value, or else the default, raised to the minimum. Refuses a value that does not fit; no
    /// value is lowered.
    fn fit(
        &self,
        annotation: &str,
        own: Option<Quantity>,
        default: Quantity,
        write: fn(Quantity) -> String,
    ) -> Result<Quantity, InjectionRefusal> {
        let value = own.unwrap_or_else(|| default.max(self.min.unwrap_or_default()));
        let bound = |name: &str, bound: Quantity| {
            let (value, bound) = (write(value), write(bound));
            InjectionRefusal(format!(
                "a LimitRange of this namespace has {name} {bound} for a container, and Nudge's agent has {value}; set annotation {annotation} to \
                 a value that fits, such as {annotation}: {bound}"
            ))
        };
        match (self.min.filter(|min| value < *min), self.max.filter(|max| value > *max)) {
            (Some(min), _) => Err(bound("min", min)),
            (_, Some(max)) => Err(bound("max", max)),
            _ => Ok(value),
        }
    }
}

/// Returns the agent's resources within the bounds for a container.
pub(super) fn fit(
    default: AgentResources,
    qos_class: QosClass,
    request: &PodRequest,
    ranges: &[LimitRangeItem],
) -> Result<AgentResources, InjectionRefusal> {
    let bounds = Bounds::of(ranges, "memory");
    if let Some(max) = bounds.max.filter(|max| *max < MIN_MEMORY) {
        return Err(InjectionRefusal(format!(
            "a LimitRange of this namespace has max memory {} for a container, and Nudge's agent needs {} ({AGENT_MEMORY}); raise the maximum",
            max.memory(),
            MIN_MEMORY.memory()
        )));
    }
    let memory = bounds.fit(AGENT_MEMORY, request.memory, default.memory, Quantity::memory)?;

    let bounds = Bounds::of(ranges, "cpu");
    let mut cpu = bounds.fit(AGENT_CPU, request.cpu, default.cpu, |cpu| cpu.to_string())?;
    if qos_class == QosClass::Guaranteed {
        return Ok(AgentResources { cpu, cpu_limit: Some(cpu), memory });
    }
    if default.cpu_limit.is_none() && !bounds.default_limit {
        return Ok(AgentResources { cpu, cpu_limit: None, memory });
    }
    // Without a limit, the API server would set one that may be far above the request or below it.
    let max = bounds.max.unwrap_or(CPU_LIMIT.max(cpu));
    let limit = cpu.max(CPU_LIMIT.min(max)).max(bounds.min.unwrap_or_default());
    if let Some(ratio) = bounds.ratio {
        let min = limit.divided_up(ratio);
        if cpu < min && request.cpu.is_some() {
            return Err(InjectionRefusal(format!(
                "a LimitRange of this namespace has maxLimitRequestRatio {ratio} for a container's cpu, and Nudge's agent has limit {limit}; \
                 set annotation {AGENT_CPU} to {min} or more"
            )));
        }
        cpu = cpu.max(min);
    }
    Ok(AgentResources { cpu, cpu_limit: Some(limit), memory })
}

/// Refuses a pod that, with the agent, exceeds the bounds for a pod.
pub(super) fn check_pod(
    pod: &UserPod,
    agent: AgentResources,
    ranges: &[LimitRangeItem],
) -> Result<(), InjectionRefusal> {
    for (resource, annotation, own) in
        [("cpu", AGENT_CPU, agent.cpu_limit.unwrap_or(agent.cpu)), ("memory", AGENT_MEMORY, agent.memory)]
    {
        let maxima =
            ranges.iter().filter(|range| range.type_ == "Pod").filter_map(|range| amount(range.max.as_ref(), resource));
        let Some(max) = maxima.min() else { continue };
        let sum = pod_usage(pod, resource).plus(own);
        if sum > max {
            let write = |amount: Quantity| if resource == "cpu" { amount.to_string() } else { amount.memory() };
            return Err(InjectionRefusal(format!(
                "a LimitRange of this namespace has max {resource} {} for a pod, and with Nudge's agent ({}) this pod has {}; lower its containers' \
                 or set annotation {annotation}",
                write(max),
                write(own),
                write(sum)
            )));
        }
    }
    Ok(())
}

/// Returns the amount that the pod's containers may use at the same time: their limits, or requests if there is no
/// limit.
fn pod_usage(pod: &UserPod, resource: &str) -> Quantity {
    let (mut running, mut max) = (Quantity::ZERO, Quantity::ZERO);
    for member in &pod.members {
        let resources = member.container.resources.as_ref();
        let amount = limit(resources, resource).or_else(|| request(resources, resource)).unwrap_or_default();
        match member.role {
            // An init container runs together with the sidecars before it.
            ContainerRole::Init => max = max.max(running.plus(amount)),
            ContainerRole::Sidecar | ContainerRole::Main => running = running.plus(amount),
        }
    }
    max.max(running)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::agent_resources::agent_resources;
    use super::super::files_room::MIN_FILES_ROOM;
    use super::*;
    use crate::injection::{AgentDefaults, read};

    fn fitted(
        ranges: &Value,
        annotations: &[(&str, &str)],
        resources: &Value,
    ) -> Result<Option<AgentResources>, String> {
        let mut pod = json!({
            "metadata": {"annotations": {"nudge.dev/inject": "true", "nudge.dev/configs": "shop"}},
            "spec": {"containers": [{"name": "app", "resources": resources}]},
        });
        for (name, value) in annotations {
            pod["metadata"]["annotations"][name] = json!(value);
        }
        let request = read(&pod).map_err(|refusal| refusal.to_string())?.unwrap();
        let ranges: Vec<LimitRangeItem> = serde_json::from_value(ranges.clone()).unwrap();
        let files = request.mount_path.as_ref().map(|_| MIN_FILES_ROOM);
        let fitted =
            agent_resources(&UserPod::of(&pod).unwrap(), &request, &AgentDefaults::default(), files, None, &ranges);
        fitted.map(|(resources, _)| resources).map_err(|refusal| refusal.to_string())
    }

    fn burstable() -> Value {
        json!({"requests": {"cpu": "100m"}})
    }

    fn some(cpu: &str, cpu_limit: Option<&str>, memory: &str) -> AgentResources {
        let read = |text: &str| text.parse().unwrap();
        AgentResources { cpu: read(cpu), cpu_limit: cpu_limit.map(read), memory: read(memory) }
    }

    #[test]
    fn defaults_follow_the_class() {
        let none = json!([]);
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let cpu = json!({"limits": {"cpu": "1"}});
        assert_eq!(fitted(&none, &[], &json!({})), Ok(None));
        assert_eq!(fitted(&none, &[], &burstable()), Ok(Some(some("5m", None, "32Mi"))));
        assert_eq!(fitted(&none, &[], &full), Ok(Some(some("50m", Some("50m"), "32Mi"))));
        assert_eq!(fitted(&none, &[], &cpu), Ok(Some(some("5m", Some("100m"), "32Mi"))));
        assert_eq!(
            fitted(&none, &[("nudge.dev/agent-cpu", "0.2")], &cpu),
            Ok(Some(some("200m", Some("200m"), "32Mi")))
        );
        assert_eq!(fitted(&none, &[("nudge.dev/agent-cpu", "7m")], &full), Ok(Some(some("7m", Some("7m"), "32Mi"))));
        let check = ("nudge.dev/check.app", "http://localhost/");
        assert_eq!(fitted(&none, &[check], &burstable()), Ok(Some(some("5m", None, "36Mi"))));
        let files = ("nudge.dev/mount-path", "/etc/shop");
        assert_eq!(fitted(&none, &[check, files], &burstable()), Ok(Some(some("5m", None, "44Mi"))));
        assert_eq!(
            fitted(&none, &[("nudge.dev/agent-memory", "64Mi")], &json!({})),
            Ok(Some(some("5m", None, "64Mi")))
        );
    }

    #[test]
    fn a_default_is_raised_to_the_minimum_and_never_lowered() {
        let min = json!([{"type": "Container", "min": {"cpu": "10m", "memory": "64Mi"}}, {"type": "Container", "min": {"cpu": "20m"}}]);
        assert_eq!(fitted(&min, &[], &burstable()), Ok(Some(some("20m", None, "64Mi"))));
        let refusal = fitted(&min, &[("nudge.dev/agent-memory", "32Mi")], &burstable()).unwrap_err();
        assert!(refusal.contains("min 64Mi") && refusal.contains("nudge.dev/agent-memory: 64Mi"), "{refusal}");
        let max = json!([{"type": "Container", "max": {"memory": "20Mi"}}]);
        let refusal = fitted(&max, &[], &burstable()).unwrap_err();
        assert!(refusal.contains("max 20Mi") && refusal.contains("nudge.dev/agent-memory: 20Mi"), "{refusal}");
        assert_eq!(
            fitted(&max, &[("nudge.dev/agent-memory", "20Mi")], &burstable()),
            Ok(Some(some("5m", None, "20Mi")))
        );
        let max = json!([{"type": "Container", "max": {"memory": "8Mi"}}]);
        assert!(fitted(&max, &[], &burstable()).unwrap_err().contains("raise the maximum"));
    }

    #[test]
    fn a_limit_that_the_api_server_would_set_is_set_to_fit() {
        let given = json!([{"type": "Container", "default": {"cpu": "500m"}}]);
        assert_eq!(fitted(&given, &[], &burstable()), Ok(Some(some("5m", Some("100m"), "32Mi"))));
        assert_eq!(
            fitted(&given, &[("nudge.dev/agent-cpu", "1")], &burstable()),
            Ok(Some(some("1", Some("1"), "32Mi")))
        );
        let max = json!([{"type": "Container", "max": {"cpu": "60m"}}]);
        assert_eq!(fitted(&max, &[], &burstable()), Ok(Some(some("5m", Some("60m"), "32Mi"))));
        let ratio = json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}}]);
        assert_eq!(fitted(&ratio, &[], &burstable()), Ok(Some(some("25m", Some("100m"), "32Mi"))));
        let refusal = fitted(&ratio, &[("nudge.dev/agent-cpu", "5m")], &burstable()).unwrap_err();
        assert!(
            refusal.contains("maxLimitRequestRatio 4") && refusal.contains("nudge.dev/agent-cpu to 25m"),
            "{refusal}"
        );
    }

    #[test]
    fn the_sum_of_the_pod_is_bounded_too() {
        let pod = json!([{"type": "Pod", "max": {"memory": "1Gi"}}]);
        let refusal = fitted(&pod, &[], &json!({"limits": {"memory": "1Gi"}})).unwrap_err();
        assert!(refusal.contains("this pod has 1056Mi") && refusal.contains("nudge.dev/agent-memory"), "{refusal}");
        assert!(fitted(&pod, &[], &json!({"limits": {"memory": "992Mi"}})).is_ok());
    }
}
