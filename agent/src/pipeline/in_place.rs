//! Decides for the intake when the pod's containers are restarted: which content they should be restarted with, whether
//! the last restart was done, and the variables that they start with.

use std::io;
use std::path::Path;

use nudge_protocol::ContainerName;
use nudge_protocol::plural::counted;
use nudge_protocol::status::{NotificationStatus, Outcome, ProblemReason};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::next_attempt::Retry;
use crate::content::Dictionary;
use crate::files::StateFile;
use crate::notify::Containers;
use crate::restart::{
    CommandDecision, Ids, Inexpressible, RestartCommand, Variables, VariablesError, decide_command, is_done, is_undone,
};
use crate::source::SourceFault;
use crate::status::StatusPage;

/// The name of the file with the last command, in the state folder.
const COMMAND_FILE: &str = "restart";

/// The intake's next step.
#[derive(Debug)]
pub(super) enum RestartStep {
    /// Nothing, until something changes or is due.
    Wait,
    /// The command to restart, once the contents for it are stored.
    Command(RestartCommand),
    /// The restart was commanded often enough, and its contents were lost each time; they stay held back.
    Lost(SourceFault),
}

/// The progress of the restart with the served content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InPlaceProgress {
    /// The containers run the served content, as far as is known.
    Done,
    /// The restart was commanded, and was not seen yet to have happened.
    Pending,
    /// The restart was commanded often enough, and never happened.
    GaveUp,
}

/// The content that the containers should be restarted with.
struct RestartGoal {
    content: String,
    since: Instant,
}

/// The restarts of one pod.
pub struct InPlace {
    containers: Vec<ContainerName>,
    variables: Variables,
    /// The file with the last command. The agent ends with the command, and reads it when it starts again.
    file: StateFile,
    /// The start of this agent. A command ends the agent, so the time after a command is measured from here.
    started: Instant,
    /// The last command, which an agent before this one has given.
    last: Option<RestartCommand>,
    progress: InPlaceProgress,
    goal: Option<RestartGoal>,
    retry: Retry,
    /// Whether the agent must end.
    end_sender: watch::Sender<bool>,
}

impl InPlace {
    /// Creates the restarts of a pod; `None` if no container takes versions by a restart.
    pub fn new(containers: Vec<ContainerName>, variables: Variables, state: &Path) -> Option<Self> {
        let file = StateFile::new(state, COMMAND_FILE);
        (!containers.is_empty()).then(|| Self {
            variables,
            last: file.load("record of the last restart not read"),
            started: Instant::now(),
            progress: InPlaceProgress::Done,
            goal: None,
            retry: Retry::default(),
            end_sender: watch::Sender::new(false),
            containers,
            file,
        })
    }

    /// Returns a receiver that shows `true` when the agent must end, so that the kubelet restarts all containers.
    pub fn watch_end(&self) -> watch::Receiver<bool> {
        self.end_sender.subscribe()
    }

    /// Waits until the next step is due; for ever if none is planned. A step that was due once is not due again.
    pub(super) async fn wait_until_due(&mut self) {
        self.retry.wait_until_due().await;
        self.retry.due = None;
    }

    /// Writes the variables that the containers start with. The agent is not ready before this is done.
    pub(super) fn prepare(&mut self, dictionary: &Dictionary, content: &str) -> Result<(), SourceFault> {
        if let Err(error) = self.variables.write(dictionary) {
            self.retry.plan();
            return Err(match error {
                VariablesError::Inexpressible(fault) => cant_apply_fault(&fault),
                // Another version does not mend it.
                VariablesError::File(error) => SourceFault { reason: ProblemReason::Other, message: error.to_string() },
            });
        }
        self.retry = Retry::default();
        // If this agent alone was started again, a container may not have been restarted yet.
        let is_last = self.last.as_ref().is_some_and(|last| last.content == content);
        self.progress = if is_last { InPlaceProgress::Pending } else { InPlaceProgress::Done };
        Ok(())
    }

