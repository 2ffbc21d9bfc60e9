use serde_json::{Value, json};

use crate::injection::quantity::Quantity;

/// The limit of CPU if every container has one, as a quota may require.
pub(super) const CPU_LIMIT: Quantity = Quantity::millis(100);

/// Requests and limits of the agent's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::injection) struct AgentResources {
    pub(super) cpu: Quantity,
    pub(super) cpu_limit: Option<Quantity>,
    pub(super) memory: Quantity,
}

impl AgentResources {
    pub(in crate::injection) fn json(&self) -> Value {
        let (cpu, memory) = (self.cpu.to_string(), self.memory.memory());
        let limits = match self.cpu_limit {
            Some(limit) => json!({"cpu": limit.to_string(), "memory": memory}),
            None => json!({"memory": memory}),
        };
        json!({"requests": {"cpu": cpu, "memory": memory}, "limits": limits})
    }
}
