//! The cost of each scenario: seconds by the clock, and seconds of the machine's processors, which concurrent scenarios
//! share equally.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::{SysconfVar, sysconf};
use parking_lot::Mutex;

/// Names the file to which a line is added for each scenario: `scenario NAME`, seconds, and those of the processors,
/// between tabs.
const FILE: &str = "NUDGE_TIMES";

/// The seconds of a scenario, by the clock and of processors.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) clock: Duration,
    pub(crate) processors: Duration,
}

/// What has been spent so far.
pub(crate) struct Costs(Mutex<State>);

struct State {
    began: Instant,
    /// How busy the machine had been at the beginning, and when a scenario began or ended last.
    first: Duration,
    last: Duration,
    running: BTreeMap<String, (Instant, Duration)>,
}

impl Costs {
    /// Begins to count now.
    pub(crate) fn new() -> Result<Self> {
        let (began, first) = (Instant::now(), busy()?);
        Ok(Self(Mutex::new(State { began, first, last: first, running: BTreeMap::new() })))
    }

    /// A scenario begins.
    pub(crate) fn begin(&self, name: &str) -> Result<()> {
        let mut state = self.0.lock();
        state.share()?;
        state.running.insert(name.to_owned(), (Instant::now(), Duration::ZERO));
        Ok(())
    }

    /// Ends the count of a scenario, and returns its cost.
    pub(crate) fn end(&self, name: &str) -> Result<Cost> {
        let mut state = self.0.lock();
        state.share()?;
        let (began, processors) = state.running.remove(name).context("it has not begun")?;
        let cost = Cost { clock: began.elapsed(), processors };
        if let Some(file) = env::var_os(FILE) {
            let mut file = OpenOptions::new().append(true).create(true).open(file)?;
            let [clock, processors] = [cost.clock, cost.processors].map(|time| time.as_secs_f64());
            file.write_all(format!("scenario {name}\t{clock:.1}\t{processors:.1}\n").as_bytes())?;
        }
        Ok(cost)
    }

    /// Returns the cost of the whole run.
    pub(crate) fn total(&self) -> Result<Cost> {
        let state = self.0.lock();
        Ok(Cost { clock: state.began.elapsed(), processors: busy()?.saturating_sub(state.first) })
    }
}

impl State {
    fn share(&mut self) -> Result<()> {
        let now = busy()?;
        let spent = now.saturating_sub(self.last);
        self.last = now;
        let count = u32::try_from(self.running.len())?;
        for (_, processors) in self.running.values_mut() {
            *processors += spent / count;
        }
        Ok(())
    }
}

/// Returns how long the processors of this machine have been busy.
fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("/proc/stat is another")?;
    // user, nice, system, idle, iowait, irq, softirq; what guests have is a part of the first two.
    let ticks = fields.split_whitespace().take(7).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let busy: u64 = ticks.iter().enumerate().filter(|(field, _)| ![3, 4].contains(field)).map(|(_, ticks)| ticks).sum();
    let second = sysconf(SysconfVar::CLK_TCK)?.context("the system has no clock tick")?;
    Ok(Duration::from_secs(busy) / u32::try_from(second)?)
}
