//! What happened in a run, as plain data: what etcd held, what befell processes, and what each application read.

pub(crate) mod etcd;
pub(crate) mod recorder;

use std::collections::BTreeMap;

use nudge_api::VersionedConfigStatus;
use serde::{Deserialize, Serialize};

/// Milliseconds since the run began.
pub(crate) type Time = u64;
/// Keys and values as an application reads them.
pub(crate) type Values = BTreeMap<String, String>;

/// All that happened, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
}

impl History {
    /// The time of the last event.
    pub(crate) fn end(&self) -> Time {
        self.events.last().map_or(0, |event| event.at)
    }
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    /// etcd holds this config from now on; nothing once it is deleted.
    Stored { config: String, object: Option<Box<Stored>> },
    /// What etcd held is not known from the time before until now.
    Missed,
    /// etcd was replaced by a backup.
    Restored,
    /// A version can be asked for. Applications that run a bad one are not ready.
    Made { config: String, version: String, bad: bool },
    /// There is a pod, from now on.
    Born(Pod),
    /// Its processes have ended, and so has it.
    Gone { pod: String },
    /// The agent of a pod was killed, or stopped for good.
    AgentKilled { pod: String },
    /// Bytes of a hub's answer pass to the agent of a pod, over a connection that began at `since`.
    Contact { pod: String, since: Time },
    /// The application of a pod has read all of its configuration at once; `life` differs between its processes.
    Read { pod: String, life: u32, how: How, values: Values },
    /// A fault begins, which may harm these pods.
    Fault { name: String, harms: Harms },
    /// It has ended.
    Healed { name: String },
    /// No fault is left, and everything has had its time: each application is where it belongs.
    Settled,
    /// A value of a Secret stands where it must not.
    Leaked { place: String },
}

/// A pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) workload: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Its configs, in the order of merging.
    pub(crate) configs: Vec<String>,
}

/// Which pods a fault may harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Harms {
    Nobody,
    Pod(String),
    Everybody,
}

/// Why an application has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// It has begun.
    Started,
    /// It got a signal.
    Notified,
    /// It looked by itself, at the endpoint.
    Endpoint,
    /// The same at its files.
    Files,
}

/// A config as etcd holds it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// What `spec.version` asks for.
    pub(crate) wanted: Option<String>,
    /// `spec.rollout.hold` lets nothing go on.
    pub(crate) held: bool,
    /// Of `spec.rollout`, in milliseconds.
    pub(crate) dwell: Time,
    pub(crate) bake: Time,
    pub(crate) status: VersionedConfigStatus,
}
