//! The agent's resources: they are small, and keep the pod's QoS class.

use k8s_openapi::api::core::v1::LimitRangeItem;

use super::files_room::MIN_FILES_ROOM;
use super::limit_range;
use super::qos::{QosClass, has_pod_resources, limit};
use super::requests_and_limits::{AgentResources, CPU_LIMIT};
use crate::injection::quantity::Quantity;
use crate::injection::refusal::InjectionRefusal;
use crate::injection::request::PodRequest;
use crate::injection::request::annotations::{AGENT_CPU, AGENT_MEMORY};
use crate::injection::settings::AgentDefaults;
use crate::injection::user_pod::UserPod;

const DEFAULT_CPU: Quantity = Quantity::millis(5);
/// The CPU request and limit of the agent in a Guaranteed pod: with 5m the agent would stop in the middle of a
/// handshake.
const GUARANTEED_CPU: Quantity = Quantity::millis(50);
const DEFAULT_MEMORY: Quantity = Quantity::mebi(32);
/// The memory that is added for values as files: they are in memory, twice during an update. If the files have more
/// room, more memory is added.
const MEMORY_FOR_FILES: Quantity = Quantity::mebi(8);
/// The memory that is added for a dictionary that containers are asked about while another dictionary may arrive.
const MEMORY_FOR_CANDIDATE: Quantity = Quantity::mebi(4);

/// Returns the agent's resources, `None` if it has none of its own, and warnings.
pub(in crate::injection) fn agent_resources(
    pod: &UserPod,
    request: &PodRequest,
    defaults: &AgentDefaults,
    files: Option<Quantity>,
    moved: Option<Quantity>,
    ranges: &[LimitRangeItem],
) -> Result<(Option<AgentResources>, Vec<String>), InjectionRefusal> {
    // The pod's own resources include the agent.
    if has_pod_resources(&pod.spec) {
        let ignored = [(AGENT_CPU, request.cpu), (AGENT_MEMORY, request.memory)];
        let ignored = ignored.iter().filter(|(_, amount)| amount.is_some());
        let warnings = ignored
            .map(|(name, _)| format!("annotation {name} has no effect: this pod's spec.resources includes the agent"));
        return Ok((None, warnings.collect()));
    }
    let qos_class = QosClass::of(&pod.spec);
    let mut warnings = Vec::new();
    if qos_class == QosClass::BestEffort {
        if request.cpu.is_none() && request.memory.is_none() {
            return Ok((None, warnings));
        }
        warnings.push(format!(
            "{AGENT_CPU} and {AGENT_MEMORY} give the agent requests, so this pod's QoS class is Burstable and no longer BestEffort"
        ));
    }
    let default = defaults.cpu.unwrap_or(DEFAULT_CPU);
    let default = if qos_class == QosClass::Guaranteed { default.max(GUARANTEED_CPU) } else { default };
    let cpu = request.cpu.unwrap_or(default);
    let all_have_limits = pod.members.iter().all(|member| limit(member.container.resources.as_ref(), "cpu").is_some());
    let cpu_limit = match qos_class {
        QosClass::Guaranteed => Some(cpu),
        _ if all_have_limits => Some(cpu.max(CPU_LIMIT)),
        _ => None,
    };
    let memory = defaults.memory.unwrap_or(DEFAULT_MEMORY);
    let memory = match files {
        // The least room is seldom filled.
        Some(room) if room <= MIN_FILES_ROOM => memory.plus(MEMORY_FOR_FILES),
        Some(room) => memory.plus(room),
        None => memory,
    };
    let memory = moved.map_or(memory, |room| memory.plus(room));
    // Both judge a version while another is served.
    let judges_versions = !request.checks.is_empty() || !request.variables.is_empty();
    let memory = if judges_versions { memory.plus(MEMORY_FOR_CANDIDATE) } else { memory };
    let resources = AgentResources { cpu, cpu_limit, memory: request.memory.unwrap_or(memory) };
    let resources = limit_range::fit(resources, qos_class, request, ranges)?;
    limit_range::check_pod(pod, resources, ranges)?;
    Ok((Some(resources), warnings))
}
