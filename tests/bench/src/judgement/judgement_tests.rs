//! The simulation itself: it is repeatable, and its kubelets, nodes and controllers behave like those of a cluster.

use super::cell::{Cell, cells};
use super::cluster::Cluster;
use super::judge::{Judge, Look, Millis, Progress, SECOND, Version, View};
use super::statistics::at_least;
use super::targets::{few_runs, is_missed};
use super::versions::{Kind, Target};
use super::weather::Weather;
use super::{Budget, simulate};

/// Assigns the target to all pods at once, or to none, and keeps a diary of the first pod.
#[derive(Default)]
struct Onlooker {
    assigns: bool,
    looks: u32,
    /// When its readiness or its restarts changed, and to what.
    diary: Vec<(Millis, bool, i32)>,
}

impl Judge for Onlooker {
    fn look(&mut self, now: Millis, view: &View) -> Look {
        self.looks += 1;
        let pod = &view.pods[0];
        let state = (pod.ready, pod.restarts);
        if self.diary.last().is_none_or(|&(_, ready, restarts)| (ready, restarts) != state) {
            self.diary.push((now, state.0, state.1));
        }
        let reassigned = self.looks == 1;
        Look { progress: Progress::Moving, reassigned, again: None, message: String::new() }
    }

    fn assigned(&self, _: &View, _: usize) -> Version {
        if self.assigns { Version::Target } else { Version::Current }
    }

    fn hand_over(&mut self) {}
}

fn cell(weather: Weather, version: Target, fleet: usize) -> Cell {
    let mut all = cells(0.0).into_iter();
    let template = all.next().unwrap();
    Cell { weather, version, fleet, ..template }
}

/// Returns the diary of the first pod when all take this version.
fn diary(version: Target, seed: u64) -> Vec<(Millis, bool, i32)> {
    let cell = cell(Weather::Calm, version, 1);
    let mut cluster = Cluster::new(&cell, seed, Onlooker { assigns: true, ..Onlooker::default() });
    cluster.play();
    cluster.judge.diary
}

#[test]
fn the_same_seed_gives_the_same_runs_by_any_number_of_workers() {
    let cell = Cell { harms_a_week: 50.0, ..cell(Weather::Drain, Target::GOOD, 8) };
    let all = |seed, jobs| format!("{:?}", simulate(&cell, &Budget { runs: 50, pods: u64::MAX, seed, jobs }).1);
    assert_eq!(all(1, 1), all(1, 2));
    assert_ne!(all(1, 1), all(2, 1));
}

#[test]
fn a_probe_of_default_timing_notices_within_20_and_32_seconds() {
    let noticed: Vec<Millis> = (0..200)
        .map(|seed| {
            let diary = diary(Target::new(Kind::Unready, 100), seed);
            assert_eq!((diary.len(), diary[1].1, diary[1].2 - diary[0].2), (2, false, 0), "{diary:?}");
            diary[1].0
        })
        .collect();
    let (first, last) = (noticed.iter().min().unwrap(), noticed.iter().max().unwrap());
    assert!((20 * SECOND..23 * SECOND).contains(first) && (29 * SECOND..32 * SECOND).contains(last), "{first}, {last}");
}

#[test]
fn a_kubelet_waits_longer_and_longer_between_restarts() {
    let diary = diary(Target::new(Kind::Crash, 100), 1);
    assert!(diary[1].0 < 5 * SECOND && !diary[1].1, "seen at once: {diary:?}");
    let times: Vec<Millis> = diary.windows(2).filter(|two| two[1].2 > two[0].2).map(|two| two[1].0).collect();
    let gaps: Vec<Millis> = times.windows(2).map(|two| two[1] - two[0]).collect();
    for (gap, pause) in gaps.iter().zip([10, 20, 40, 80, 160, 300, 300]) {
        assert!((pause * SECOND..(pause + 5) * SECOND).contains(gap), "{gaps:?}");
    }
    assert!(gaps.len() >= 20, "{gaps:?}");
}

