//! A pod's quality-of-service class, by the rules of Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::injection::quantity::Quantity;

/// The resources that count for the class.
const QOS_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// The quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::injection) enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Returns a request or limit; `None` if it is absent, 0 or not a quantity (which the API server refuses).
pub(super) fn amount(map: Option<&BTreeMap<String, Text>>, resource: &str) -> Option<Quantity> {
    map?.get(resource)?.0.parse().ok().filter(|amount| *amount > Quantity::ZERO)
}

pub(super) fn limit(resources: Option<&ResourceRequirements>, resource: &str) -> Option<Quantity> {
    amount(resources?.limits.as_ref(), resource)
}

/// Returns the request of a resource; the limit, if there is no request.
pub(super) fn request(resources: Option<&ResourceRequirements>, resource: &str) -> Option<Quantity> {
    if resources?.requests.as_ref().is_some_and(|requests| requests.contains_key(resource)) {
        amount(resources?.requests.as_ref(), resource)
    } else {
        limit(resources, resource)
    }
}

/// Returns whether the pod has resources of its own, in addition to its containers' resources.
pub(super) fn has_pod_resources(spec: &PodSpec) -> bool {
    let pod = spec.resources.as_ref();
    QOS_RESOURCES.iter().any(|resource| request(pod, resource).is_some() || limit(pod, resource).is_some())
}

impl QosClass {
    pub(in crate::injection) fn of(spec: &PodSpec) -> Self {
        if has_pod_resources(spec) {
            return Self::among([spec.resources.as_ref()]);
        }
        let init = spec.init_containers.iter().flatten();
        Self::among(init.chain(&spec.containers).map(|container: &Container| container.resources.as_ref()))
    }

    fn among<'a>(resources: impl IntoIterator<Item = Option<&'a ResourceRequirements>>) -> Self {
        let (mut has_any, mut has_all_limits) = (false, true);
        let mut sums = [(Quantity::ZERO, Quantity::ZERO); QOS_RESOURCES.len()];
        for container in resources {
            for (resource, sum) in QOS_RESOURCES.iter().zip(&mut sums) {
                let (request, limit) = (request(container, resource), limit(container, resource));
                has_any |= request.is_some() || limit.is_some();
                has_all_limits &= limit.is_some();
                sum.0 = sum.0.plus(request.unwrap_or_default());
                sum.1 = sum.1.plus(limit.unwrap_or_default());
            }
        }
        match (has_any, has_all_limits && sums.iter().all(|(request, limit)| request == limit)) {
            (false, _) => Self::BestEffort,
            (true, true) => Self::Guaranteed,
            (true, false) => Self::Burstable,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(containers: &Value) -> QosClass {
        let containers: Vec<Value> =
            containers.as_array().unwrap().iter().map(|one| json!({"name": "x", "resources": one})).collect();
        QosClass::of(&serde_json::from_value(json!({"containers": containers})).unwrap())
    }

    #[test]
    fn classes_follow_the_rules_of_kubernetes() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let same = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}});
        let less = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}, "x": 1});
        let half = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}});
        assert_eq!(of(&json!([{}])), QosClass::BestEffort);
        assert_eq!(of(&json!([{"limits": {"cpu": "0"}}])), QosClass::BestEffort);
        assert_eq!(of(&json!([{"limits": {"example.com/gpu": "1"}}])), QosClass::BestEffort);
        assert_eq!(of(&json!([full, same, less])), QosClass::Guaranteed);
        assert_eq!(of(&json!([full, half])), QosClass::Burstable);
        assert_eq!(of(&json!([full, {}])), QosClass::Burstable);
        assert_eq!(of(&json!([{"requests": {"memory": "1"}}])), QosClass::Burstable);
        let pod = json!({"containers": [{"name": "x"}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
        assert_eq!(QosClass::of(&serde_json::from_value(pod).unwrap()), QosClass::Guaranteed);
    }
}
