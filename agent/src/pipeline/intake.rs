//! Takes in what the hub sends: what the containers need not be asked about at once, the rest when they take it. Then it is served, stored
//! and passed on.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::keeper::Keeper;
use super::{Delivery, Outlets};
use crate::check::{Candidate, Checks, Question, Verdict};
use crate::notify::Containers;
use crate::readiness::NotReady;
use crate::source::hub::{LocalVersions, RanFile, Reply};
use crate::source::{Applied, Reading, Store};

/// How long the containers have for their answer where the hub does not say.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the pod has, and where it goes.
pub(super) struct Intake {
    pub(super) local_versions: LocalVersions,
    pub(super) delivery: Delivery,
    pub(super) keeper: Keeper,
    pub(super) not_ready: NotReady,
    store: Store,
    checks: Checks,
    containers: watch::Receiver<Containers>,
    ran: RanFile,
    /// What the containers are asked now.
    question: Option<Question>,
    served: bool,
    /// Taken in and not served yet, because the rest of the configs may arrive in a moment.
    withheld: Applied,
}

/// What [`Intake`] is made of, beside its local versions.
pub(super) struct IntakeParts {
    pub(super) store: Store,
    pub(super) outlets: Outlets,
    pub(super) keeper: Keeper,
    pub(super) not_ready: NotReady,
    pub(super) containers: watch::Receiver<Containers>,
    pub(super) ran: RanFile,
}

impl Intake {
    pub(super) fn new(local_versions: LocalVersions, parts: IntakeParts) -> Self {
        let IntakeParts { store, outlets, keeper, not_ready, containers, ran } = parts;
        Self {
            // Without checks nobody is asked, and nothing is to be remembered.
            local_versions: if outlets.checks.is_empty() {
                local_versions
            } else {
                local_versions.with_ran(ran.load())
            },
            checks: outlets.checks.clone(),
            delivery: Delivery::new(outlets),
            keeper,
            not_ready,
            store,
            containers,
            ran,
            question: None,
            served: false,
            withheld: Applied::default(),
        }
    }

    /// Whether something is served.
    pub(super) fn serves(&self) -> bool {
        self.served
    }

    /// Takes contents in that this pod has had before. Returns whether there are any.
    pub(super) async fn begin(&mut self, readings: Vec<Reading>, restored: bool) {
        self.take_in(readings, false, false);
        tracing::info!(
            last_good = restored,
            complete = self.local_versions.is_complete(),
            "contents found in this pod"
        );
        self.pass_on(!restored).await;
        if restored {
            self.keeper.mark(self.etag());
        }
    }

    /// Takes a reply in. Subscribers are notified of its contents before anything else happens. Returns what is wrong with it.
    pub(super) async fn take(&mut self, reply: Reply) -> Option<String> {
        let taken = self.local_versions.take(reply);
        let asks = self.served && !self.checks.is_empty();
        let readings = if asks { self.local_versions.hold_back(taken.readings) } else { taken.readings };
        let changed = self.take_in(readings, true, false);
        self.pass_on(changed).await;
        self.ask().await;
        taken.fault
    }

    /// Serves what there is: the rest of the configs may never arrive, and some are better than none.
    pub(super) async fn serve_now(&mut self) {
        self.take_in(Vec::new(), false, true);
        self.pass_on(false).await;
    }

    /// Does what comes next beside the polls: takes in what the containers say of a candidate, or writes what is still to be written.
    ///
    /// Cancel safe until something has happened, which it ends with.
    pub(super) async fn next(&mut self) -> Work {
        let Self { question, delivery, keeper, .. } = self;
        let verdict = async {
            match question {
                Some(question) => question.verdict().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            verdict = verdict => Work::Answered(verdict),
            () = delivery.files_due() => Work::Files,
            () = keeper.is_due() => Work::Store,
        }
    }

    /// Does it.
    pub(super) async fn work(&mut self, work: Work) {
        let readings = match work {
            Work::Files => return self.delivery.deliver().await,
            Work::Store => return self.keep().await,
            Work::Answered(Verdict::Overdue(fault)) => self.local_versions.overdue(&fault),
            Work::Answered(Verdict::Refuses(fault)) => {
                self.end_question();
                self.local_versions.refuse(&fault)
            }
            Work::Answered(Verdict::Takes) => {
                // Its files and its dictionary go before others are made.
                self.end_question();
                self.local_versions.release()
            }
        };
        let changed = self.take_in(readings, false, false);
        self.pass_on(changed).await;
    }

    /// Asks the containers about what is held back, unless they are being asked already.
    async fn ask(&mut self) {
        let (contents, served) = (self.local_versions.asked(), self.store.dictionary().cloned());
        let Some(served) = served.filter(|_| !contents.is_empty()) else {
            return self.end_question();
        };
        if self.question.as_ref().is_some_and(|question| question.is_about(&contents, &served)) {
            return;
        }
        self.end_question();
        let Ok(dictionary) = self.store.preview(&contents) else {
            // The store says what is wrong with it.
            let readings = self.local_versions.release();
            let changed = self.take_in(readings, false, false);
            return self.pass_on(changed).await;
        };
        let patience =
            self.local_versions.ack_timeout().map_or(PATIENCE, |seconds| Duration::from_secs(seconds.into()));
        let candidate = Candidate { contents, dictionary: Arc::new(dictionary) };
        self.question = Some(self.checks.ask(candidate, served, patience, &self.containers));
    }

    /// The candidate is not readable any more, and slow readers do not keep it in memory.
    fn end_question(&mut self) {
        if self.question.take().is_some() {
            self.delivery.outlets().connections.cut_older(1);
        }
    }

    /// Serves readings, unless the rest of the configs may arrive in a moment. Returns whether the last good contents have changed.
    fn take_in(&mut self, readings: Vec<Reading>, confirmed: bool, now: bool) -> bool {
        let applied = self.store.apply(readings, OffsetDateTime::now_utc());
        let changed = self.local_versions.settle(&self.store);
        self.withheld.add(applied);
        if self.served || now || self.local_versions.is_settled() {
            let applied = std::mem::take(&mut self.withheld);
            self.served |= applied.dictionary.is_some();
            self.delivery.serve(&self.store, applied, confirmed);
        }
        changed
    }

    /// Notifies the subscribers, then logs and stores what has changed.
    async fn pass_on(&mut self, changed: bool) {
        self.delivery.deliver().await;
        // Subscribers are notified before anything else happens.
        tokio::task::yield_now().await;
        self.delivery.log();
        if self.served {
            self.not_ready.clear();
        } else {
            let problems = self.store.problems().iter();
            let messages: Vec<String> =
                problems.map(|(config, problem)| format!("config {config}: {}", problem.message)).collect();
            if !messages.is_empty() {
                self.not_ready.say(&messages.join("; "));
            }
        }
        if changed {
            self.keep().await;
        }
    }

    /// Stores what would be served after a restart, and what nobody is asked about then.
    async fn keep(&mut self) {
        if !self.checks.is_empty() {
            self.ran.store(self.local_versions.ran());
        }
        self.keeper.store(self.local_versions.last_good(), self.etag()).await;
    }

    /// `ETag` of the dictionary that is served now.
    fn etag(&self) -> Option<String> {
        self.delivery.outlets().current.borrow().as_ref().map(|now| now.dictionary.etag().to_owned())
    }
}

/// What comes next beside the polls.
pub(super) enum Work {
    /// The containers say something of the candidate.
    Answered(Verdict),
    /// The files were not written and are tried again.
    Files,
    /// The last good contents were not stored and are tried again.
    Store,
}