    /// Checks whether the containers can be restarted with this dictionary.
    pub(super) fn check(&self, dictionary: &Dictionary) -> Result<(), SourceFault> {
        self.variables.check(dictionary).map_err(|fault| cant_apply_fault(&fault))
    }

    /// Decides the next step. `deferred_content` is the content that the containers should be restarted with; `None` if
    /// they run the served content.
    pub(super) fn next_step(&mut self, deferred_content: Option<String>, containers: &Containers) -> RestartStep {
        let now = Instant::now();
        self.retry.due = None;
        let ids = self.container_ids(containers);
        if self.last.as_ref().is_some_and(|last| is_done(last, &ids)) {
            self.progress = InPlaceProgress::Done;
        }
        let before = self.goal.take();
        let Some(content) = deferred_content.or_else(|| self.undone_content(&ids)) else { return RestartStep::Wait };
        let since = before.filter(|goal| goal.content == content).map_or(now, |goal| goal.since);
        let decision = decide_command(self.last.as_ref(), &content, &ids, now - since, now - self.started);
        self.goal = Some(RestartGoal { content, since });
        match decision {
            CommandDecision::Command(command) => return RestartStep::Command(command),
            CommandDecision::Wait(wait) => self.retry.due = Some(now + wait),
            CommandDecision::GiveUp if self.progress == InPlaceProgress::Done => {
                return RestartStep::Lost(lost_fault(self.times()));
            }
            // The served content stays; the status shows that the containers do not run the new content.
            CommandDecision::GiveUp => self.progress = InPlaceProgress::GaveUp,
        }
        RestartStep::Wait
    }

    /// Returns the content of the restart that was not done; `None` while the hub has not reported the containers.
    fn undone_content(&self, ids: &Ids) -> Option<String> {
        let last = self.last.as_ref().filter(|last| self.progress != InPlaceProgress::Done && is_undone(last, ids))?;
        Some(last.content.clone())
    }

    /// Returns how often the last restart was commanded.
    fn times(&self) -> u32 {
        self.last.as_ref().map_or(0, |last| last.times)
    }

    fn container_ids(&self, containers: &Containers) -> Ids {
        let id = |name: &ContainerName| containers.get(name).map(|container| container.id.clone()).unwrap_or_default();
        self.containers.iter().map(|name| (name.clone(), id(name))).collect()
    }

    pub(super) fn file(&self) -> StateFile {
        self.file.clone()
    }

    /// Ends the agent, once everything is stored.
    pub(super) fn end_agent(&self) {
        self.end_sender.send_replace(true);
    }

    /// Plans another attempt to store the contents.
    pub(super) fn retry_store(&mut self, error: &io::Error) {
        if self.retry.plan() == 1 {
            tracing::warn!(%error, "version not stored, so containers are not restarted with it; retrying");
        }
    }

    /// Shows whether the containers run the dictionary with this `ETag`.
    pub(super) fn show_progress(&self, etag: &str, status: &StatusPage) {
        let (outcome, message) = match self.progress {
            InPlaceProgress::Done => (Outcome::Delivered, String::new()),
            InPlaceProgress::Pending => (Outcome::Pending, String::new()),
            InPlaceProgress::GaveUp => (
                Outcome::Failed,
                format!(
                    "the kubelet did not restart the containers, although the agent requested it (exit code 88, {}); see the kubelet's log",
                    counted(self.times(), "time")
                ),
            ),
        };
        for name in &self.containers {
            let before = status.notification(name);
            if before.as_ref().is_none_or(|before| before.etag.as_deref() != Some(etag) || before.outcome != outcome) {
                let time = Some(OffsetDateTime::now_utc());
                let (etag, message) = (Some(etag.to_owned()), message.clone());
                status.set_notification(
                    name,
                    NotificationStatus { outcome, message, etag, at: time, ..NotificationStatus::default() },
                );
            }
        }
    }
}

