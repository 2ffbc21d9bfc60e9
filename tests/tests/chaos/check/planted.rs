//! Defects that are planted into a history: a checker that does not find each of them in a run has not checked that
//! run.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConditionType, Reason, RolloutStage, VersionedConfigStatus, condition, set_condition};

use super::assigned::RECORD_DELAY_MILLIS;
use super::belongs::{MAX_READING_AGE_MILLIS, version_in};
use super::rollouts::ROLLOUT_TIMEOUT_MILLIS;
use super::story::Story;
use super::{Property, Report};
use crate::history::{Event, History, How, Occurrence, Pod, Stored, Time, Values};

/// Plants a defect; `None` where the history has no place for it.
type Plant = fn(&History) -> Option<History>;

/// The defects, each with the property that it violates.
const PLANTS: [(&str, Property, Plant); 15] = [
    ("a skipped dwell", Property::Dwell, skipped_dwell),
    ("a skipped bake", Property::Dwell, skipped_bake),
    ("a step on hold", Property::Hold, step_on_hold),
    ("a lost notification", Property::Notified, lost_notification),
    ("a second notification", Property::Once, second_notification),
    ("a stale assignment", Property::Assigned, stale_assignment),
    ("a version that was taken back, by a hub that knew better", Property::Assigned, taken_back_before_contact),
    ("a version that was taken back long ago", Property::Assigned, taken_back_long_ago),
    ("a way back in revision", Property::Order, way_back),
    ("a mix of two versions", Property::Whole, mix),
    ("a wrong end", Property::Placed, wrong_end),
    ("a bad version that becomes current", Property::Bad, bad_becomes_current),
    ("a good version that never ends", Property::Good, never_ends),
    ("a deleted config for a newborn", Property::Assigned, deleted_for_newborn),
    ("a secret in a log", Property::Secret, leak),
];

/// The result of planting the defects.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    /// The defects that are not found once they are planted.
    pub(crate) unfound: Vec<&'static str>,
    /// The defects for which the history has no place.
    pub(crate) unplanted: Vec<&'static str>,
}

impl Planted {
    /// Plants each defect into this history.
    pub(crate) fn of(history: &History) -> Self {
        let mut planted_defects = Self::default();
        for (name, property, plant) in PLANTS {
            let Some(planted) = plant(history) else {
                planted_defects.unplanted.push(name);
                continue;
            };
            if Report::of(&planted).violations.iter().all(|finding| finding.property != property) {
                planted_defects.unfound.push(name);
            }
        }
        planted_defects
    }
}

fn sorted(mut events: Vec<Event>) -> History {
    events.sort_by_key(|event| event.at);
    History { events }
}

/// Says by the condition Ready where a config stands whose pods are not moved.
pub(super) fn set_ready(status: &mut VersionedConfigStatus, ready: bool, reason: Reason) {
    let long_ago = MetaTime(Timestamp::UNIX_EPOCH);
    set_condition(&mut status.conditions, condition(ConditionType::Ready, ready, reason, "", None, &long_ago));
}

/// Returns the states of each config, with their places in the history.
fn states<'a>(history: &'a History, config: &str) -> Vec<(usize, Time, Option<&'a Stored>)> {
    let events = history.events.iter().enumerate();
    let config_states = events.filter_map(|(index, event)| match &event.what {
        Occurrence::Stored { config: config_states, object } if config_states == config => {
            Some((index, event.at, object.as_deref()))
        }
        _ => None,
    });
    config_states.collect()
}

fn configs(history: &History) -> BTreeSet<&str> {
    let named = history.events.iter().filter_map(|event| match &event.what {
        Occurrence::Stored { config, .. } => Some(config.as_str()),
        _ => None,
    });
    named.collect()
}

/// Puts the state at `late` right behind the one at `early`, and drops those of the config in between.
fn without_states_between(history: &History, config: &str, early: usize, late: usize) -> History {
    let drop: BTreeSet<usize> =
        states(history, config).iter().map(|state| state.0).filter(|index| (early + 1..late).contains(index)).collect();
    let mut events = history.events.clone();
    events[late].at = events[early].at + 1;
    let kept = events.into_iter().enumerate().filter(|(index, _)| !drop.contains(index));
    sorted(kept.map(|(_, event)| event).collect())
}

