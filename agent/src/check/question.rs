//! One question: all containers that have a check are asked about one candidate, at the same time, each until it has answered.

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

use super::answer::{Answer, answer};
use super::text::{MAX_READ_BYTES, shown};
use crate::content::{Dictionary, VersionContent, changed_keys};
use crate::files::NextFiles;
use crate::notify::{Containers, Event, WebhookTarget, post, random_name};
use crate::source::Fault;

/// Waits between two attempts to ask a container.
const RETRIES: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// A container that is asked, and where.
#[derive(Clone, Debug)]
pub struct Check {
    /// The container.
    pub container: ContainerName,
    /// Where it answers.
    pub target: WebhookTarget,
}

/// What the containers are asked about.
#[derive(Debug)]
pub struct Candidate {
    /// The versions that they may take or refuse.
    pub contents: Vec<Arc<VersionContent>>,
    /// What the endpoint would serve with them.
    pub dictionary: Arc<Dictionary>,
}

impl Candidate {
    /// Returns whether one of its versions has this name.
    pub fn is_named(&self, version: &str) -> bool {
        self.contents.iter().any(|content| content.version().as_str() == version)
    }
}

/// How the question stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All containers take the candidate.
    Takes,
    /// One refuses it.
    Refuses(Fault),
    /// The time is over, and one has not answered. The question goes on.
    Overdue(Fault),
}

/// The containers that have checks; cheap to clone.
#[derive(Clone)]
pub struct Checks(Arc<Shared>);

struct Shared {
    checks: Vec<Check>,
    /// Signs the questions.
    secret: Zeroizing<Vec<u8>>,
    /// Where the files are, if there is a folder for them.
    folder: Option<PathBuf>,
    /// What the endpoint has for those who are asked.
    candidate: watch::Sender<Option<Arc<Candidate>>>,
    /// Containers of which it was logged that they know no question.
    without: Mutex<Vec<ContainerName>>,
}

impl Checks {
    /// Nobody is asked yet.
    pub fn new(checks: Vec<Check>, secret: Zeroizing<Vec<u8>>, folder: Option<PathBuf>) -> Self {
        if let Some(folder) = folder.as_ref().filter(|_| !checks.is_empty()) {
            NextFiles::remove_old(folder);
        }
        Self(Arc::new(Shared {
            checks,
            secret,
            folder,
            candidate: watch::Sender::default(),
            without: Mutex::default(),
        }))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.checks.is_empty()
    }

    /// What the containers are asked about now.
    pub fn candidate(&self) -> watch::Receiver<Option<Arc<Candidate>>> {
        self.0.candidate.subscribe()
    }

    /// Asks whether the containers take `candidate` in place of what is served. It is overdue after `patience`. Needs a tokio runtime.
    pub fn ask(
        &self,
        candidate: Candidate,
        served: Arc<Dictionary>,
        patience: Duration,
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
        let asked = Arc::new(Asked {
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
            answers.spawn(Arc::clone(&asked).ask(check.clone(), containers.clone()));
        }
        Question { asked, answers, patience, overdue: Some(Instant::now() + patience), lost: false }
    }
}

/// A question that is under way; it ends when this is dropped.
pub struct Question {
    asked: Arc<Asked>,
    answers: JoinSet<Result<(), Fault>>,
    patience: Duration,
    /// When the time is over; `None` once that was said.
    overdue: Option<Instant>,
    /// Whether a task has ended without an answer, so there will be no verdict.
    lost: bool,
}

impl Question {
    /// Returns whether the question is about these contents in place of this dictionary.
    pub fn is_about(&self, contents: &[Arc<VersionContent>], served: &Arc<Dictionary>) -> bool {
        let Asked { candidate, served: compared, .. } = &*self.asked;
        let same = |(one, other): (&Arc<VersionContent>, &Arc<VersionContent>)| Arc::ptr_eq(one, other);
        Arc::ptr_eq(compared, served)
            && candidate.contents.len() == contents.len()
            && candidate.contents.iter().zip(contents).all(same)
    }

