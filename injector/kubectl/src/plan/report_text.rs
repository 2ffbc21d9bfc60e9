//! A plan as text: the facts, and the tables of steps, containers, restarts, blockers and what is not known.

use jiff::SignedDuration;
use nudge_protocol::plural::counted;

use super::report::{ContainerPlan, Effect, Movement, RestartPlan, StepPlan, TimePlan, VersionPlan};
use crate::output::rollout_report::watch_text;
use crate::output::table::{or_none, table};
use crate::output::visible;

/// The maximum number of pods that a row names.
const MAX_NAMED_PODS: usize = 4;
/// The maximum number of keys that a line names.
const MAX_NAMED_KEYS: usize = 10;
/// The maximum number of rows of a table.
const MAX_ROWS: usize = 200;

impl Effect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Notified => "notified",
            Self::Restarted => "restarted",
            Self::Untouched => "untouched",
        }
    }
}

impl VersionPlan {
    pub(crate) fn text(&self) -> String {
        let lines = self.lines();
        let lines = lines.iter().map(|(name, value)| format!("{:<9}{}\n", format!("{name}:"), visible::line(value)));
        let mut text = lines.collect::<Vec<_>>().concat();
        let steps: Vec<Vec<String>> = self.steps.iter().map(step_row).collect();
        text += &section(&["STEP", "PODS", "WATCH", "PAUSE", "NAMES"], steps);
        let containers = self.containers.iter().map(container_row).collect();
        text += &section(&["WORKLOAD", "PODS", "CONTAINER", "EFFECT", "TAKES IT BY"], containers);
        let restarts = self.restarts.iter().map(restart_row).collect();
        text += &section(&["WORKLOAD", "PODS", "EFFECT", "BECAUSE"], restarts);
        let blockers = self.blockers.iter().map(|blocker| {
            let until = blocker.until_time.as_ref().map(|time| time.0.to_string());
            vec![blocker.reason.to_owned(), or_none(until.as_deref()), blocker.message.clone()]
        });
        text += &section(&["BLOCKED BY", "UNTIL", "MESSAGE"], blockers.collect());
        let unprobed =
            self.unprobed.iter().map(|row| vec![or_none(Some(&row.workload)), row.containers.join(", ")]).collect();
        text += &section(&["WORKLOAD", "CONTAINERS WITHOUT READINESS PROBE"], unprobed);
        text += &section(&["NOT KNOWN"], self.unread.iter().map(|unread| vec![unread.clone()]).collect());
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let version = self.version.as_deref().unwrap_or("a new version");
        let place = match self.current.as_deref() {
            Some(current) if Some(current) != self.version.as_deref() => format!(", in place of {current}"),
            _ => String::new(),
        };
        let mut lines = vec![
            ("Config", format!("{}/{}", self.namespace, self.config)),
            ("Version", format!("{version}{place}")),
            ("Keys", self.keys_text()),
            ("Move", self.movement_text()),
        ];
        lines.extend(self.time.map(|time| ("Time", time_text(time, !self.restarts.is_empty()))));
        let mut watches: Vec<String> = Vec::new();
        for step in self.steps.iter().filter(|step| step.parts > 0) {
            let watch = watch_text(&step.watch);
            if !watches.contains(&watch) {
                watches.push(watch);
            }
        }
        lines.extend(watches.into_iter().map(|watch| ("Watch", watch)));
        lines
    }

    fn keys_text(&self) -> String {
        let Some(keys) = &self.keys else { return "not known, because you may not read both contents".to_owned() };
        if keys.is_empty() {
            return "none change".to_owned();
        }
        let named: Vec<String> =
            keys.iter().take(MAX_NAMED_KEYS).map(|key| format!("{} {}", key.key, key.change)).collect();
        named.join(", ") + &more(keys.len(), MAX_NAMED_KEYS)
    }

    fn movement_text(&self) -> String {
        let pods = match (self.pods, self.movement) {
            (None, Movement::Steps | Movement::AtOnce | Movement::Return) => {
                return "not known, because you may not list pods".to_owned();
            }
            (pods, _) => pods.unwrap_or_default(),
        };
        let text = match self.movement {
            Movement::Nothing if self.blockers.is_empty() => "none: the version is current".to_owned(),
            Movement::Nothing => "none".to_owned(),
            Movement::First => "none: it is the first version, which is current at once".to_owned(),
            Movement::Return => "all pods go back at once, in one write".to_owned(),
            Movement::Steps | Movement::AtOnce if pods == 0 => "none: the config moves no pod now".to_owned(),
            Movement::AtOnce => format!("{} at once, by spec.rollout.override", counted(pods, "pod")),
            Movement::Steps => format!("{} in {}", counted(pods, "pod"), counted(self.steps.len(), "step")),
        };
        match self.stage {
            Some(stage) => format!("{text}; it is under way ({stage:?}): see kubectl nudge status {}", self.config),
            None => text,
        }
    }
}

/// Returns the rows below their headers, after an empty line; nothing without rows.
fn section(headers: &[&str], mut rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let count = rows.len();
    rows.truncate(MAX_ROWS);
    let rest = more(count, MAX_ROWS);
    let rest = if rest.is_empty() { rest } else { format!("{}; -o json has all\n", rest.trim_start_matches(", ")) };
    format!("\n{}{rest}", table(headers, &rows))
}

/// Returns how many of `count` things are left out after the first `max`.
fn more(count: usize, max: usize) -> String {
    if count > max { format!(", and {} more", count - max) } else { String::new() }
}

fn step_row(step: &StepPlan) -> Vec<String> {
    let named: Vec<&str> = step.pods.iter().take(MAX_NAMED_PODS).map(String::as_str).collect();
    let parts = if step.parts > 1 { format!("{} parts of ", step.parts) } else { String::new() };
    let number = step.name.clone().unwrap_or_else(|| step.number.to_string());
    let watch = if step.parts > 0 { format!("{parts}{} s", step.watch.seconds) } else { "0 s".to_owned() };
    let names = named.join(", ") + &more(step.pods.len(), MAX_NAMED_PODS);
    vec![number, step.pods.len().to_string(), watch, format!("{} s", step.pause_seconds), names]
}

fn container_row(row: &ContainerPlan) -> Vec<String> {
    let effect = row.effect.as_str().to_owned();
    vec![or_none(Some(&row.workload)), row.pods.to_string(), row.container.clone(), effect, row.reason.clone()]
}

fn restart_row(row: &RestartPlan) -> Vec<String> {
    vec![row.workload.clone(), row.pods.to_string(), row.effect.as_str().to_owned(), row.reason.clone()]
}

fn time_text(time: TimePlan, with_restarts: bool) -> String {
    let text = |seconds: u64| format!("{:#}", SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
    let least = text(time.least_seconds);
    let bake = text(time.bake_seconds.into());
    let most = text(time.least_seconds.saturating_add(time.acknowledgement_seconds));
    let restarts = if with_restarts { "; restarts of workloads follow" } else { "" };
    let range = if time.acknowledgement_seconds == 0 {
        String::new()
    } else {
        format!("; {most} if pods take all of their time to acknowledge it")
    };
    let bake = if time.bake_seconds == 0 { String::new() } else { format!(", of which the bake is {bake}") };
    format!("at least {least}{bake}{range}{restarts}")
}