#[test]
fn what_harms_at_starts_alone_harms_no_pod_that_runs() {
    assert_eq!(diary(Target::new(Kind::CrashAtStart, 100), 1).len(), 1);
}

#[test]
fn after_all_weathers_the_fleet_is_whole_and_well() {
    let weathers: Vec<Weather> =
        cells(0.0).into_iter().filter(|cell| !cell.version.is_bad()).map(|cell| cell.weather).collect();
    for (seed, weather) in (0..).zip(weathers) {
        for fleet in [1, 3, 40] {
            let cell = cell(weather, Target::GOOD, fleet);
            let mut cluster = Cluster::new(&cell, seed, Onlooker::default());
            cluster.play();
            let alive = || cluster.view.pods.iter().filter(|pod| !pod.gone && !pod.terminating && !pod.ending);
            let born = if weather == Weather::Scaling { if fleet <= 3 { 57 } else { (fleet / 2).max(2) } } else { 0 };
            assert_eq!(alive().count(), fleet + born, "{weather} {fleet}");
            // Pods of Jobs come and go all the time.
            let ready = alive().filter(|pod| pod.ready || pod.node.is_none()).count();
            assert!(ready == fleet + born || weather == Weather::Jobs, "{weather} {fleet}: {ready}");
            let unscheduled = alive().filter(|pod| pod.node.is_none()).count();
            assert!(unscheduled == born / 3 || weather == Weather::Jobs, "{weather} {fleet}: {unscheduled}");
            assert!(cluster.view.nodes.iter().all(|node| node.ready), "{weather}");
        }
    }
}

#[test]
fn weather_is_seen_by_those_who_look() {
    let read = |weather: Weather| {
        let cell = cell(weather, Target::GOOD, 1);
        let mut cluster = Cluster::new(&cell, 5, Onlooker::default());
        cluster.play();
        (cluster.view, cluster.judge.diary)
    };
    let (rebooted, diary) = read(Weather::Reboot);
    assert_eq!((rebooted.nodes[0].boot, diary.len() >= 3), (1, true));
    assert_eq!(rebooted.pods[0].agent_restarts, 1);
    assert_eq!(rebooted.pods.len(), 1);
    let (drained, _) = read(Weather::Drain);
    assert!(drained.pods[0].disrupted && drained.pods.len() == 2);
    let (rolled, _) = read(Weather::Image);
    assert!(!rolled.pods[0].disrupted && rolled.pods[1].template == 1);
    let (killed, _) = read(Weather::Sidecar);
    assert_eq!((killed.pods[0].sidecar_restarts, killed.pods[0].gone), (1, false));
    let (restarted, diary) = read(Weather::KubeletRestart);
    let states: Vec<bool> = diary.iter().map(|entry| entry.1).collect();
    assert_eq!(states, [true, false, true], "{diary:?}");
    assert_eq!(restarted.nodes[0].boot, 0);
    for quiet in [Weather::Calm, Weather::Leaders, Weather::Hold] {
        assert_eq!(read(quiet).1.len(), 1, "{quiet}");
    }
}

/// The small form of the table: what `--small` prints.
#[test]
fn good_versions_pass_and_bad_ones_are_stopped_in_small_fleets() {
    let (mut good, mut back, mut missed) = (0, 0, Vec::new());
    for cell in cells(1.0) {
        let Some(runs) = few_runs(&cell) else { continue };
        let (cell, tally) = simulate(&cell, &Budget { runs, pods: u64::MAX, seed: 1, jobs: 2 });
        if cell.version.is_bad() {
            assert_eq!(tally.stopped(), tally.runs, "{cell}: {:?}", tally.example());
        } else if !cell.weather.is_outage() {
            (good, back) = (good + tally.runs, back + tally.rolled_back);
        }
        if is_missed(&cell, &tally) {
            missed.push(format!("{cell}: {tally:?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(good > 1000 && at_least(back, good, 0.001) > 0.001, "{back} of {good} good versions were rolled back");
}
