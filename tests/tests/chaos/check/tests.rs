//! The checker on histories that are made up: of a fleet without events, and of the same fleet with a defect.

use std::collections::BTreeMap;

use nudge_api::{InternalStatus, Reason, RolloutFailure, RolloutStage, VersionedConfigStatus};
use nudge_tests::cluster::assigned::ALL;

use super::belongs::placement_faults;
use super::planted::{Planted, set_ready};
use super::{Property, Report};
use crate::history::{Event, Harms, History, How, Occurrence, Pod, Stored, Time, Values};

const PODS: [&str; 3] = ["web-1", "web-2", "web-3"];

/// A history under way.
#[derive(Default)]
struct HistoryBuilder {
    events: Vec<Event>,
    revision: u64,
    generation: i64,
    held: bool,
}

impl HistoryBuilder {
    fn note(&mut self, at: Time, what: Occurrence) {
        self.events.push(Event { at, what });
    }

    fn version(&mut self, version: &str, bad: bool) {
        self.note(0, Occurrence::VersionCreated { config: "shop".to_owned(), version: version.to_owned(), bad });
    }

    /// `wanted` is requested, and the config is like this.
    fn state(&mut self, at: Time, wanted: &str, change: impl FnOnce(&mut VersionedConfigStatus)) {
        self.revision += 1;
        let internal = InternalStatus { revision: self.revision, ..InternalStatus::default() };
        let (generation, observed_generation) = (self.generation, Some(self.generation));
        let mut status = VersionedConfigStatus { observed_generation, internal, ..VersionedConfigStatus::default() };
        change(&mut status);
        let wanted = Some(wanted.to_owned());
        let (uid, held) = ("uid".to_owned(), self.held);
        let object = Stored { uid, generation, wanted, held, dwell: 5000, bake: 5000, status };
        self.note(at, Occurrence::Stored { config: "shop".to_owned(), object: Some(Box::new(object)) });
    }

    fn at_rest(&mut self, at: Time, current: &str) {
        self.generation += 1;
        self.state(at, current, |status| {
            status.current_version = Some(current.to_owned());
            set_ready(status, true, Reason::Current);
        });
    }

    fn step(&mut self, at: Time, (current, target): (&str, &str), step: u32, threshold: u64, stage: RolloutStage) {
        self.state(at, target, |status| {
            (status.current_version, status.target_version) = (Some(current.to_owned()), Some(target.to_owned()));
            (status.rollout.step, status.internal.threshold) = (step, threshold);
            status.rollout.stage = Some(stage);
        });
    }

    fn note_failure(&mut self, at: Time, current: &str, target: &str) {
        self.note_failure_while(at, target, (current, target));
    }

    /// Notes a failure while another version is requested.
    fn note_failure_while(&mut self, at: Time, wanted: &str, (current, target): (&str, &str)) {
        self.state(at, wanted, |status| {
            status.current_version = Some(current.to_owned());
            set_ready(status, false, Reason::Failed);
            let (version, digest, message) = (target.to_owned(), String::new(), "unready".to_owned());
            let (reason, retry_time, overridden) = (Reason::PodNotReady, None, None);
            status.rollout.failure = Some(RolloutFailure { version, digest, retry_time, reason, message, overridden });
        });
    }

    fn note_pod(&mut self, at: Time, name: &str) {
        let pod = Pod {
            name: name.to_owned(),
            uid: name.to_owned(),
            workload: "Deployment/web".to_owned(),
            labels: BTreeMap::new(),
            configs: vec!["shop".to_owned()],
        };
        self.note(at, Occurrence::PodCreated(pod));
    }

    fn note_reading(&mut self, at: Time, pod: &str, life: u32, how: How, values: Values) {
        self.note(at, Occurrence::Read { pod: pod.to_owned(), life, how, values });
    }

