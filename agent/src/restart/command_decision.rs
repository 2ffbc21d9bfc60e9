//! Decides when a restart of all containers is commanded, when it is commanded again, and whether it was done. Does no
//! I/O.
//!
//! A restart shows in the container IDs that the hub reports: each container that takes its configuration by a restart
//! has another ID than at the command. If an agent finds, after its own start, that the restart was not done, it does
//! not repeat the command at once. It gives up after [`MAX_COMMANDS`] commands for one content.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_protocol::ContainerName;
use nudge_protocol::backoff::Backoff;
use serde::{Deserialize, Serialize};

/// The shortest time between commands for different contents.
const MIN_COMMAND_INTERVAL: Duration = Duration::from_secs(3);
/// The waits from a command until the same restart is commanded again. They are long, since init containers of the pod
/// run again.
const RETRY_BACKOFF: Backoff = Backoff { first: Duration::from_mins(2), longest: Duration::from_mins(10) };
/// The maximum number of commands for one content.
const MAX_COMMANDS: u32 = 3;
/// The maximum time that a command waits for containers that have not started yet.
const CONTAINER_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The IDs of containers; empty for a container that has not started, or is not known.
pub type Ids = BTreeMap<ContainerName, String>;

/// A restart that was commanded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartCommand {
    /// The content that the containers restart with.
    pub content: String,
    /// The IDs of the containers before the restart.
    pub before: Ids,
    /// The number of commands for this content.
    pub times: u32,
}

/// The decision about a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandDecision {
    /// The command is given now.
    Command(RestartCommand),
    /// The command is not given before this time has passed.
    Wait(Duration),
    /// The command was given often enough.
    GiveUp,
}

/// Returns whether the containers have been restarted since the command.
pub fn is_done(command: &RestartCommand, ids: &Ids) -> bool {
    ids.iter().all(|(name, id)| !id.is_empty() && command.before.get(name) != Some(id))
}

/// Returns whether one of the containers has not been restarted since the command. A container that has not started
/// again yet does not count: an init container may fail, which another restart does not mend.
pub fn is_undone(command: &RestartCommand, ids: &Ids) -> bool {
    ids.iter().any(|(name, id)| !id.is_empty() && command.before.get(name) == Some(id))
}

/// Decides whether to command a restart of the containers with `content`. `wanted_for` is the time since the restart
/// was first wanted. `uptime` is the time since this agent started. A command ends the agent, so `uptime` is also the
/// time since the last command, whatever the clock says.
pub fn decide_command(
    last: Option<&RestartCommand>,
    content: &str,
    ids: &Ids,
    wanted_for: Duration,
    uptime: Duration,
) -> CommandDecision {
    let same_command = last.filter(|last| last.content == content);
    let times = same_command.map_or(0, |last| last.times);
    if last.is_some() {
        let interval = if same_command.is_some() { RETRY_BACKOFF.wait(times) } else { MIN_COMMAND_INTERVAL };
        if let Some(wait) = interval.checked_sub(uptime).filter(|wait| !wait.is_zero()) {
            return CommandDecision::Wait(wait);
        }
    }
    // The last command has its time, too.
    if times >= MAX_COMMANDS {
        return CommandDecision::GiveUp;
    }
    let start_wait = CONTAINER_START_TIMEOUT.checked_sub(wanted_for).filter(|wait| !wait.is_zero());
    if let Some(wait) = start_wait.filter(|_| ids.values().any(String::is_empty)) {
        return CommandDecision::Wait(wait);
    }
    CommandDecision::Command(RestartCommand { content: content.to_owned(), before: ids.clone(), times: times + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_UPTIME: Duration = Duration::from_hours(1);

    fn ids(app: &str, web: &str) -> Ids {
        [("app", app), ("web", web)].map(|(name, id)| (ContainerName::new(name).unwrap(), id.to_owned())).into()
    }

    fn command(decision: CommandDecision) -> RestartCommand {
        let CommandDecision::Command(command) = decision else { panic!("{decision:?}") };
        command
    }

    #[test]
    fn a_restart_is_done_when_every_container_is_another_one() {
        let first = command(decide_command(None, "x", &ids("a", "b"), LONG_UPTIME, Duration::ZERO));
        assert_eq!(first.times, 1);
        for (ids, done, undone) in [
            (ids("a", "b"), false, true),
            (ids("c", "b"), false, true),
            (ids("c", ""), false, false),
            (ids("", ""), false, false),
            (ids("c", "d"), true, false),
        ] {
            assert_eq!((is_done(&first, &ids), is_undone(&first, &ids)), (done, undone), "{ids:?}");
        }
    }

    #[test]
    fn a_restart_that_was_not_done_is_commanded_again_after_longer_waits_and_not_for_ever() {
        let (mut last, mut waits) = (None, Vec::new());
        let after = |last: &Option<RestartCommand>, content: &str, runs: u64| {
            decide_command(last.as_ref(), content, &ids("a", "b"), LONG_UPTIME, Duration::from_secs(runs))
        };
        for _ in 0..MAX_COMMANDS {
            // The agent has just started.
            let wait = match after(&last, "x", 0) {
                CommandDecision::Wait(wait) => wait.as_secs(),
                CommandDecision::Command(_) => 0,
                CommandDecision::GiveUp => panic!("too soon"),
            };
            waits.push(wait);
            last = Some(command(after(&last, "x", wait)));
        }
        assert_eq!(waits, [0, 120, 240]);
        assert_eq!(
            after(&last, "x", 1),
            CommandDecision::Wait(Duration::from_secs(479)),
            "its containers have not started yet"
        );
        assert_eq!(after(&last, "x", 10_000), CommandDecision::GiveUp);
        // The way back is another content.
        assert_eq!(after(&last, "y", 1), CommandDecision::Wait(Duration::from_secs(2)));
        assert_eq!(command(after(&last, "y", 3)).times, 1);
    }

    #[test]
    fn containers_that_have_not_started_are_waited_for_and_not_for_ever() {
        let wait = decide_command(None, "x", &ids("a", ""), Duration::from_secs(10), LONG_UPTIME);
        assert_eq!(wait, CommandDecision::Wait(Duration::from_secs(20)));
        let last = command(decide_command(None, "x", &ids("a", ""), CONTAINER_START_TIMEOUT, LONG_UPTIME));
        assert!(!is_done(&last, &ids("c", "")) && is_done(&last, &ids("c", "d")));
    }
}