fn skipped_dwell(history: &History) -> Option<History> {
    configs(history).into_iter().find_map(|config| {
        let states = states(history, config);
        let mut stepped = None;
        for pair in states.windows(2) {
            let ((.., Some(before)), (index, _, Some(after))) = (pair[0], pair[1]) else { continue };
            let (old, new) = (&before.status.rollout, &after.status.rollout);
            if before.status.target_version != after.status.target_version {
                stepped = None;
            }
            if new.step > old.step && after.status.target_version.is_some() {
                if let Some(early) = stepped.filter(|_| after.dwell > 0 && old.step > 0) {
                    return Some(without_states_between(history, config, early, index));
                }
                stepped = Some(index);
            }
        }
        None
    })
}

fn skipped_bake(history: &History) -> Option<History> {
    configs(history).into_iter().find_map(|config| {
        let states = states(history, config);
        let baking = |stored: &Stored| stored.status.rollout.stage == Some(RolloutStage::Baking);
        let mut began = None;
        for pair in states.windows(2) {
            let ((.., Some(before)), (index, _, Some(after))) = (pair[0], pair[1]) else { continue };
            match (baking(before), baking(after)) {
                (false, true) => began = Some(index),
                (true, false) if after.status.rollout.failure == before.status.rollout.failure && after.bake > 0 => {
                    let forward = after.status.current_version == before.status.target_version
                        || after.status.rollout.stage == Some(RolloutStage::Restarting);
                    if let Some(early) = began.filter(|_| forward) {
                        return Some(without_states_between(history, config, early, index));
                    }
                }
                _ => {}
            }
        }
        None
    })
}

fn step_on_hold(history: &History) -> Option<History> {
    let story = Story::of(history);
    configs(history).into_iter().find_map(|config| {
        let states = states(history, config);
        let pair = states.windows(2).find(|pair| {
            let ((_, from, Some(before)), (_, at, Some(after))) = (pair[0], pair[1]) else { return false };
            let (old, new) = (&before.status, &after.status);
            let moves = old.rollout.stage == Some(RolloutStage::Moving) && old.target_version == new.target_version;
            moves && new.rollout.step > old.rollout.step && before.uid == after.uid && !story.missed(from, at)
        })?;
        let mut planted = history.clone();
        for (index, ..) in pair {
            if let Occurrence::Stored { object: Some(object), .. } = &mut planted.events[*index].what {
                object.held = true;
            }
        }
        Some(planted)
    })
}

fn read(event: &Event) -> Option<(&str, u32, How, &Values)> {
    match &event.what {
        Occurrence::Read { pod, life, how, values } => Some((pod, *life, *how, values)),
        _ => None,
    }
}

fn is_notified(event: &Event) -> bool {
    read(event).is_some_and(|(_, _, how, _)| how == How::Notified)
}

fn lost_notification(history: &History) -> Option<History> {
    let story = Story::of(history);
    story.settled.iter().find_map(|&settled| {
        story.pods.iter().filter(|pod| pod.lives_at(settled)).find_map(|pod| {
            let last = pod.last(settled, |read| read.how == How::Notified)?;
            let now = pod.last(settled, |read| read.how == How::Endpoint)?;
            let before = pod.last(last.at.checked_sub(1)?, |read| [How::Started, How::Notified].contains(&read.how))?;
            (now.life == last.life && before.life == last.life && before.values != last.values).then_some(())?;
            let is_it = |event: &Event| {
                let this = read(event).is_some_and(|(name, ..)| name == pod.pod.name);
                this && is_notified(event) && event.at == last.at
            };
            Some(History { events: history.events.iter().filter(|event| !is_it(event)).cloned().collect() })
        })
    })
}

fn second_notification(history: &History) -> Option<History> {
    const REPEAT_DELAY_MILLIS: Time = 6000;
    let story = Story::of(history);
    history.events.iter().filter(|event| is_notified(event)).find_map(|event| {
        let (name, life, _, values) = read(event)?;
        let pod = story.pods.iter().find(|pod| pod.pod.name == name)?;
        let until = event.at + REPEAT_DELAY_MILLIS;
        let other = |at: Time| (event.at.saturating_sub(REPEAT_DELAY_MILLIS)..=until).contains(&at);
        let calm = !pod.agent_killed.iter().any(|&at| other(at))
            && !story.faults.iter().any(|fault| {
                fault.name.starts_with("stop") && fault.from <= until && fault.until + REPEAT_DELAY_MILLIS >= event.at
            })
            && pod
                .reads
                .iter()
                .filter(|read| read.at > event.at && read.at <= until)
                .all(|read| read.life == life && read.how != How::Notified)
            && pod
                .pod
                .configs
                .iter()
                .all(|config| pod.assigned(config).iter().all(|change| !(event.at..=until).contains(&change.at)));
        calm.then_some(())?;
        let what = Occurrence::Read { pod: name.to_owned(), life, how: How::Notified, values: values.clone() };
        Some(sorted([history.events.clone(), vec![Event { at: until, what }]].concat()))
    })
}