    /// Looks at both ways, every second.
    fn note_readings(&mut self, from: Time, until: Time, pod: &str, version: &str, bad: bool) {
        for at in (from..until).step_by(1000) {
            for how in [How::Endpoint, How::Files] {
                self.note_reading(at, pod, 1, how, values(version, bad));
            }
        }
    }

    fn history(mut self) -> History {
        self.events.sort_by_key(|event| event.at);
        History { events: self.events }
    }
}

fn values(version: &str, bad: bool) -> Values {
    let value = |key: &str| (format!("shop.{key}"), format!("{key}@{version}"));
    let mut values_of_version = Values::from([value("text"), value("secret"), value(&format!("only-{version}"))]);
    values_of_version.extend(bad.then(|| value("bad")));
    values_of_version.insert("nudge.config.shop.version".to_owned(), version.to_owned());
    values_of_version.insert("nudge.configs".to_owned(), format!("shop={version}"));
    values_of_version
}

/// Version 1, then 2 for all of them, then 3, which is bad, for all of them, and back.
fn healthy() -> History {
    let mut builder = HistoryBuilder::default();
    for (version, bad) in [("1", false), ("2", false), ("3", true)] {
        builder.version(version, bad);
    }
    builder.at_rest(10, "1");
    for pod in PODS {
        builder.note_pod(20, pod);
    }
    builder.generation += 1;
    builder.step(10_000, ("1", "2"), 1, ALL / 2, RolloutStage::Moving);
    builder.step(16_000, ("1", "2"), 2, ALL, RolloutStage::Moving);
    builder.step(22_000, ("1", "2"), 2, ALL, RolloutStage::Baking);
    builder.at_rest(28_000, "2");
    builder.generation += 1;
    builder.step(50_000, ("2", "3"), 1, ALL, RolloutStage::Moving);
    builder.note_failure(54_000, "2", "3");
    for pod in PODS {
        builder.note_reading(100, pod, 1, How::Started, values("1", false));
        builder.note_readings(200, 16_100, pod, "1", false);
        builder.note_reading(17_100, pod, 1, How::Notified, values("2", false));
        builder.note_readings(17_200, 50_100, pod, "2", false);
        builder.note_reading(50_200, pod, 1, How::Notified, values("3", true));
        builder.note_readings(50_300, 54_000, pod, "3", true);
        builder.note_reading(54_200, pod, 1, How::Notified, values("2", false));
        builder.note_readings(54_300, 70_300, pod, "2", false);
    }
    builder.note(70_000, Occurrence::Settled);
    builder.history()
}

/// Returns what the checker finds in a history with more events.
fn violations_with(more: Vec<Event>) -> Vec<Property> {
    let mut events = [healthy().events, more].concat();
    events.sort_by_key(|event| event.at);
    Report::of(&History { events }).violations.into_iter().map(|finding| finding.property).collect()
}

#[test]
fn a_healthy_history_has_no_violation_and_is_decided() {
    let report = Report::of(&healthy());
    assert!(report.violations.is_empty() && report.undecided.is_empty() && report.is_decided(), "{report}");
    assert!(report.decided > 30, "{report}");
    assert_eq!(placement_faults(&healthy().events, 70_300), Vec::<String>::new());
    assert_eq!(placement_faults(&healthy().events, 90_000).len(), PODS.len() * 2);
}

#[test]
fn who_was_not_notified_of_what_it_has_is_not_placed() {
    let mut events = healthy().events;
    let notified =
        |event: &Event| matches!(&event.what, Occurrence::Read { pod, how: How::Notified, .. } if pod == "web-1");
    let last = events.iter().rposition(notified).unwrap();
    events.remove(last);
    assert_eq!(placement_faults(&events, 70_300), ["web-1 was not notified of what it has"]);
}

#[test]
fn each_planted_defect_is_found() {
    let planted = Planted::of(&healthy());
    assert!(planted.unfound.is_empty() && planted.unplanted.is_empty(), "{planted:?}");
}

