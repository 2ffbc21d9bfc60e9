//! Windows of the week in a time zone, and the next time when one opens.
//!
//! A window is open while a wall clock in the time zone shows a time in the window. When clocks go forward, a window
//! within the skipped hour does not open that day, and a window that begins in the skipped hour opens after it. When
//! clocks go back, a window within the repeated hour is open twice.

use std::fmt;

use jiff::civil::{DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nudge_api::{Explanation, Reason, Window};

use crate::faults::invalid;

/// The period that is searched for the next opening. Each window opens every week, unless its hour is skipped.
const OPENING_SEARCH_PERIOD: SignedDuration = SignedDuration::from_hours(24 * 60);
/// The maximum number of openings that are tried until all lists of windows are open: it bounds the cost if they never
/// open together.
const MAX_TRIES: usize = 128;

/// The reason why a window can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The text is not a time of day.
    #[error("{0:?} is not a time of day; write one such as 09:00")]
    Time(String),
    /// The time zone is not known.
    #[error(
        "time zone {0:?} is not known to this release; use a name of the IANA database, such as Europe/Berlin or UTC"
    )]
    Zone(String),
    /// The window never begins.
    #[error("it has no days; name at least one")]
    NoDays,
}

/// Returns the faults of the windows of this field. Two windows of the same name are not a fault here, because the
/// schema refuses them.
pub fn window_faults(field: &str, windows: &[Window]) -> Vec<Explanation> {
    let fault = |window: &Window| {
        let error = UsableWindow::parse(window).err()?;
        let fault = invalid(field, format!("window {}: {error}", window.name));
        // Another release may know the time zone.
        let reason = if matches!(error, WindowError::Zone(_)) { Reason::UnknownTimeZone } else { fault.reason };
        Some(Explanation { reason, ..fault })
    };
    windows.iter().filter_map(fault).collect()
}

/// A window that can be used.
#[derive(Clone, Debug)]
struct UsableWindow {
    /// Whether the window begins on a day of the week, from Monday on.
    days: [bool; 7],
    from: Time,
    /// The time of the end; absent for the end of the day.
    to: Option<Time>,
    zone: TimeZone,
    zone_name: String,
}

/// A list of windows. It is open while any window is open.
#[derive(Clone, Debug)]
pub struct Windows(Vec<UsableWindow>);

/// The next opening of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The moment of the opening.
    pub at: Timestamp,
    zone: TimeZone,
    zone_name: String,
}

/// Prints the moment, such as `2026-10-26 09:00 Europe/Berlin (08:00 UTC)`.
impl fmt::Display for Opening {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local_time = self.zone.to_datetime(self.at);
        let utc = TimeZone::UTC.to_datetime(self.at);
        write!(out, "{} {} {}", local_time.date(), format_time(local_time), self.zone_name)?;
        if local_time == utc {
            return Ok(());
        }
        out.write_str(" (")?;
        if local_time.date() != utc.date() {
            write!(out, "{} ", utc.date())?;
        }
        write!(out, "{} UTC)", format_time(utc))
    }
}

/// Formats the hours and minutes, and the seconds if they are not zero.
fn format_time(time: DateTime) -> impl fmt::Display {
    time.strftime(if time.second() == 0 { "%H:%M" } else { "%H:%M:%S" })
}

