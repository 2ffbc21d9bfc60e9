//! When a restart of all containers is commanded, when it is commanded again, and whether it was done. Pure.
//!
//! A restart is known by the IDs of containers, which the hub gives: each of those that take their configuration by a restart has another
//! one than when it was commanded. An agent that finds after its own start that this is not so does not command it again at once, and gives
//! up after [`MAX_COMMANDS`] commands for one content.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_protocol::ContainerName;
use nudge_protocol::backoff::Backoff;
use serde::{Deserialize, Serialize};

/// The shortest time between commands for different contents.
const MIN_COMMAND_INTERVAL: Duration = Duration::from_secs(3);
/// Waits for a restart that was commanded until it is commanded again. Init containers of the pod run again, which takes as long as it takes.
const RETRY_BACKOFF: Backoff = Backoff { first: Duration::from_mins(2), longest: Duration::from_mins(10) };
/// The most commands for one content.
const MAX_COMMANDS: u32 = 3;
/// How long a command waits for containers that have not started yet.
const CONTAINER_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The IDs of containers; empty where one has not started, or is not known.
pub type Ids = BTreeMap<ContainerName, String>;

/// A restart that was commanded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The content for which it was.
    pub content: String,
    /// The containers before it.
    pub before: Ids,
    /// How often it was commanded for this content.
    pub times: u32,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The command is given now.
    Command(Command),
    /// Not before this time has passed.
    Wait(Duration),
    /// The command was given often enough.
    GiveUp,
}

/// Returns whether the containers have been restarted since it was commanded.
pub fn is_done(command: &Command, ids: &Ids) -> bool {
    ids.iter().all(|(name, id)| !id.is_empty() && command.before.get(name) != Some(id))
}

/// Returns whether one of the containers is still that of before. One that has not started again yet is not: an init container may fail, which
/// another restart does not mend.
pub fn is_undone(command: &Command, ids: &Ids) -> bool {
    ids.iter().any(|(name, id)| !id.is_empty() && command.before.get(name) == Some(id))
}

/// What comes next for a content that the containers are to be restarted with. `wanted` is for how long it has been, `runs` for how long this
/// agent has run: a command ends it, so that is what has passed since the last one, whatever the clock says.
pub fn next(last: Option<&Command>, content: &str, ids: &Ids, wanted: Duration, runs: Duration) -> Next {
    let same = last.filter(|last| last.content == content);
    let times = same.map_or(0, |last| last.times);
    if last.is_some() {
        let gap = if same.is_some() { RETRY_BACKOFF.wait(times) } else { MIN_COMMAND_INTERVAL };
        if let Some(wait) = gap.checked_sub(runs).filter(|wait| !wait.is_zero()) {
            return Next::Wait(wait);
        }
    }
    // The last one has its time too.
    if times >= MAX_COMMANDS {
        return Next::GiveUp;
    }
    let starts = CONTAINER_START_TIMEOUT.checked_sub(wanted).filter(|wait| !wait.is_zero());
    if let Some(wait) = starts.filter(|_| ids.values().any(String::is_empty)) {
        return Next::Wait(wait);
    }
    Next::Command(Command { content: content.to_owned(), before: ids.clone(), times: times + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn ids(app: &str, web: &str) -> Ids {
        [("app", app), ("web", web)].map(|(name, id)| (ContainerName::new(name).unwrap(), id.to_owned())).into()
    }

    fn command(next: Next) -> Command {
        let Next::Command(command) = next else { panic!("{next:?}") };
        command
    }

    #[test]
    fn a_restart_is_done_when_every_container_is_another_one() {
        let one = command(next(None, "x", &ids("a", "b"), LONG, Duration::ZERO));
        assert_eq!(one.times, 1);
        for (ids, done, undone) in [
            (ids("a", "b"), false, true),
            (ids("c", "b"), false, true),
            (ids("c", ""), false, false),
            (ids("", ""), false, false),
            (ids("c", "d"), true, false),
        ] {
            assert_eq!((is_done(&one, &ids), is_undone(&one, &ids)), (done, undone), "{ids:?}");
        }
    }

    #[test]
    fn one_that_was_not_done_is_commanded_again_after_longer_waits_and_not_for_ever() {
        let (mut last, mut waits) = (None, Vec::new());
        let after = |last: &Option<Command>, content: &str, runs: u64| {
            next(last.as_ref(), content, &ids("a", "b"), LONG, Duration::from_secs(runs))
        };
        for _ in 0..MAX_COMMANDS {
            // The agent has just started.
            let wait = match after(&last, "x", 0) {
                Next::Wait(wait) => wait.as_secs(),
                Next::Command(_) => 0,
                Next::GiveUp => panic!("too soon"),
            };
            waits.push(wait);
            last = Some(command(after(&last, "x", wait)));
        }
        assert_eq!(waits, [0, 120, 240]);
        assert_eq!(after(&last, "x", 1), Next::Wait(Duration::from_secs(479)), "its containers have not started yet");
        assert_eq!(after(&last, "x", 10_000), Next::GiveUp);
        // The way back is another content.
        assert_eq!(after(&last, "y", 1), Next::Wait(Duration::from_secs(2)));
        assert_eq!(command(after(&last, "y", 3)).times, 1);
    }

    #[test]
    fn containers_that_have_not_started_are_waited_for_and_not_for_ever() {
        let wait = next(None, "x", &ids("a", ""), Duration::from_secs(10), LONG);
        assert_eq!(wait, Next::Wait(Duration::from_secs(20)));
        let given = command(next(None, "x", &ids("a", ""), CONTAINER_START_TIMEOUT, LONG));
        assert!(!is_done(&given, &ids("c", "")) && is_done(&given, &ids("c", "d")));
    }
}