#[test]
fn in_a_history_of_nothing_no_defect_is_found() {
    assert!(!Planted::of(&History::default()).unplanted.is_empty());
    assert!(!Report::of(&History::default()).violations.iter().any(|_| true));
}

#[test]
fn an_agent_that_was_killed_may_notify_again() {
    let again = |at| Event {
        at,
        what: Occurrence::Read { pod: "web-1".to_owned(), life: 1, how: How::Notified, values: values("2", false) },
    };
    assert_eq!(violations_with(vec![again(66_000)]), [Property::Once]);
    let killed = Event { at: 65_000, what: Occurrence::AgentKilled { pod: "web-1".to_owned() } };
    assert_eq!(violations_with(vec![killed, again(66_000)]), []);
}

#[test]
fn a_good_version_may_fail_where_a_fault_has_harmed_a_pod() {
    let mut history = healthy();
    for event in &mut history.events {
        if let Occurrence::VersionCreated { version, bad, .. } = &mut event.what {
            *bad = version == "9";
        }
        if let Occurrence::Read { values, .. } = &mut event.what {
            values.remove("shop.bad");
        }
    }
    let properties = |history: &History| -> Vec<Property> {
        Report::of(history).violations.iter().map(|finding| finding.property).collect()
    };
    assert_eq!(properties(&history), [Property::Good]);
    let fault = Occurrence::Fault { name: "kill: web-1".to_owned(), harms: Harms::Pod("web-1".to_owned()) };
    history.events.push(Event { at: 51_000, what: fault });
    assert_eq!(properties(&history), []);
}

#[test]
fn what_is_missing_of_the_record_can_not_be_decided() {
    let other = Event {
        at: 60_000,
        what: Occurrence::Read { pod: "web-1".to_owned(), life: 1, how: How::Endpoint, values: values("1", false) },
    };
    assert!(violations_with(vec![other.clone()]).contains(&Property::Order));
    let missed = Event { at: 55_000, what: Occurrence::Missed };
    let mut events = [healthy().events, vec![other, missed]].concat();
    events.sort_by_key(|event| event.at);
    let report = Report::of(&History { events });
    assert!(report.violations.is_empty() && report.undecided.len() == 1, "{report}");
}

fn read_of(at: Time, pod: &str, how: How, values: Values) -> Event {
    Event { at, what: Occurrence::Read { pod: pod.to_owned(), life: 1, how, values } }
}

#[test]
fn two_changes_together_may_be_read_at_both_signals() {
    // 3 was requested at 50 s and left at 54 s: both are over when the signals are dealt with.
    let again = read_of(57_000, "web-1", How::Notified, values("2", false));
    assert_eq!(violations_with(vec![again.clone()]), []);
    // But not much later.
    assert_eq!(violations_with(vec![Event { at: 60_000, ..again }]), [Property::Once]);
}

#[test]
fn of_a_deleted_config_what_was_last_good_is_served_and_to_no_newborn() {
    let gone = |at| Event { at, what: Occurrence::Stored { config: "shop".to_owned(), object: None } };
    let pod = |name: &str| {
        let healthy = healthy();
        let pod = healthy.events.iter().find_map(|event| match &event.what {
            Occurrence::PodCreated(pod) => Some(pod.clone()),
            _ => None,
        });
        Pod { name: name.to_owned(), uid: name.to_owned(), ..pod.unwrap() }
    };
    let born = Event { at: 71_000, what: Occurrence::PodCreated(pod("late")) };
    let kept = read_of(75_000, "web-1", How::Endpoint, values("2", false));
    let nothing = |at, pod| read_of(at, pod, How::Endpoint, Values::new());
    assert_eq!(violations_with(vec![gone(70_500), born.clone(), kept, nothing(75_000, "late")]), []);
    assert_eq!(violations_with(vec![gone(70_500), nothing(75_000, "web-1")]), [Property::Assigned]);
    let served = read_of(75_000, "late", How::Endpoint, values("2", false));
    assert_eq!(violations_with(vec![gone(70_500), born, served]), [Property::Assigned]);
}

