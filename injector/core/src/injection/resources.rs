//! What the agent requests and may use: little, and such that the pod keeps its class.

use k8s_openapi::api::core::v1::LimitRangeItem;
use serde_json::{Value, json};

use super::annotations::{CPU, MEMORY};
use super::limits;
use super::pod_request::PodRequest;
use super::qos::{QosClass, limit, pod_level};
use super::quantity::Quantity;
use super::refusal::Refusal;
use super::user_pod::UserPod;

const DEFAULT_CPU: Quantity = Quantity::millis(5);
/// Where the request is the limit too: 5m of each 100 ms would stop the agent in the middle of a handshake.
const GUARANTEED_CPU: Quantity = Quantity::millis(50);
/// Where every container has a limit, which a quota may ask for.
pub(super) const CPU_LIMIT: Quantity = Quantity::millis(100);
const DEFAULT_MEMORY: Quantity = Quantity::mebi(32);
/// With the values as files too, in memory, twice while they are swapped.
const MEMORY_WITH_FILES: Quantity = Quantity::mebi(40);

/// Requests and limits of the agent's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) cpu: Quantity,
    pub(super) cpu_limit: Option<Quantity>,
    /// Request and limit.
    pub(super) memory: Quantity,
}

impl Amounts {
    pub(super) fn json(&self) -> Value {
        let (cpu, memory) = (self.cpu.to_string(), self.memory.memory());
        let limits = match self.cpu_limit {
            Some(limit) => json!({"cpu": limit.to_string(), "memory": memory}),
            None => json!({"memory": memory}),
        };
        json!({"requests": {"cpu": cpu, "memory": memory}, "limits": limits})
    }
}

/// The agent's amounts, where it has any, and warnings.
pub(super) fn amounts(
    user: &UserPod,
    request: &PodRequest,
    ranges: &[LimitRangeItem],
) -> Result<(Option<Amounts>, Vec<String>), Refusal> {
    // The pod's own amount holds for the agent too.
    if pod_level(&user.spec) {
        let ignored = [(CPU, request.cpu), (MEMORY, request.memory)];
        let ignored = ignored.iter().filter(|(_, amount)| amount.is_some());
        let warnings = ignored.map(|(name, _)| {
            format!("annotation {name} has no effect: this pod's spec.resources holds for the agent too")
        });
        return Ok((None, warnings.collect()));
    }
    let qos_class = QosClass::of(&user.spec);
    let mut warnings = Vec::new();
    if qos_class == QosClass::BestEffort {
        if request.cpu.is_none() && request.memory.is_none() {
            return Ok((None, warnings));
        }
        warnings.push(format!(
            "{CPU} and {MEMORY} give the agent requests, so this pod's class is Burstable and no more BestEffort"
        ));
    }
    let default = if qos_class == QosClass::Guaranteed { GUARANTEED_CPU } else { DEFAULT_CPU };
    let cpu = request.cpu.unwrap_or(default);
    let every = user.members.iter().all(|member| limit(member.container.resources.as_ref(), "cpu").is_some());
    let cpu_limit = match qos_class {
        QosClass::Guaranteed => Some(cpu),
        _ if every => Some(cpu.max(CPU_LIMIT)),
        _ => None,
    };
    let memory = if request.mount_path.is_some() { MEMORY_WITH_FILES } else { DEFAULT_MEMORY };
    let amounts = Amounts { cpu, cpu_limit, memory: request.memory.unwrap_or(memory) };
    let amounts = limits::fit(amounts, qos_class, request, ranges)?;
    limits::fit_pod(user, amounts, ranges)?;
    Ok((Some(amounts), warnings))
}
