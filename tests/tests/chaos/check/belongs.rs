//! The version that each pod is assigned, compared with the version that its application has read last.

use std::collections::BTreeMap;

use nudge_api::{ConfigState, VersionedConfigStatus};
use nudge_tests::cluster::assigned::assigned;

use crate::history::{Event, How, Occurrence, Pod, Stored, Time, Values};

/// The key of the last reading at a start or at a signal.
const TOOK: &str = "start or signal";
/// The last readings: at the endpoint, at the files, and at a start or signal.
type LastReads<'a> = BTreeMap<&'a str, (Time, &'a Values)>;

/// The maximum age of the last reading.
pub(crate) const MAX_READING_AGE_MILLIS: Time = 4000;

/// Returns the version of a config that an application has read.
pub(crate) fn version_in<'a>(values: &'a Values, config: &str) -> Option<&'a str> {
    values.get(&format!("nudge.config.{config}.version")).map(String::as_str)
}

/// Returns the version that a config assigns to a pod.
pub(crate) fn version_for<'a>(config: &'a Stored, pod: &Pod) -> Option<&'a str> {
    assigned(&config.status, &identity(config), &pod.uid, &pod.workload, &pod.labels)
}

/// Returns the identity of a config, written like a uid.
fn identity(config: &Stored) -> String {
    match &config.status.internal.identity {
        Some(text) if text.len() == 32 => {
            [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
        }
        _ => config.uid.clone(),
    }
}

/// Returns whether nothing moves, and nothing will move soon.
pub(crate) fn at_rest(config: &Stored) -> bool {
    let VersionedConfigStatus { observed_generation, target_version, rollout, .. } = &config.status;
    *observed_generation == Some(config.generation)
        && target_version.is_none()
        && rollout.stage.is_none()
        && [ConfigState::Current, ConfigState::Failed].contains(&config.status.state())
}

/// Returns the faults of placement at this time, from the events until then.
pub(crate) fn placement_faults(events: &[Event], now: Time) -> Vec<String> {
    let mut configs: BTreeMap<&str, Option<&Stored>> = BTreeMap::new();
    let mut pods: BTreeMap<&str, (&Pod, LastReads<'_>)> = BTreeMap::new();
    for event in events {
        match &event.what {
            Occurrence::Stored { config, object } => drop(configs.insert(config, object.as_deref())),
            Occurrence::PodCreated(pod) => drop(pods.insert(&pod.name, (pod, BTreeMap::new()))),
            Occurrence::PodDeleted { pod } => drop(pods.remove(pod.as_str())),
            Occurrence::Read { pod, how, values, .. } => {
                let Some((_, reads)) = pods.get_mut(pod.as_str()) else { continue };
                reads.insert(if *how == How::Files { "files" } else { "endpoint" }, (event.at, values));
                if [How::Started, How::Notified].contains(how) {
                    reads.insert(TOOK, (event.at, values));
                }
            }
            _ => {}
        }
    }
    let moving = configs.iter().filter_map(|(name, config)| {
        let config = config.filter(|config| !at_rest(config))?;
        Some(format!("config {name} is {} at {:?}", config.status.state().as_str(), config.status.rollout.stage))
    });
    let mut out: Vec<String> = moving.collect();
    for (pod, reads) in pods.values() {
        let last = |way| reads.get(way).map(|(_, values)| values);
        if last(TOOK) != last("endpoint") {
            out.push(format!("{} was not notified of what it has", pod.name));
        }
        for way in ["endpoint", "files"] {
            let Some((_, values)) = reads.get(way).filter(|(at, _)| at + MAX_READING_AGE_MILLIS >= now) else {
                out.push(format!("{} has read nothing at its {way}", pod.name));
                continue;
            };
            for config in &pod.configs {
                let Some(Some(stored)) = configs.get(config.as_str()) else { continue };
                let (read, assigned) = (version_in(values, config), version_for(stored, pod));
                if read != assigned {
                    out.push(format!("{} has {config} {read:?} at its {way} and is assigned {assigned:?}", pod.name));
                }
            }
        }
    }
    out
}