/// Returns what is found where version 2 is assigned at 50 s and taken back at 100 s, and an application reads 1 until
/// 199.1 s, and 2 at 200 s.
fn violations_of_late_reading(contacts: &[(Time, Time)], fault: Option<(&str, Time, Time)>) -> Vec<Property> {
    let mut builder = HistoryBuilder::default();
    builder.version("1", false);
    builder.version("2", true);
    builder.at_rest(10, "1");
    builder.note_pod(20, "web-1");
    builder.generation += 1;
    builder.step(50_000, ("1", "2"), 1, ALL, RolloutStage::Moving);
    builder.note_failure(100_000, "1", "2");
    builder.note_reading(100, "web-1", 1, How::Started, values("1", false));
    for at in (1000..98_000).step_by(1000).chain([199_100]) {
        builder.note_reading(at, "web-1", 1, How::Endpoint, values("1", false));
    }
    builder.note_reading(200_000, "web-1", 1, How::Endpoint, values("2", true));
    for &(at, since) in contacts {
        builder.note(at, Occurrence::Contact { pod: "web-1".to_owned(), since });
    }
    if let Some((name, from, until)) = fault {
        builder.note(from, Occurrence::Fault { name: name.to_owned(), harms: Harms::Nobody });
        builder.note(until, Occurrence::Healed { name: name.to_owned() });
    }
    Report::of(&builder.history()).violations.into_iter().map(|finding| finding.property).collect()
}

#[test]
fn what_was_taken_back_is_not_read_later() {
    // Nothing is known of its contacts.
    assert_eq!(violations_of_late_reading(&[], None), [Property::Assigned]);
    assert_eq!(violations_of_late_reading(&[], Some(("late: hub-0", 70_000, 199_000))), []);
    assert_eq!(violations_of_late_reading(&[], Some(("late: hub-0", 170_000, 199_000))), [Property::Assigned]);
    // A hub may be late, but not for a connection that began afterwards.
    let hub = Some(("late: hub-0", 70_000, 199_000));
    assert_eq!(violations_of_late_reading(&[(199_900, 99_000)], hub), []);
    assert_eq!(violations_of_late_reading(&[(199_900, 101_000)], hub), [Property::Assigned]);
    assert_eq!(violations_of_late_reading(&[(199_900, 99_000)], None), [Property::Assigned]);
    // An agent has last heard something before it was taken back.
    assert_eq!(violations_of_late_reading(&[(99_000, 40_000)], None), []);
}

#[test]
fn an_agent_that_stood_still_serves_what_had_arrived() {
    let contacts = [(99_000, 40_000), (199_950, 199_940)];
    assert_eq!(violations_of_late_reading(&contacts, Some(("stop: agent of pod 1", 98_000, 199_000))), []);
    assert_eq!(violations_of_late_reading(&contacts, Some(("late: hub-0", 98_000, 199_000))), [Property::Assigned]);
}

#[test]
fn a_version_that_is_overtaken_need_not_end() {
    let mut builder = HistoryBuilder::default();
    for version in ["1", "2", "3"] {
        builder.version(version, false);
    }
    builder.at_rest(10, "1");
    builder.generation += 1;
    builder.step(10_000, ("1", "2"), 1, ALL / 2, RolloutStage::Moving);
    builder.generation += 1;
    builder.step(12_000, ("1", "3"), 1, ALL / 2, RolloutStage::Moving);
    let overtaken = Report::of(&History { events: builder.events.clone() });
    assert!(overtaken.violations.is_empty() && overtaken.overtaken == 2, "{overtaken}");
    // What nothing overtakes must.
    builder.note(900_000, Occurrence::Healed { name: "time".to_owned() });
    let report = Report::of(&builder.history());
    assert_eq!(report.violations.iter().map(|finding| finding.property).collect::<Vec<_>>(), [Property::Good]);
}