/// Returns a reading at the endpoint that has another version of a config, whole.
fn with_version(values: &Values, config: &str, version: &str) -> Values {
    let prefix = format!("{config}.");
    let mut values: Values = values
        .iter()
        .filter(|(key, _)| !key.starts_with(&prefix))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    values.insert(format!("nudge.config.{config}.version"), version.to_owned());
    for key in ["text".to_owned(), "secret".to_owned(), format!("only-{version}")] {
        values.insert(format!("{prefix}{key}"), format!("planted@{version}"));
    }
    values
}

fn stale_assignment(history: &History) -> Option<History> {
    let story = Story::of(history);
    let pod = story.pods.iter().find(|pod| !pod.reads.is_empty())?;
    let (config, last) = (pod.pod.configs.first()?, pod.reads.last()?);
    let version = "planted".to_owned();
    let values = with_version(last.values, config, &version);
    let creation = Occurrence::VersionCreated { config: config.clone(), version, bad: false };
    let what = Occurrence::Read { pod: pod.pod.name.clone(), life: last.life, how: How::Endpoint, values };
    Some(sorted(
        [vec![Event { at: 0, what: creation }], history.events.clone(), vec![Event { at: last.at + 1, what }]].concat(),
    ))
}

fn taken_back_before_contact(history: &History) -> Option<History> {
    taken_back(history, true)
}

fn taken_back_long_ago(history: &History) -> Option<History> {
    taken_back(history, false)
}

/// Returns a pod that hears nothing while it is assigned a version, and has it when it is over: at once, over a
/// connection that began then, or, of a pod of which no contact is known, after a long time.
fn taken_back(history: &History, contact: bool) -> Option<History> {
    let story = Story::of(history);
    let mut pods = story.pods.iter().filter(|pod| !pod.reads.is_empty());
    let (pod, config, version, from, over) = pods.find_map(|pod| {
        pod.pod.configs.iter().find_map(|config| {
            let assigned = pod.assigned(config);
            assigned.windows(2).enumerate().find_map(|(index, pair)| {
                let again = assigned[index + 1..].iter().any(|one| one.version == pair[0].version);
                (!again).then_some((pod, config, pair[0].version?, pair[0].at, pair[1].at))
            })
        })
    })?;
    let (name, read) = (&pod.pod.name, pod.reads.first()?);
    let at = if contact { over + 2 } else { history.end() + ROLLOUT_TIMEOUT_MILLIS };
    let is_dropped = |event: &Event| match &event.what {
        Occurrence::Read { pod, .. } => pod == name && event.at + RECORD_DELAY_MILLIS >= from,
        Occurrence::Contact { pod, .. } => pod == name,
        _ => false,
    };
    let mut events: Vec<Event> = history.events.iter().filter(|event| !is_dropped(event)).cloned().collect();
    let heard = Occurrence::Contact { pod: name.clone(), since: over + 1 };
    events.extend(contact.then_some(Event { at: over + 1, what: heard }));
    let values = with_version(read.values, config, version);
    let what = Occurrence::Read { pod: name.clone(), life: read.life, how: How::Endpoint, values };
    events.push(Event { at, what });
    Some(sorted(events))
}

fn way_back(history: &History) -> Option<History> {
    let story = Story::of(history);
    story.pods.iter().find_map(|pod| {
        pod.pod.configs.iter().find_map(|config| {
            let reads = pod.reads.iter().filter(|read| read.how == How::Endpoint);
            let versions_read: Vec<_> =
                reads.filter_map(|read| Some((read, version_in(read.values, config)?))).collect();
            let (last, newest) = versions_read.last()?;
            let assigned = pod.assigned(config);
            let since = assigned.iter().rposition(|one| one.version == Some(newest) && one.at <= last.at)?;
            // One that was not assigned again.
            let is_over = |version: &str| assigned[since..].iter().all(|one| one.version != Some(version));
            let (old, _) = versions_read.iter().find(|(_, version)| version != newest && is_over(version))?;
            let values = old.values.clone();
            let what = Occurrence::Read { pod: pod.pod.name.clone(), life: last.life, how: How::Endpoint, values };
            Some(sorted([history.events.clone(), vec![Event { at: last.at + 1, what }]].concat()))
        })
    })
}

