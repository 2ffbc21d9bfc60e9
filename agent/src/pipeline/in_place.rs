//! Restarts of the pod's containers, for the intake: which restart is wanted, which one was commanded and not seen to be done, and the
//! variables that the containers start with.

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use nudge_protocol::status::{NotificationStatus, Outcome, ProblemReason};
use nudge_protocol::{ContainerName, VariableName};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::content::Dictionary;
use crate::notify::Containers;
use crate::restart::{
    Command, CommandFile, Ids, Inexpressible, Next, Variables, VariablesError, is_done, is_undone, next,
};
use crate::source::Fault;
use crate::status::StatusPage;

/// Waits between attempts to store what the restart is for.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// Which containers are restarted, and with what.
#[derive(Clone, Debug)]
pub struct InPlaceSettings {
    /// The containers that take another version by a restart.
    pub containers: Vec<ContainerName>,
    /// Keys that become their variables.
    pub variables: Vec<(ContainerName, VariableName)>,
    /// The folder for these.
    pub folder: PathBuf,
}

/// What the intake does next.
#[derive(Debug)]
pub(super) enum RestartStep {
    /// Nothing, until something changes or is due.
    Rest,
    /// The restart, once the contents for it are stored.
    Command(Command),
    /// The restart was commanded often enough, and its contents were lost each time; they stay held back.
    Lost(Fault),
}

/// The restarts of one pod.
pub struct InPlace {
    containers: Vec<ContainerName>,
    variables: Variables,
    file: CommandFile,
    /// When this agent started, which a command ends: what passes after a command is measured from here.
    started: Instant,
    last: Option<Command>,
    /// Whether what is served was not seen yet to have reached the containers by the last restart.
    pending: bool,
    /// Whether the restart was commanded often enough, and never happened.
    gave_up: bool,
    /// What is held back, and since when.
    asked: Option<(String, Instant)>,
    due: Option<Instant>,
    failures: u32,
    /// What the agent ends on.
    end: watch::Sender<bool>,
}

impl InPlace {
    /// The restarts of a pod in which these containers take part; `None` without any.
    pub fn new(settings: InPlaceSettings, state: &Path) -> Option<Self> {
        let InPlaceSettings { containers, variables, folder } = settings;
        let file = CommandFile::new(state);
        (!containers.is_empty()).then(|| Self {
            variables: Variables::new(&folder, variables),
            last: file.load(),
            started: Instant::now(),
            pending: false,
            gave_up: false,
            asked: None,
            due: None,
            failures: 0,
            end: watch::Sender::new(false),
            containers,
            file,
        })
    }

    /// Becomes `true` when the agent is to end, so that the kubelet restarts all containers.
    pub fn watch_end(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    /// Waits until something is due; for ever where nothing is. What was due once is not due again.
    pub(super) async fn wait_until_due(&mut self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => pending().await,
        }
        self.due = None;
    }

    /// Writes the variables that the containers start with. The agent is not ready before this is done.
    pub(super) fn prepare(&mut self, dictionary: &Dictionary, content: &str) -> Result<(), Fault> {
        self.due = None;
        let written = self.variables.write(dictionary);
        written.map_err(|error| {
            self.failures = self.failures.saturating_add(1);
            self.due = Some(Instant::now() + RETRY.wait(self.failures));
            match error {
                VariablesError::Inexpressible(fault) => cant_apply(&fault),
                // Another version does not mend it.
                VariablesError::Io { .. } => Fault { reason: ProblemReason::Other, message: error.to_string() },
            }
        })?;
        self.failures = 0;
        // A container that runs still may be the one of before, where this agent alone was started again.
        self.pending = self.last.as_ref().is_some_and(|last| last.content == content);
        Ok(())
    }

    /// Whether the containers can be restarted with this dictionary.
    pub(super) fn check(&self, dictionary: &Dictionary) -> Result<(), Fault> {
        self.variables.check(dictionary).map_err(|fault| cant_apply(&fault))
    }