/// Returns what is found where version 2 is assigned at 10 s, its config is on hold from 12 s on, and then this
/// happens.
fn on_hold(bad: bool, then: impl FnOnce(&mut HistoryBuilder)) -> Vec<Property> {
    let mut builder = HistoryBuilder::default();
    builder.version("1", false);
    builder.version("2", bad);
    builder.at_rest(10, "1");
    builder.generation += 1;
    builder.step(10_000, ("1", "2"), 1, ALL / 2, RolloutStage::Moving);
    builder.held = true;
    builder.generation += 1;
    builder.step(12_000, ("1", "2"), 1, ALL / 2, RolloutStage::Moving);
    then(&mut builder);
    Report::of(&builder.history()).violations.into_iter().map(|finding| finding.property).collect()
}

#[test]
fn on_hold_nothing_continues_and_a_bad_version_goes_back() {
    let step = |at, number, stage| move |made: &mut HistoryBuilder| made.step(at, ("1", "2"), number, ALL, stage);
    assert_eq!(on_hold(true, |made| made.note_failure(20_000, "1", "2")), []);
    assert_eq!(on_hold(false, step(20_000, 2, RolloutStage::Moving)), [Property::Hold]);
    assert_eq!(on_hold(false, step(20_000, 1, RolloutStage::Restarting)), [Property::Hold]);
    assert_eq!(on_hold(false, |made| made.at_rest(20_000, "2")), [Property::Hold]);
    assert_eq!(on_hold(false, step(20_000, 1, RolloutStage::Baking)), []);
    let over = on_hold(false, |made| {
        made.held = false;
        made.step(20_000, ("1", "2"), 2, ALL, RolloutStage::Moving);
    });
    assert_eq!(over, []);
    // Another version waits until the hold ends.
    let another = |held: bool| {
        on_hold(true, move |made| {
            made.version("3", false);
            made.note_failure(20_000, "1", "2");
            made.state(30_000, "3", |status| {
                (status.current_version, status.target_version) = (Some("1".to_owned()), Some("3".to_owned()));
            });
            made.held = held;
            made.step(40_000, ("1", "3"), 1, ALL / 2, RolloutStage::Moving);
        })
    };
    assert_eq!((another(true), another(false)), (vec![Property::Hold], vec![]));
}

#[test]
fn a_version_that_failed_is_not_tried_again_where_nobody_saw_another_one() {
    let mut builder = HistoryBuilder::default();
    for (version, bad) in [("1", false), ("2", false), ("3", true)] {
        builder.version(version, bad);
    }
    builder.at_rest(10, "1");
    builder.step(10_000, ("1", "2"), 1, ALL / 2, RolloutStage::Moving);
    builder.note(11_000, Occurrence::Fault { name: "kill: web-1".to_owned(), harms: Harms::Everybody });
    builder.note(12_000, Occurrence::Healed { name: "kill: web-1".to_owned() });
    builder.note_failure(20_000, "1", "2");
    builder.note_failure_while(30_000, "3", ("1", "2"));
    builder.note_failure(31_000, "1", "2");
    builder.note(900_000, Occurrence::Healed { name: "time".to_owned() });
    let report = Report::of(&builder.history());
    assert!(report.violations.is_empty() && report.overtaken == 1, "{report}");
}

#[test]
fn a_bad_version_that_is_overtaken_never_becomes_current() {
    let mut builder = HistoryBuilder::default();
    for (version, bad) in [("1", false), ("2", true), ("3", false)] {
        builder.version(version, bad);
    }
    builder.at_rest(10, "1");
    builder.generation += 1;
    builder.step(10_000, ("1", "2"), 1, ALL / 2, RolloutStage::Moving);
    builder.generation += 1;
    builder.step(12_000, ("2", "3"), 1, ALL / 2, RolloutStage::Moving);
    let report = Report::of(&builder.history());
    assert_eq!(report.violations.iter().map(|finding| finding.property).collect::<Vec<_>>(), [Property::Bad]);
}
