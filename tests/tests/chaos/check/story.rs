//! A history by config and by pod, with the faults.

use std::collections::BTreeMap;

use super::belongs::version_for;
use crate::history::{Event, Harms, History, How, Occurrence, Pod, Stored, Time, Values};

/// A reading of an application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<'a> {
    pub(super) at: Time,
    pub(super) life: u32,
    pub(super) how: How,
    pub(super) values: &'a Values,
}

/// A hub has answered, over a connection that began then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contact {
    pub(super) at: Time,
    pub(super) since: Time,
}

/// A pod, and what happened to it.
#[derive(Debug)]
pub(super) struct PodStory<'a> {
    pub(super) pod: &'a Pod,
    pub(super) born: Time,
    pub(super) gone: Option<Time>,
    pub(super) reads: Vec<Read<'a>>,
    pub(super) agent_killed: Vec<Time>,
    pub(super) contacts: Vec<Contact>,
    /// What each of its configs assigned to it: what held at its birth, and every change since.
    pub(super) assigned: BTreeMap<&'a str, Vec<Assignment<'a>>>,
}

impl<'a> PodStory<'a> {
    /// Returns what a config of it assigned to it.
    pub(super) fn assigned(&self, config: &str) -> &[Assignment<'a>] {
        self.assigned.get(config).map_or(&[], Vec::as_slice)
    }

    /// Returns whether it is there at this time.
    pub(super) fn lives_at(&self, at: Time) -> bool {
        self.born <= at && self.gone.is_none_or(|gone| gone > at)
    }

    /// Returns its last reading that is like this, until a time.
    pub(super) fn last(&self, until: Time, like: impl Fn(&Read<'_>) -> bool) -> Option<Read<'a>> {
        self.reads.iter().rev().find(|read| read.at <= until && like(read)).copied()
    }
}

/// A fault, with its time.
#[derive(Debug)]
pub(super) struct FaultStory<'a> {
    pub(super) name: &'a str,
    pub(super) harms: &'a Harms,
    pub(super) from: Time,
    pub(super) until: Time,
}

/// What a config assigns to a pod from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment<'a> {
    pub(super) at: Time,
    pub(super) version: Option<&'a str>,
}

/// The history of a run, by config and by pod.
#[derive(Debug, Default)]
pub(super) struct Story<'a> {
    pub(super) configs: BTreeMap<&'a str, Vec<(Time, Option<&'a Stored>)>>,
    pub(super) pods: Vec<PodStory<'a>>,
    pub(super) faults: Vec<FaultStory<'a>>,
    pub(super) bad: BTreeMap<(&'a str, &'a str), bool>,
    pub(super) settled: Vec<Time>,
    pub(super) missed: Vec<Time>,
    pub(super) leaked: Vec<(Time, &'a str)>,
    pub(super) end: Time,
}

impl<'a> Story<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut story = Self { end: history.end(), ..Self::default() };
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for Event { at, what } in &history.events {
            let at = *at;
            match what {
                Occurrence::Stored { config, object } => {
                    story.configs.entry(config).or_default().push((at, object.as_deref()));
                }
                Occurrence::Missed | Occurrence::Restored => story.missed.push(at),
                Occurrence::VersionCreated { config, version, bad } => drop(story.bad.insert((config, version), *bad)),
                Occurrence::PodCreated(pod) => {
                    numbers.insert(&pod.name, story.pods.len());
                    let (reads, agent_killed, contacts, assigned) = Default::default();
                    story.pods.push(PodStory { pod, born: at, gone: None, reads, agent_killed, contacts, assigned });
                }
                Occurrence::PodDeleted { pod } => {
                    if let Some(place) = numbers.get(pod.as_str()).copied() {
                        story.pods[place].gone = Some(at);
                    }
                }
                Occurrence::AgentKilled { pod } => {
                    if let Some(place) = numbers.get(pod.as_str()).copied() {
                        story.pods[place].agent_killed.push(at);
                    }
                }
                Occurrence::Contact { pod, since } => {
                    if let Some(place) = numbers.get(pod.as_str()).copied() {
                        story.pods[place].contacts.push(Contact { at, since: *since });
                    }
                }
                Occurrence::Read { pod, life, how, values } => {
                    let read = Read { at, life: *life, how: *how, values };
                    if let Some(place) = numbers.get(pod.as_str()).copied() {
                        story.pods[place].reads.push(read);
                    }
                }
                Occurrence::Fault { name, harms } => {
                    story.faults.push(FaultStory { name, harms, from: at, until: Time::MAX });
                }
                Occurrence::Healed { name } => {
                    let open = |fault: &&mut FaultStory<'_>| fault.name == name && fault.until == Time::MAX;
                    story.faults.iter_mut().find(open).into_iter().for_each(|fault| fault.until = at);
                }
                Occurrence::Settled => story.settled.push(at),
                Occurrence::Leaked { place } => story.leaked.push((at, place)),
            }
        }
        for pod in &mut story.pods {
            let configs = pod.pod.configs.iter().map(String::as_str);
            pod.assigned =
                configs.map(|config| (config, assignments(story.configs.get(config), pod.pod, pod.born))).collect();
        }
        story
    }

    /// Returns what etcd holds of a config at a time.
    pub(super) fn stored(&self, config: &str, at: Time) -> Option<&'a Stored> {
        let states = self.configs.get(config)?;
        states.iter().rev().find(|(since, _)| *since <= at)?.1
    }

    /// Returns whether a part of the history is missing in between.
    pub(super) fn missed(&self, from: Time, until: Time) -> bool {
        self.missed.iter().any(|at| (from..=until).contains(at))
    }

    /// Returns for how long there was a fault in between, other than acts of users.
    pub(super) fn fault_time(&self, from: Time, until: Time) -> Time {
        let (mut total, mut covered) = (0, from);
        for fault in
            self.faults.iter().filter(|fault| !fault.name.starts_with("version") || fault.name.contains("Held"))
        {
            let (begin, end) = (fault.from.max(covered), fault.until.min(until));
            if begin < end {
                total += end - begin;
                covered = end;
            }
        }
        total
    }

    /// Returns the moment that is `long` before a time, where the time of faults does not count.
    pub(super) fn before(&self, at: Time, long: Time) -> Time {
        let mut since = at.saturating_sub(long);
        loop {
            let further = at.saturating_sub(long + self.fault_time(since, at));
            if further >= since {
                return since;
            }
            since = further;
        }
    }
}

fn assignments<'a>(states: Option<&Vec<(Time, Option<&'a Stored>)>>, pod: &Pod, born: Time) -> Vec<Assignment<'a>> {
    let mut out: Vec<Assignment<'a>> = Vec::new();
    for (at, stored) in states.into_iter().flatten() {
        let version = stored.and_then(|stored| version_for(stored, pod));
        if *at <= born {
            out.clear();
        }
        if out.last().is_none_or(|last| last.version != version) {
            out.push(Assignment { at: *at, version });
        }
    }
    out
}