fn mix(history: &History) -> Option<History> {
    let mut planted = history.clone();
    let values = planted.events.iter_mut().find_map(|event| match &mut event.what {
        Occurrence::Read { values, .. } if values.len() > 3 => Some(values),
        _ => None,
    })?;
    let (_, value) = values.iter_mut().find(|(key, _)| key.contains(".text"))?;
    value.push_str("-of-another");
    Some(planted)
}

fn wrong_end(history: &History) -> Option<History> {
    let story = Story::of(history);
    let &settled = story.settled.last()?;
    let pod = story.pods.iter().find(|pod| {
        pod.lives_at(settled)
            && pod
                .last(settled, |read| read.how == How::Endpoint)
                .is_some_and(|read| read.at + MAX_READING_AGE_MILLIS > settled)
    })?;
    let (name, config) = (pod.pod.name.clone(), pod.pod.configs.first()?.clone());
    let mut planted = history.clone();
    for event in &mut planted.events {
        match &mut event.what {
            Occurrence::Read { pod, values, .. } if *pod == name && event.at + MAX_READING_AGE_MILLIS > settled => {
                *values = with_version(values, &config, "planted");
            }
            _ => {}
        }
    }
    Some(planted)
}

fn bad_becomes_current(history: &History) -> Option<History> {
    let story = Story::of(history);
    let mut planted = history.clone();
    for event in &mut planted.events {
        let Occurrence::Stored { config, object: Some(object) } = &mut event.what else { continue };
        let Some(version) = object.wanted.clone() else { continue };
        let bad = story.bad.get(&(config.as_str(), version.as_str())).copied().unwrap_or_default();
        if bad && object.status.observed_generation == Some(object.generation) {
            object.status.current_version = Some(version);
            (object.status.rollout.stage, object.status.rollout.failure) = (None, None);
            set_ready(&mut object.status, true, Reason::Current);
            return Some(planted);
        }
    }
    None
}

fn never_ends(history: &History) -> Option<History> {
    let story = Story::of(history);
    configs(history).into_iter().find_map(|config| {
        let states = states(history, config);
        // A good version that has just been requested: nothing is heard of it any more.
        let (last, ..) = states.iter().find(|(.., stored)| {
            let wanted = stored.and_then(|stored| {
                let wanted = stored.wanted.as_deref()?;
                Some((wanted, stored.status.current_version.as_deref()))
            });
            wanted.is_some_and(|(wanted, current)| {
                current != Some(wanted) && story.bad.get(&(config, wanted)) == Some(&false)
            })
        })?;
        let drop: BTreeSet<usize> = states.iter().map(|state| state.0).filter(|index| index > last).collect();
        let kept = history.events.iter().enumerate().filter(|(index, _)| !drop.contains(index));
        let mut events: Vec<Event> = kept.map(|(_, event)| event.clone()).collect();
        // Long enough for anything.
        events.push(Event { at: history.end() * 2 + ROLLOUT_TIMEOUT_MILLIS * 2, what: Occurrence::Settled });
        Some(History { events })
    })
}

fn deleted_for_newborn(history: &History) -> Option<History> {
    let story = Story::of(history);
    let parent = story.pods.iter().find(|pod| !pod.reads.is_empty())?;
    let read = parent.reads.last()?;
    let pod = Pod { name: "newborn".to_owned(), uid: "newborn".to_owned(), ..parent.pod.clone() };
    let end = history.end();
    let gone = pod.configs.iter().map(|config| Occurrence::Stored { config: config.clone(), object: None });
    let reading = Occurrence::Read { pod: pod.name.clone(), life: 1, how: How::Started, values: read.values.clone() };
    let occurrences = gone.chain([Occurrence::PodCreated(pod.clone()), reading]);
    let events = occurrences.zip(end + 1..).map(|(what, at)| Event { at, what }).collect();
    Some(sorted([history.events.clone(), events].concat()))
}

fn leak(history: &History) -> Option<History> {
    let last = history.events.last()?.at;
    let what = Occurrence::Leaked { place: "a log".to_owned() };
    Some(sorted([history.events.clone(), vec![Event { at: last, what }]].concat()))
}