    /// Decides what comes next. `held` is what the containers are to be restarted with; `None` where they run what is served.
    pub(super) fn step(&mut self, held: Option<String>, containers: &Containers) -> RestartStep {
        let now = Instant::now();
        self.due = None;
        let ids = self.ids(containers);
        let done = self.last.as_ref().is_some_and(|last| is_done(last, &ids));
        self.pending &= !done;
        self.gave_up &= self.pending;
        let Some(content) = held.or_else(|| self.unfinished(&ids)) else {
            self.asked = None;
            return RestartStep::Rest;
        };
        if self.asked.as_ref().is_none_or(|(asked, _)| *asked != content) {
            self.asked = Some((content.clone(), now));
        }
        let wanted = self.asked.as_ref().map_or(Duration::ZERO, |(_, since)| now - *since);
        match next(self.last.as_ref(), &content, &ids, wanted, now - self.started) {
            Next::Command(command) => RestartStep::Command(command),
            Next::Wait(wait) => {
                self.due = Some(now + wait);
                RestartStep::Rest
            }
            // What is served stays as it is; that its containers do not run it is shown.
            Next::GiveUp if self.pending => {
                self.gave_up = true;
                RestartStep::Rest
            }
            Next::GiveUp => RestartStep::Lost(lost(self.times())),
        }
    }

    /// The content of the restart that was not done; `None` while the hub has not said which containers there are.
    fn unfinished(&self, ids: &Ids) -> Option<String> {
        let last = self.last.as_ref().filter(|last| self.pending && is_undone(last, ids))?;
        Some(last.content.clone())
    }

    /// How often the last restart was commanded.
    fn times(&self) -> u32 {
        self.last.as_ref().map_or(0, |last| last.times)
    }

    fn ids(&self, containers: &Containers) -> Ids {
        let id = |name: &ContainerName| containers.get(name).map(|container| container.id.clone()).unwrap_or_default();
        self.containers.iter().map(|name| (name.clone(), id(name))).collect()
    }

    /// The file of the command.
    pub(super) fn file(&self) -> CommandFile {
        self.file.clone()
    }

    /// All is stored: the agent ends.
    pub(super) fn end(&self) {
        self.end.send_replace(true);
    }

    /// The contents could not be stored: schedules another attempt.
    pub(super) fn failed(&mut self, error: &io::Error) {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            tracing::warn!(%error, "version not stored, so containers are not restarted with it; retrying");
        }
        self.due = Some(Instant::now() + RETRY.wait(self.failures));
    }

    /// Shows whether the containers run the dictionary with this `ETag`.
    pub(super) fn show(&self, etag: &str, status: &StatusPage) {
        let (outcome, message) = match (self.pending, self.gave_up) {
            (false, _) => (Outcome::Delivered, String::new()),
            (true, false) => (Outcome::Pending, String::new()),
            (true, true) => (
                Outcome::Failed,
                format!(
                    "the kubelet did not restart the containers, though the agent asked for it (exit code 88, {} times); see the kubelet's log",
                    self.times()
                ),
            ),
        };
        for name in &self.containers {
            let shown = status.outcome(name);
            if shown.as_ref().is_none_or(|shown| shown.etag.as_deref() != Some(etag) || shown.outcome != outcome) {
                let at = Some(OffsetDateTime::now_utc());
                let (etag, message) = (Some(etag.to_owned()), message.clone());
                status.notified(
                    name,
                    NotificationStatus { outcome, message, etag, at, ..NotificationStatus::nothing_yet() },
                );
            }
        }
    }
}

/// The containers can't be restarted with the version.
fn cant_apply(fault: &Inexpressible) -> Fault {
    Fault { reason: ProblemReason::CantApply, message: fault.to_string() }
}

