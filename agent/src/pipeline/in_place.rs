//! Restarts of the pod's containers, for the intake: which restart is wanted, which one was commanded and not seen to be done, and the
//! variables that the containers start with.

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use nudge_protocol::status::{Notified, Outcome, ProblemReason};
use nudge_protocol::{ContainerName, VariableName};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::content::Dictionary;
use crate::notify::Containers;
use crate::restart::{Command, CommandFile, Ids, Next, Variables, is_done, is_undone, next};
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
pub(super) enum Step {
    /// Nothing, until something changes or is due.
    Rest,
    /// The restart, once the contents for it are stored.
    Command(Command),
    /// The containers can't be restarted with what is held back.
    Refuse(Fault),
}

/// The restarts of one pod.
pub struct InPlace {
    containers: Vec<ContainerName>,
    variables: Variables,
    file: CommandFile,
    last: Option<Command>,
    /// What is served was not seen yet to have reached the containers by the last restart.
    pending: bool,
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
            pending: false,
            asked: None,
            due: None,
            failures: 0,
            end: watch::Sender::new(false),
            containers,
            file,
        })
    }

    /// Becomes `true` when the agent is to end, so that the kubelet restarts all containers.
    pub fn ends(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    /// Waits until something is due; for ever where nothing is.
    pub(super) async fn is_due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => pending().await,
        }
    }

    /// Writes the variables that the containers start with. The agent is not ready before this is done.
    pub(super) fn prepare(&mut self, dictionary: &Dictionary, content: &str) -> Result<(), Fault> {
        self.due = None;
        let written = self.variables.write(dictionary);
        written.map_err(|error| {
            self.failures = self.failures.saturating_add(1);
            self.due = Some(Instant::now() + RETRY.wait(self.failures));
            cant_apply(error.to_string())
        })?;
        self.failures = 0;
        // A container that runs still may be the one of before, where this agent alone was started again.
        self.pending = self.last.as_ref().is_some_and(|last| last.content == content);
        Ok(())
    }

    /// Whether the containers can be restarted with this dictionary.
    pub(super) fn check(&self, dictionary: &Dictionary) -> Result<(), Fault> {
        self.variables.check(dictionary).map_err(|error| cant_apply(error.to_string()))
    }

    /// Decides what comes next. `held` is what the containers are to be restarted with; `None` where they run what is served.
    pub(super) fn step(&mut self, held: Option<String>, containers: &Containers) -> Step {
        let (steady, now) = (Instant::now(), OffsetDateTime::now_utc().unix_timestamp());
        self.due = None;
        let ids = self.ids(containers);
        let done = self.last.as_ref().is_some_and(|last| is_done(last, &ids));
        self.pending &= !done;
        let Some(content) = held.or_else(|| self.unfinished(&ids)) else {
            self.asked = None;
            return Step::Rest;
        };
        if self.asked.as_ref().is_none_or(|(asked, _)| *asked != content) {
            self.asked = Some((content.clone(), steady));
        }
        let since = self.asked.as_ref().map_or(Duration::ZERO, |(_, since)| steady - *since);
        match next(self.last.as_ref(), &content, &ids, since, now) {
            Next::Command(command) => Step::Command(command),
            Next::Wait(wait) => {
                self.due = Some(steady + wait);
                Step::Rest
            }
            // What is served stays as it is; that its containers do not run it is shown.
            Next::GiveUp if self.pending => Step::Rest,
            Next::GiveUp => {
                let times = self.last.as_ref().map_or(0, |last| last.times);
                Step::Refuse(cant_apply(format!(
                    "all containers were to be restarted {times} times, and this agent came back without the version; see its log"
                )))
            }
        }
    }

    /// The content of the restart that was not done; `None` while the hub has not said which containers there are.
    fn unfinished(&self, ids: &Ids) -> Option<String> {
        let last = self.last.as_ref().filter(|last| self.pending && is_undone(last, ids))?;
        Some(last.content.clone())
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

    /// It could not be stored, and is tried again.
    pub(super) fn failed(&mut self, error: &io::Error) {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            tracing::warn!(%error, "version not stored, so containers are not restarted with it; retrying");
        }
        self.due = Some(Instant::now() + RETRY.wait(self.failures));
    }

    /// Shows whether the containers run the dictionary with this `ETag`.
    pub(super) fn show(&self, etag: &str, status: &StatusPage) {
        let times = self.last.as_ref().map_or(0, |last| last.times);
        let (outcome, message) = match (self.pending, times) {
            (false, _) => (Outcome::Delivered, String::new()),
            (true, ..=1) => (Outcome::Pending, String::new()),
            (true, _) => (
                Outcome::Failed,
                format!(
                    "it was not restarted when this was commanded (exit code 88 of the agent, {times} times); see the kubelet's log"
                ),
            ),
        };
        for name in &self.containers {
            let shown = status.outcome(name);
            if shown.as_ref().is_none_or(|shown| shown.etag.as_deref() != Some(etag) || shown.outcome != outcome) {
                let at = Some(OffsetDateTime::now_utc());
                let (etag, message) = (Some(etag.to_owned()), message.clone());
                status.notified(name, Notified { outcome, message, etag, at, ..Notified::nothing_yet() });
            }
        }
    }
}

fn cant_apply(message: String) -> Fault {
    Fault { reason: ProblemReason::CantApply, message }
}