/// Returns the fault of a version that the containers can't be restarted with.
fn cant_apply_fault(fault: &Inexpressible) -> SourceFault {
    SourceFault { reason: ProblemReason::CantApply, message: fault.to_string() }
}

/// Returns the fault of this agent's state, which is not the version's.
fn lost_fault(times: u32) -> SourceFault {
    let message = format!(
        "the agent requested a restart of all containers {}, and came back without the version; see its log, and delete the pod",
        counted(times, "time")
    );
    SourceFault { reason: ProblemReason::Other, message }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use nudge_protocol::hub::PodContainer;
    use nudge_protocol::{Ack, ConfigName, Key, Notify, VariableName, VersionName};

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

    /// Returns the restarts of an agent that is started with `content` after a command for the content `new`.
    fn start(state: &Path, times: u32, content: &str) -> InPlace {
        let before = Ids::from([(app(), "a".to_owned())]);
        let last = RestartCommand { content: "new".to_owned(), before, times };
        StateFile::new(state, COMMAND_FILE).store(&last).unwrap();
        let variables = vec![(app(), VariableName::new("LIVES").unwrap())];
        let variables = Variables::new(&state.join("variables"), variables);
        let mut in_place = InPlace::new(vec![app()], variables, state).unwrap();
        in_place.prepare(&dictionary(), content).unwrap();
        in_place
    }

    fn outcome(in_place: &InPlace) -> Outcome {
        let container =
            Container { name: app(), notify: Notify::InPlace, ack: Ack::Delivered, keys: Vec::new(), verify: None };
        let status = StatusPage::new("hub", vec![container], std::time::Instant::now());
        in_place.show_progress(ETAG, &status);
        status.notification(&app()).unwrap().outcome
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
            let mut in_place = start(state.path(), times, "new");
            tokio::time::advance(Duration::from_secs(runs_for)).await;
            assert_eq!(outcome(&in_place), Outcome::Pending, "the hub has not said yet which containers there are");
            assert!(matches!(in_place.next_step(None, &runs("a")), RestartStep::Wait));
            assert_eq!(outcome(&in_place), expected, "{times} times, {runs_for} s ago");
            in_place.next_step(None, &runs("b"));
            assert_eq!(outcome(&in_place), Outcome::Delivered);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_delays_no_restart() {
        let state = tempfile::tempdir().unwrap();
        let mut in_place = start(state.path(), 1, "new");
        tokio::time::advance(Duration::from_secs(119)).await;
        assert!(matches!(in_place.next_step(None, &runs("a")), RestartStep::Wait));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(in_place.next_step(None, &runs("a")), RestartStep::Command(command) if command.times == 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_lost_at_each_restart_is_not_to_blame() {
        let state = tempfile::tempdir().unwrap();
        let mut in_place = start(state.path(), 3, "old");
        tokio::time::advance(Duration::from_hours(1)).await;
        let RestartStep::Lost(fault) = in_place.next_step(Some("new".to_owned()), &runs("a")) else {
            panic!("the restart continues")
        };
        assert_eq!(fault.reason, ProblemReason::Other);
        assert_eq!(outcome(&in_place), Outcome::Delivered, "the containers run what is served");
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_not_to_blame_for_a_file_and_what_is_due_is_due_once() {
        let state = tempfile::tempdir().unwrap();
        let mut in_place = start(state.path(), 1, "new");
        let file = state.path().join("variables/app");
        fs::remove_file(&file).unwrap();
        fs::create_dir_all(file.join("in-the-way")).unwrap();
        let fault = in_place.prepare(&dictionary(), "new").unwrap_err();
        assert_eq!(fault.reason, ProblemReason::Other, "{}", fault.message);
        in_place.wait_until_due().await;
        assert!(tokio::time::timeout(Duration::from_hours(1), in_place.wait_until_due()).await.is_err());
    }
}
