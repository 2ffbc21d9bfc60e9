//! The history of a run, as plain data: the contents of etcd, the events of processes, and the readings of each
//! application.

pub(crate) mod etcd;
pub(crate) mod recorder;

use std::collections::BTreeMap;

use nudge_api::VersionedConfigStatus;
use serde::{Deserialize, Serialize};

/// Milliseconds since the run began.
pub(crate) type Time = u64;
/// Keys and values as an application reads them.
pub(crate) type Values = BTreeMap<String, String>;

/// The events of a run, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
}

impl History {
    /// Returns the time of the last event.
    pub(crate) fn end(&self) -> Time {
        self.events.last().map_or(0, |event| event.at)
    }
}

/// An event, with its time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) what: Occurrence,
}

/// The subject of an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Occurrence {
    /// etcd holds this config from now on; none once it is deleted.
    Stored { config: String, object: Option<Box<Stored>> },
    /// What etcd held since the event before is not known.
    Missed,
    /// etcd was replaced by a backup.
    Restored,
    /// A version was created. Applications that run a bad one are not ready.
    VersionCreated { config: String, version: String, bad: bool },
    /// A pod was created.
    PodCreated(Pod),
    /// A pod was deleted, and its processes have ended.
    PodDeleted { pod: String },
    /// The agent of a pod was killed, or stopped for good.
    AgentKilled { pod: String },
    /// Bytes of a hub's answer pass to the agent of a pod, over a connection that began at `since`.
    Contact { pod: String, since: Time },
    /// The application of a pod has read all of its configuration at once; `life` differs between its processes.
    Read { pod: String, life: u32, how: How, values: Values },
    /// A fault begins, which may harm these pods.
    Fault { name: String, harms: Harms },
    /// A fault has ended.
    Healed { name: String },
    /// No fault is left and everything has had its time, so each application must have its version.
    Settled,
    /// A value of a Secret was found where none may be.
    Leaked { place: String },
}

/// A pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) workload: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The configs of the pod, in the order of merging.
    pub(crate) configs: Vec<String>,
}

/// Which pods a fault may harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Harms {
    Nobody,
    Pod(String),
    Everybody,
}

/// Why an application has read its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// The application has started.
    Started,
    /// The application got a signal.
    Notified,
    /// The application read the endpoint without being notified.
    Endpoint,
    /// The application read its files without being notified.
    Files,
}

/// A config as etcd holds it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// The value of `spec.version`.
    pub(crate) wanted: Option<String>,
    /// Whether the config is on hold.
    pub(crate) held: bool,
    /// `minReadySeconds` of `spec.rollout`, in milliseconds.
    pub(crate) dwell: Time,
    /// `bakeSeconds` of `spec.rollout`, in milliseconds.
    pub(crate) bake: Time,
    pub(crate) status: VersionedConfigStatus,
}