impl Windows {
    /// Returns the windows that can be used. A window with a fault is closed. If no window can be used, the result is
    /// the fault of the first window.
    pub fn parse(windows: &[Window]) -> Result<Self, WindowError> {
        let mut usable = Vec::new();
        let mut fault = None;
        for window in windows {
            match UsableWindow::parse(window) {
                Ok(window) => usable.push(window),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        match fault {
            Some(error) if usable.is_empty() => Err(error),
            _ => Ok(Self(usable)),
        }
    }

    /// Returns whether one of the windows is open.
    pub fn is_open(&self, time: Timestamp) -> bool {
        self.0.iter().any(|window| window.is_open(time))
    }

    /// Returns the first moment from `time` on when one of the windows is open; `None` if there is none within two
    /// months.
    pub fn next_opening(&self, time: Timestamp) -> Option<Opening> {
        let openings = self.0.iter().filter_map(|window| Some((window.next_opening(time)?, window)));
        let (time, window) = openings.min_by_key(|(time, _)| *time)?;
        Some(Opening { at: time, zone: window.zone.clone(), zone_name: window.zone_name.clone() })
    }
}

/// Returns the first moment from `time` on when all lists are open. Returns `None` if there is none within two months,
/// or if the lists open in turns too often before.
pub fn next_common_opening(lists: &[Windows], time: Timestamp) -> Option<Opening> {
    let horizon = time.checked_add(OPENING_SEARCH_PERIOD).ok()?;
    let mut last: Option<Opening> = None;
    for _ in 0..MAX_TRIES {
        let from = last.as_ref().map_or(time, |opening| opening.at);
        let Some(closed) = lists.iter().find(|windows| !windows.is_open(from)) else { break };
        last = Some(closed.next_opening(from).filter(|opening| opening.at < horizon)?);
    }
    last.filter(|opening| lists.iter().all(|windows| windows.is_open(opening.at)))
}

impl UsableWindow {
    fn parse(window: &Window) -> Result<Self, WindowError> {
        let time = |text: &str| {
            let wrong = || WindowError::Time(text.to_owned());
            let digits =
                |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i8>().ok())?;
            let (hour, minute) = text.split_once(':').filter(|_| text.len() == 5).ok_or_else(wrong)?;
            let (hour, minute) = digits(hour).zip(digits(minute)).ok_or_else(wrong)?;
            Time::new(hour, minute, 0, 0).map_err(|_| wrong())
        };
        let to = if window.to == "24:00" { None } else { Some(time(&window.to)?) };
        if window.days.is_empty() {
            return Err(WindowError::NoDays);
        }
        let mut days = [false; 7];
        window.days.iter().for_each(|day| days[*day as usize] = true);
        let zone_name = window.time_zone.clone();
        let zone = TimeZone::get(&zone_name).ok().filter(|zone| !zone.is_unknown());
        let zone = zone.ok_or_else(|| WindowError::Zone(zone_name.clone()))?;
        Ok(Self { days, from: time(&window.from)?, to, zone, zone_name })
    }

    /// Returns whether the window ends on the day after it began.
    fn ends_next_day(&self) -> bool {
        self.to.is_some_and(|to| to <= self.from)
    }

    fn begins_on(&self, day: Weekday) -> bool {
        self.days[usize::from(day.to_monday_zero_offset().unsigned_abs())]
    }

    fn is_open(&self, time: Timestamp) -> bool {
        self.contains(self.zone.to_datetime(time))
    }

    /// Returns whether the window is open when a wall clock shows this time.
    fn contains(&self, local_time: DateTime) -> bool {
        let date = local_time.date();
        let time = local_time.time();
        let began_today = self.begins_on(date.weekday()) && self.from <= time;
        if !self.ends_next_day() {
            return began_today && self.to.is_none_or(|to| time < to);
        }
        let began_yesterday = self.begins_on(date.weekday().previous()) && self.to.is_some_and(|to| time < to);
        began_today || began_yesterday
    }

    /// Returns the next moment from `time` on when the window is open. Between two clock changes, a window opens only
    /// at its own times; otherwise, a clock change opens it.
    fn next_opening(&self, time: Timestamp) -> Option<Timestamp> {
        let horizon = time.checked_add(OPENING_SEARCH_PERIOD).ok()?;
        let mut moment = time;
        while moment < horizon {
            let local_time = self.zone.to_datetime(moment);
            if self.contains(local_time) {
                return Some(moment);
            }
            let changes = self.zone.following(moment).next().map(|change| change.timestamp());
            let opens = self.time_to_next_start(local_time).and_then(|wait| moment.checked_add(wait).ok());
            let open_until = changes.unwrap_or(Timestamp::MAX);
            match opens.filter(|opens| *opens < open_until) {
                Some(opens) => return Some(opens).filter(|opens| *opens < horizon),
                None => moment = open_until,
            }
        }
        None
    }

    /// Returns the time until a wall clock that is not changed shows the next start of the window.
    fn time_to_next_start(&self, local_time: DateTime) -> Option<SignedDuration> {
        let mut date = local_time.date();
        for _ in 0..=7 {
            let start_today = date.to_datetime(self.from);
            if self.begins_on(date.weekday()) && start_today > local_time {
                return Some(start_today.duration_since(local_time));
            }
            date = date.tomorrow().ok()?;
        }
        None
    }
}
