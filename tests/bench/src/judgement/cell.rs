//! A cell of the table: a fleet, the version that is rolled out to it, and the events meanwhile.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};

use super::judge::{DAY, Millis, SECOND};
use super::versions::{Kind, Target};
use super::weather::Weather;

/// A readiness probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probes {
    /// The period of the probe in seconds; 0 for pods without a probe.
    pub(crate) period: u32,
    pub(crate) failures: u32,
    pub(crate) timeout: u32,
}

impl Probes {
    pub(crate) const DEFAULT: Self = Self { period: 10, failures: 3, timeout: 1 };

    pub(super) fn period_ms(self) -> Millis {
        (Millis::from(self.period) * SECOND).max(1)
    }

    /// Returns the time from the first attempt that fails to the one that decides.
    pub(super) fn failures_ms(self) -> Millis {
        self.period_ms() * Millis::from(self.failures.max(1) - 1)
    }

    /// Returns the spec of pods with this probe.
    pub(super) fn template(self) -> PodSpec {
        let number = |number: u32| i32::try_from(number).ok();
        let probe = Probe {
            period_seconds: number(self.period),
            failure_threshold: number(self.failures),
            timeout_seconds: number(self.timeout),
            ..Probe::default()
        };
        let readiness_probe = (self.period > 0).then_some(probe);
        let container = Container { name: "app".to_owned(), readiness_probe, ..Container::default() };
        PodSpec { containers: vec![container], ..PodSpec::default() }
    }
}

/// A cell of the table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) weather: Weather,
    pub(crate) version: Target,
    pub(crate) fleet: usize,
    pub(crate) workloads: usize,
    pub(crate) probes: Probes,
    /// Harm of the background, for each pod.
    pub(crate) harms_a_week: f64,
    pub(crate) bake_seconds: Option<u32>,
    /// How long a rollout takes in which nothing happens.
    pub(crate) usual: Option<Millis>,
}

/// Pods, and the workloads that they are of.
const FLEETS: [(usize, usize); 9] =
    [(1, 1), (3, 1), (8, 1), (40, 1), (200, 200), (500, 1), (500, 200), (5000, 1), (5000, 200)];

const WEATHERS: [Weather; 17] = [
    Weather::Calm,
    Weather::Drain,
    Weather::Reboot,
    Weather::KubeletRestart,
    Weather::NodeAway,
    Weather::Spot,
    Weather::Scaling,
    Weather::Image,
    Weather::Sidecar,
    Weather::Jobs,
    Weather::Outage(30),
    Weather::Outage(60),
    Weather::Outage(100),
    Weather::CrashingOutage(30),
    Weather::CrashingOutage(100),
    Weather::Hold,
    Weather::Leaders,
];

/// How a version harms, and how long it bakes if that is not the default.
const VERSIONS: [(Kind, Option<u32>); 7] = [
    (Kind::Crash, None),
    (Kind::Unready, None),
    (Kind::Leak(30 * SECOND), None),
    (Kind::Leak(300 * SECOND), None),
    (Kind::Leak(300 * SECOND), Some(600)),
    (Kind::CrashAtStart, None),
    (Kind::Refused, None),
];

/// Returns all cells.
pub(crate) fn cells(harms_a_week: f64) -> Vec<Cell> {
    let cell = |weather, version, (fleet, workloads), bake_seconds| Cell {
        weather,
        version,
        fleet,
        workloads,
        probes: Probes::DEFAULT,
        harms_a_week,
        bake_seconds,
        usual: None,
    };
    let good = WEATHERS
        .into_iter()
        .flat_map(|weather| FLEETS.map(|fleet| cell(weather, Target::GOOD, fleet, None)))
        .filter(|cell| cell.weather != Weather::Jobs || cell.fleet >= 8);
    let bad = VERSIONS.into_iter().flat_map(|(kind, bake)| {
        let weather = if kind == Kind::CrashAtStart { Weather::Births } else { Weather::Calm };
        [100, 20, 2]
            .into_iter()
            .flat_map(move |percent| FLEETS.map(|fleet| cell(weather, Target::new(kind, percent), fleet, bake)))
    });
    let bad = bad.filter(|cell| cell.version.percent == 100 || cell.fleet * cell.version.percent as usize >= 160);
    good.chain(bad).collect()
}

impl Cell {
    /// Returns the same cell without anything that happens.
    pub(crate) fn without_weather(&self) -> Self {
        Self { weather: Weather::Calm, version: Target::GOOD, harms_a_week: 0.0, ..self.clone() }
    }

    pub(super) fn usual(&self) -> Millis {
        self.usual.unwrap_or(240 * SECOND)
    }

    /// Returns how long a rollout is followed.
    pub(super) fn max_duration(&self) -> Millis {
        if self.weather == Weather::Hold { DAY + 2 * 3600 * SECOND } else { 2 * 3600 * SECOND }
    }

    /// Returns how long a leader collects changes before it looks.
    pub(super) fn collection_delay(&self) -> Millis {
        if self.fleet > 500 { 500 } else { 100 }
    }

    pub(super) fn job_pods(&self) -> usize {
        if self.weather == Weather::Jobs { self.fleet / 4 } else { 0 }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weather, version, fleet, workloads, .. } = self;
        write!(out, "{weather}/{version}/{fleet}x{workloads}")?;
        match self.bake_seconds {
            Some(seconds) => write!(out, "/bake-{seconds}s"),
            None => Ok(()),
        }
    }
}