    /// Waits for the next verdict.
    ///
    /// Cancel safe.
    pub async fn verdict(&mut self) -> Verdict {
        loop {
            let overdue = self.overdue;
            tokio::select! {
                biased;
                answer = self.answers.join_next(), if !self.lost => match answer {
                    None => return Verdict::Takes,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(refusal))) => return Verdict::Refuses(refusal),
                    Some(Err(error)) => {
                        tracing::error!(%error, "question lost, which is a bug");
                        self.lost = true;
                    }
                },
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    self.overdue = None;
                    return Verdict::Overdue(self.asked.overdue(self.patience));
                }
                else => return std::future::pending().await,
            }
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.asked.shared.candidate.send_replace(None);
    }
}

/// What the tasks of one question share.
struct Asked {
    shared: Arc<Shared>,
    id: String,
    body: Bytes,
    candidate: Arc<Candidate>,
    served: Arc<Dictionary>,
    /// The candidate's files, which are there before anybody is asked.
    files: OnceCell<Option<NextFiles>>,
    /// Why containers have not answered yet.
    failures: Mutex<BTreeMap<ContainerName, Option<String>>>,
}

impl Asked {
    fn failures(&self) -> MutexGuard<'_, BTreeMap<ContainerName, Option<String>>> {
        lock(&self.failures)
    }

    /// Asks one container until it has answered, or has ended.
    async fn ask(self: Arc<Self>, check: Check, mut containers: watch::Receiver<Containers>) -> Result<(), Fault> {
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
            // One that has started meanwhile may answer now.
            tokio::select! {
                () = sleep(RETRIES.jittered_wait(attempt, rand::random())) => {}
                Ok(()) = containers.changed() => {}
            }
        }
        self.failures().remove(&container);
        Ok(())
    }

    /// Asks once. Returns why the container refuses, if it does.
    async fn attempt(&self, container: &ContainerName, target: &WebhookTarget) -> Result<Option<Fault>, String> {
        self.files.get_or_try_init(|| self.write_files()).await?;
        let answered = post(target, &self.shared.secret, &self.id, self.body.clone(), MAX_READ_BYTES).await;
        let answered = answered.map_err(|error| error.to_string())?;
        let status = answered.status;
        match answer(status) {
            Answer::Takes => Ok(None),
            Answer::Refuses => {
                let text = answered.text.as_ref().map(|text| &text[..]);
                let text = shown(text, &[&self.candidate.dictionary, &self.served]);
                let message = format!("container {container} refuses it: {text}");
                Ok(Some(Fault { reason: ProblemReason::CheckRefused, message }))
            }
            Answer::NoCheck => {
                let mut without = lock(&self.shared.without);
                if !without.contains(container) {
                    without.push(container.clone());
                    let (host, status) = (target.host(), status.as_u16());
                    tracing::warn!(%container, host, status, "container has no check; it is not asked about versions");
                }
                Ok(None)
            }
            Answer::Again => Err(format!("the check answered {status}, which neither accepts nor refuses a version")),
        }
    }

    async fn write_files(&self) -> Result<Option<NextFiles>, String> {
        let Some(folder) = self.shared.folder.clone() else { return Ok(None) };
        let candidate = Arc::clone(&self.candidate);
        match tokio::task::spawn_blocking(move || NextFiles::write(&folder, &candidate.dictionary)).await {
            Ok(written) => written.map(Some).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the task that writes the files failed: {error}")),
        }
    }

    fn overdue(&self, patience: Duration) -> Fault {
        let failures = self.failures();
        let container = failures.keys().next().map_or("", ContainerName::as_str);
        let why = failures.values().next().and_then(Option::as_ref).map_or_else(String::new, |why| format!(": {why}"));
        let seconds = patience.as_secs();
        let message =
            format!("container {container} has not answered its check within {seconds} s; the agent asks again{why}");
        Fault { reason: ProblemReason::CheckFailed, message }
    }
}
