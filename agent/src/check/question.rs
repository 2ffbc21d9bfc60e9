//! A question: all containers that have a check are asked about one candidate, at the same time, each until it has
//! answered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use nudge_protocol::ContainerName;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::limits::MAX_LISTED_KEYS;
use nudge_protocol::mutex::lock;
use nudge_protocol::status::ProblemReason;
use nudge_protocol::webhooks::CONFIG_CHECK;
use time::OffsetDateTime;
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use zeroize::Zeroizing;

use super::answer::{CheckAnswer, interpret_status};
use super::refusal_reason::{MAX_READ_BYTES, displayable_reason};
use crate::content::{Dictionary, VersionContent, changed_keys};
use crate::files::CandidateFiles;
use crate::files::volume_files::dictionary_files;
use crate::notify::{Containers, Event, WebhookTarget, post, random_name};
use crate::source::SourceFault;

/// The waits between two attempts to ask a container.
const ATTEMPT_BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// The check of a container.
#[derive(Clone, Debug)]
pub struct Check {
    /// The name of the container.
    pub container: ContainerName,
    /// The URL of the container's check.
    pub target: WebhookTarget,
}

/// The versions that the containers are asked about.
#[derive(Debug)]
pub struct Candidate {
    /// The contents that the containers may take or refuse.
    pub contents: Vec<Arc<VersionContent>>,
    /// The dictionary that the endpoint would serve with them.
    pub dictionary: Arc<Dictionary>,
}

impl Candidate {
    /// Returns whether one of the versions has this name.
    pub fn has_version(&self, version: &str) -> bool {
        self.contents.iter().any(|content| content.version().as_str() == version)
    }
}

/// The verdict of the containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    /// All containers take the candidate.
    Takes,
    /// A container refuses the candidate.
    Refuses(SourceFault),
    /// The time is over, but a container has not answered. The question continues.
    Overdue(SourceFault),
}

/// The containers that have checks; cheap to clone.
#[derive(Clone)]
pub struct Checks(Arc<SharedChecks>);

struct SharedChecks {
    checks: Vec<Check>,
    /// The secret that signs the questions.
    secret: Zeroizing<Vec<u8>>,
    /// The folder for the candidate's files, if the container reads files.
    folder: Option<PathBuf>,
    /// The candidate that the endpoint gives to the containers.
    candidate: watch::Sender<Option<Arc<Candidate>>>,
    /// The containers whose lack of a check has been logged.
    without_check: Mutex<Vec<ContainerName>>,
}

impl Checks {
    /// Creates the checks, about which no container is asked yet.
    pub fn new(checks: Vec<Check>, secret: Zeroizing<Vec<u8>>, folder: Option<PathBuf>) -> Self {
        if let Some(folder) = folder.as_ref().filter(|_| !checks.is_empty()) {
            CandidateFiles::remove_old(folder);
        }
        Self(Arc::new(SharedChecks {
            checks,
            secret,
            folder,
            candidate: watch::Sender::default(),
            without_check: Mutex::default(),
        }))
    }

    /// Returns whether no container has a check.
    pub fn is_empty(&self) -> bool {
        self.0.checks.is_empty()
    }

    /// Returns the candidate that the containers are asked about now.
    pub fn candidate(&self) -> watch::Receiver<Option<Arc<Candidate>>> {
        self.0.candidate.subscribe()
    }

    /// Asks whether the containers take `candidate` in place of the served dictionary. Answers are overdue after
    /// `timeout`. Needs a tokio runtime.
    pub fn ask(
        &self,
        candidate: Candidate,
        served: Arc<Dictionary>,
        timeout: Duration,
        containers: &watch::Receiver<Containers>,
    ) -> Question {
        let mut changed = changed_keys(&served, &candidate.dictionary);
        let truncated = changed.len() > MAX_LISTED_KEYS;
        changed.truncate(MAX_LISTED_KEYS);
        let body = Event {
            kind: CONFIG_CHECK,
            at: OffsetDateTime::now_utc(),
            dictionary: &candidate.dictionary,
            candidate: candidate.contents.first().map(|content| content.version()),
            changed,
            truncated,
        }
        .body();
        let candidate = Arc::new(candidate);
        self.0.candidate.send_replace(Some(Arc::clone(&candidate)));
        let tasks = Arc::new(TaskContext {
            shared: Arc::clone(&self.0),
            id: random_name("msg"),
            body,
            candidate,
            served,
            files: OnceCell::new(),
            failures: Mutex::default(),
        });
        let mut answers = JoinSet::new();
        for check in &self.0.checks {
            answers.spawn(Arc::clone(&tasks).ask(check.clone(), containers.clone()));
        }
        Question { context: tasks, answers, timeout, deadline: Some(Instant::now() + timeout), is_lost: false }
    }
}

/// A question that is being asked; it ends on drop.
pub struct Question {
    context: Arc<TaskContext>,
    answers: JoinSet<Result<(), SourceFault>>,
    timeout: Duration,
    /// The end of the time for answers; `None` once a verdict has reported it.
    deadline: Option<Instant>,
    /// Whether a task has ended without an answer, so there will be no verdict.
    is_lost: bool,
}