/// The fault of this agent's state, which is not the version's.
fn lost(times: u32) -> Fault {
    let message = format!(
        "the agent asked {times} times for a restart of all containers, and came back without the version; see its log, and delete the pod"
    );
    Fault { reason: ProblemReason::Other, message }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;

    use nudge_protocol::hub::PodContainer;
    use nudge_protocol::{Ack, ConfigName, Key, Notify, VersionName};

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};
    use crate::status::Container;

    const ETAG: &str = "e";

    fn app() -> ContainerName {
        ContainerName::new("app").unwrap()
    }

    fn dictionary() -> Dictionary {
        let values = BTreeMap::from([(Key::new("LIVES").unwrap(), Value::from(&b"3"[..]))]);
        let content = VersionContent::new(ConfigName::new("shop").unwrap(), VersionName::new("1").unwrap(), values);
        Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap()
    }

    fn runs(id: &str) -> Containers {
        Arc::new(BTreeMap::from([(app(), PodContainer { name: app(), id: id.to_owned(), ended: false })]))
    }

    /// An agent that is started after a command for the content `new`, with `content`.
    fn started(state: &Path, times: u32, content: &str) -> InPlace {
        let before = Ids::from([(app(), "a".to_owned())]);
        CommandFile::new(state).store(&Command { content: "new".to_owned(), before, times }).unwrap();
        let variables = vec![(app(), VariableName::new("LIVES").unwrap())];
        let settings = InPlaceSettings { containers: vec![app()], variables, folder: state.join("variables") };
        let mut in_place = InPlace::new(settings, state).unwrap();
        in_place.prepare(&dictionary(), content).unwrap();
        in_place
    }

    fn shown(in_place: &InPlace) -> Outcome {
        let container = Container { name: app(), notify: Notify::InPlace, ack: Ack::Delivered };
        let status = StatusPage::new("hub", vec![container], std::time::Instant::now());
        in_place.show(ETAG, &status);
        status.outcome(&app()).unwrap().outcome
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_has_failed_when_it_is_not_commanded_again_and_not_before() {
        let state = tempfile::tempdir().unwrap();
        for (times, runs_for, expected) in [
            (1, 0, Outcome::Pending),
            (2, 0, Outcome::Pending),
            (3, 0, Outcome::Pending),
            (3, 100_000, Outcome::Failed),
        ] {
            let mut in_place = started(state.path(), times, "new");
            tokio::time::advance(Duration::from_secs(runs_for)).await;
            assert_eq!(shown(&in_place), Outcome::Pending, "the hub has not said yet which containers there are");
            assert!(matches!(in_place.step(None, &runs("a")), RestartStep::Rest));
            assert_eq!(shown(&in_place), expected, "{times} times, {runs_for} s ago");
            in_place.step(None, &runs("b"));
            assert_eq!(shown(&in_place), Outcome::Delivered);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_delays_no_restart() {
        let state = tempfile::tempdir().unwrap();
        let mut in_place = started(state.path(), 1, "new");
        tokio::time::advance(Duration::from_secs(119)).await;
        assert!(matches!(in_place.step(None, &runs("a")), RestartStep::Rest));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(in_place.step(None, &runs("a")), RestartStep::Command(command) if command.times == 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_lost_at_each_restart_is_not_to_blame() {
        let state = tempfile::tempdir().unwrap();
        let mut in_place = started(state.path(), 3, "old");
        tokio::time::advance(Duration::from_hours(1)).await;
        let RestartStep::Lost(fault) = in_place.step(Some("new".to_owned()), &runs("a")) else { panic!("it goes on") };
        assert_eq!(fault.reason, ProblemReason::Other);
        assert_eq!(shown(&in_place), Outcome::Delivered, "the containers run what is served");
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_not_to_blame_for_a_file_and_what_is_due_is_due_once() {
        let state = tempfile::tempdir().unwrap();
        let mut in_place = started(state.path(), 1, "new");
        let file = state.path().join("variables/app");
        fs::remove_file(&file).unwrap();
        fs::create_dir_all(file.join("in-the-way")).unwrap();
        let fault = in_place.prepare(&dictionary(), "new").unwrap_err();
        assert_eq!(fault.reason, ProblemReason::Other, "{}", fault.message);
        in_place.wait_until_due().await;
        assert!(tokio::time::timeout(Duration::from_hours(1), in_place.wait_until_due()).await.is_err());
    }
}