impl Question {
    /// Returns whether the question asks to replace this dictionary by these contents.
    pub fn is_about(&self, contents: &[Arc<VersionContent>], served: &Arc<Dictionary>) -> bool {
        let TaskContext { candidate, served: compared, .. } = &*self.context;
        let is_same = |(left, right): (&Arc<VersionContent>, &Arc<VersionContent>)| Arc::ptr_eq(left, right);
        Arc::ptr_eq(compared, served)
            && candidate.contents.len() == contents.len()
            && candidate.contents.iter().zip(contents).all(is_same)
    }

    /// Waits for the next verdict.
    ///
    /// Cancel safe.
    pub async fn verdict(&mut self) -> CheckVerdict {
        loop {
            let deadline = self.deadline;
            tokio::select! {
                biased;
                answer = self.answers.join_next(), if !self.is_lost => match answer {
                    None => return CheckVerdict::Takes,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(refusal))) => return CheckVerdict::Refuses(refusal),
                    Some(Err(error)) => {
                        tracing::error!(%error, "question lost, which is a bug");
                        self.is_lost = true;
                    }
                },
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.deadline = None;
                    return CheckVerdict::Overdue(self.context.overdue_fault(self.timeout));
                }
                else => return std::future::pending().await,
            }
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.context.shared.candidate.send_replace(None);
    }
}

/// The context of the tasks of one question.
struct TaskContext {
    shared: Arc<SharedChecks>,
    id: String,
    body: Bytes,
    candidate: Arc<Candidate>,
    served: Arc<Dictionary>,
    /// The candidate's files, which are written before any container is asked.
    files: OnceCell<Option<CandidateFiles>>,
    /// The containers that have not answered yet, with the last failure of each.
    failures: Mutex<BTreeMap<ContainerName, Option<String>>>,
}

impl TaskContext {
    fn failures(&self) -> MutexGuard<'_, BTreeMap<ContainerName, Option<String>>> {
        lock(&self.failures)
    }

    /// Asks one container until it has answered, or has ended.
    async fn ask(
        self: Arc<Self>,
        check: Check,
        mut containers: watch::Receiver<Containers>,
    ) -> Result<(), SourceFault> {
        let Check { container, target } = check;
        self.failures().insert(container.clone(), None);
        for attempt in 1.. {
            if containers.borrow_and_update().get(&container).is_some_and(|container| container.ended) {
                break;
            }
            match self.attempt(&container, &target).await {
                Ok(None) => break,
                Ok(Some(refusal)) => return Err(refusal),
                Err(error) => {
                    if attempt == 1 {
                        let host = target.host();
                        tracing::warn!(%container, host, error, "container not asked about a version; retrying");
                    }
                    self.failures().insert(container.clone(), Some(error));
                }
            }
            // A container that has started meanwhile may answer now.
            tokio::select! {
                () = sleep(ATTEMPT_BACKOFF.jittered_wait(attempt, rand::random())) => {}
                Ok(()) = containers.changed() => {}
            }
        }
        self.failures().remove(&container);
        Ok(())
    }

    /// Asks once. Returns the fault if the container refuses the candidate.
    async fn attempt(&self, container: &ContainerName, target: &WebhookTarget) -> Result<Option<SourceFault>, String> {
        self.files.get_or_try_init(|| self.write_files()).await?;
        let answer = post(target, &self.shared.secret, &self.id, self.body.clone(), MAX_READ_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status;
        match interpret_status(status) {
            CheckAnswer::Takes => Ok(None),
            CheckAnswer::Refuses => {
                let text = answer.text.as_ref().map(|text| &text[..]);
                let text = displayable_reason(text, &[&self.candidate.dictionary, &self.served]);
                let message = format!("container {container} refuses it: {text}");
                Ok(Some(SourceFault { reason: ProblemReason::CheckRefused, message }))
            }
            CheckAnswer::NoCheck => {
                let mut without_check = lock(&self.shared.without_check);
                if !without_check.contains(container) {
                    without_check.push(container.clone());
                    let (host, status) = (target.host(), status.as_u16());
                    tracing::warn!(%container, host, status, "container has no check; it is not asked about versions");
                }
                Ok(None)
            }
            CheckAnswer::Again => {
                Err(format!("the check answered {status}, which neither accepts nor refuses a version"))
            }
        }
    }

    async fn write_files(&self) -> Result<Option<CandidateFiles>, String> {
        let Some(folder) = self.shared.folder.clone() else { return Ok(None) };
        let candidate = Arc::clone(&self.candidate);
        match tokio::task::spawn_blocking(move || {
            CandidateFiles::write(&folder, &dictionary_files(&candidate.dictionary))
        })
        .await
        {
            Ok(result) => result.map(Some).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the task that writes the files failed: {error}")),
        }
    }

    fn overdue_fault(&self, timeout: Duration) -> SourceFault {
        let failures = self.failures();
        let container = failures.keys().next().map_or("", ContainerName::as_str);
        let cause = failures.values().next().and_then(Option::as_ref);
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let seconds = timeout.as_secs();
        let message =
            format!("container {container} has not answered its check within {seconds} s; the agent asks again{cause}");
        SourceFault { reason: ProblemReason::CheckFailed, message }
    }
}
