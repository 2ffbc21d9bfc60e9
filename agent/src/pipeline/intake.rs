//! Takes in what the hub sends: what the containers need not be asked about at once, the rest when they take it. Then it is served, stored
//! and passed on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::ConfigName;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::hub::PollRequest;
use nudge_protocol::status::ProblemReason;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::in_place::RestartStep;
use super::keeper::Keeper;
use super::unfit::unfit;
use super::{Delivery, InPlace, Outlets};
use crate::check::{Candidate, Checks, Question, Verdict};
use crate::content::{TooLarge, VersionContent};
use crate::disk_room::{NoRoom, Room};
use crate::notify::Containers;
use crate::readiness::NotReady;
use crate::restart::Command;
use crate::source::hub::{LocalVersions, RanFile, Reply};
use crate::source::{Applied, Fault, Reading, Store};

/// How long the containers have for their answer where the hub does not say.
const DEFAULT_CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits between looks for room for files that had none.
const ROOM_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// Files that had no room.
#[derive(Default)]
struct Unplaced {
    /// The sizes of all files with each of the contents, by their keys.
    files: Vec<BTreeMap<String, usize>>,
    failures: u32,
    /// When to look again; `None` where there is room, or nothing needs any.
    due: Option<Instant>,
}

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
    in_place: Option<InPlace>,
    /// Why the containers can't start with what there is.
    cannot_start: Option<Fault>,
    unplaced: Unplaced,
    /// Whether what was refused is wanted again, so the hub is to be polled at once.
    polls_anew: bool,
    /// What the containers are asked now.
    question: Option<Question>,
    served: bool,
    /// Whether readiness already reports that an address can't be listened at.
    silent: bool,
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
    pub(super) in_place: Option<InPlace>,
}

impl Intake {
    pub(super) fn new(local_versions: LocalVersions, parts: IntakeParts) -> Self {
        let IntakeParts { store, outlets, keeper, not_ready, containers, ran, in_place } = parts;
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
            in_place,
            cannot_start: None,
            unplaced: Unplaced::default(),
            polls_anew: false,
            question: None,
            served: false,
            silent: false,
            withheld: Applied::default(),
        }
    }

    /// Returns whether the hub is to be polled at once.
    pub(super) fn polls_anew(&self) -> bool {
        self.polls_anew
    }

    /// Returns the next poll. It asks again for what had no room, if there is room now.
    pub(super) fn request(&mut self, wait_seconds: u32) -> PollRequest {
        if std::mem::take(&mut self.polls_anew) {
            self.local_versions.forget_refusals_for(ProblemReason::CantApply);
        }
        self.local_versions.request(wait_seconds)
    }

    /// Returns whether something is served.
    pub(super) fn serves(&self) -> bool {
        self.served
    }

    /// Takes contents in that this pod has had before.
    pub(super) async fn begin(&mut self, readings: Vec<Reading>, restored: bool) {
        self.adopt(readings);
        // What the hub assigns may be other content, which fits.
        self.local_versions.forget_refusals();
        self.serve_settled(false, false);
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
        let readings = if !self.served {
            taken.readings
        } else if self.in_place.is_some() {
            self.local_versions.hold_back_changed(taken.readings)
        } else if !self.checks.is_empty() {
            self.local_versions.hold_back_new(taken.readings)
        } else {
            taken.readings
        };
        let changed = self.take_in(readings, true, false);
        self.pass_on(changed).await;
        if self.in_place.is_some() {
            self.restart().await;
        } else {
            self.ask().await;
        }
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
        let Self { question, delivery, keeper, in_place, silent, unplaced, .. } = self;
        let looks = async {
            match unplaced.due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let restart = async {
            match in_place {
                Some(in_place) => in_place.wait_until_due().await,
                None => std::future::pending().await,
            }
        };
        let verdict = async {
            match question {
                Some(question) => question.verdict().await,
                None => std::future::pending().await,
            }
        };
        let listens = async {
            if *silent {
                delivery.outlets().status.listens_everywhere().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            verdict = verdict => Work::Answered(verdict),
            () = listens => Work::Ready,
            () = delivery.files_due() => Work::Files,
            () = keeper.wait_until_due() => Work::Store,
            () = restart => Work::Restart,
            () = looks => Work::Room,
        }
    }

    /// Does what [`Self::next`] returned.
    pub(super) async fn work(&mut self, work: Work) {
        let readings = match work {
            Work::Files | Work::Ready => return self.pass_on(false).await,
            Work::Store => return self.keep().await,
            Work::Room => return self.look_for_room(),
            Work::Restart if self.served => return self.restart().await,
            // The variables could not be written. The rest of the configs is not waited for any more.
            Work::Restart => return self.serve_now().await,
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
        self.refuse_unfit().await;
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
        let patience = self
            .local_versions
            .ack_timeout()
            .map_or(DEFAULT_CHECK_TIMEOUT, |seconds| Duration::from_secs(seconds.into()));
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
        let changed = self.adopt(readings);
        self.serve_settled(confirmed, now);
        changed
    }

    /// Asks for what had no room again if there is room now.
    fn look_for_room(&mut self) {
        let unplaced = &mut self.unplaced;
        if !self.local_versions.refuses_for(ProblemReason::CantApply) {
            *unplaced = Unplaced::default();
            return;
        }
        let room = self.delivery.room();
        self.polls_anew = room.is_none_or(|room| unplaced.files.iter().any(|files| room.check(files).is_ok()));
        if self.polls_anew {
            unplaced.due = None;
        } else {
            unplaced.look_later();
        }
    }

    /// Looks for room for these contents later, as far as there is none now.
    fn note_room(&mut self, room: Option<&Room>, contents: &[Arc<VersionContent>]) {
        let without = |content: &&Arc<VersionContent>| self.check_room(room, std::slice::from_ref(content)).is_err();
        let mut files: Vec<_> =
            contents.iter().filter(without).map(|one| self.store.files_with(std::slice::from_ref(one))).collect();
        // Each may have room, and all of them none.
        if files.is_empty() && self.check_room(room, contents).is_err() {
            files.push(self.store.files_with(contents));
        }
        if !files.is_empty() {
            self.unplaced.files = files;
            self.unplaced.look_later();
        }
    }

    /// Adds what is good of the readings to the last good contents. Returns whether these have changed.
    fn adopt(&mut self, readings: Vec<Reading>) -> bool {
        let readings = self.without_unfit(readings);
        let applied = self.store.apply(readings, OffsetDateTime::now_utc());
        self.withheld.add(applied);
        let changed = self.local_versions.settle(&self.store);
        if changed {
            self.unplaced.failures = 0;
        }
        changed
    }

    /// Serves the last good contents, unless the rest of the configs may arrive in a moment.
    fn serve_settled(&mut self, confirmed: bool, now: bool) {
        if !self.served && !now && !self.local_versions.is_settled() {
            return;
        }
        if let Err(fault) = self.prepare() {
            return self.report_start_fault(fault);
        }
        self.clear_start_fault();
        let applied = std::mem::take(&mut self.withheld);
        self.served |= applied.dictionary.is_some();
        self.delivery.serve(&self.store, applied, confirmed);
    }

    /// Writes the variables that the containers start with, before anything is served.
    fn prepare(&mut self) -> Result<(), Fault> {
        match (&mut self.in_place, self.store.dictionary()) {
            (Some(in_place), Some(dictionary)) if !self.served => {
                in_place.prepare(dictionary, &self.local_versions.to_run_id())
            }
            _ => Ok(()),
        }
    }

    /// The containers can't start with what there is. It is not served, and the fault is shown.
    fn report_start_fault(&mut self, fault: Fault) {
        let configs = self.local_versions.order().iter().filter(|config| self.store.good(config).is_some());
        let reading = |config: &ConfigName| Reading { config: config.clone(), result: Err(fault.clone()) };
        let readings = configs.map(reading).collect();
        let problems = Applied { dictionary: None, ..self.store.apply(readings, OffsetDateTime::now_utc()) };
        self.cannot_start = Some(fault);
        self.delivery.serve(&self.store, problems, false);
    }

    /// The containers can start: withdraws the fault that said otherwise.
    fn clear_start_fault(&mut self) {
        let Some(Fault { reason, message }) = self.cannot_start.take() else { return };
        let shown = self.store.problems().iter();
        let shown = shown.filter(|(_, problem)| problem.reason == reason && problem.message == message);
        let good = |config: &ConfigName| {
            Some(Reading { config: config.clone(), result: Ok(Arc::clone(self.store.good(config)?)) })
        };
        let readings = shown.filter_map(|(config, _)| good(config)).collect();
        self.withheld.add(self.store.apply(readings, OffsetDateTime::now_utc()));
    }

    /// Restarts the containers with what is held back, where they can be, or once more where the last restart was not done.
    async fn restart(&mut self) {
        if !self.served {
            return;
        }
        self.refuse_unfit().await;
        let Some(in_place) = &mut self.in_place else { return };
        let held = (!self.local_versions.asked().is_empty()).then(|| self.local_versions.to_run_id());
        let step = in_place.step(held, &self.containers.borrow());
        match step {
            RestartStep::Rest => {}
            RestartStep::Command(command) => self.command(command).await,
            RestartStep::Lost(fault) => {
                let readings = self.local_versions.overdue(&fault);
                let changed = self.take_in(readings, false, false);
                self.pass_on(changed).await;
            }
        }
        self.show();
    }

    /// Refuses what the pod can't take, of what is held back.
    async fn refuse_unfit(&mut self) {
        let contents = self.local_versions.asked();
        let room = if contents.is_empty() { None } else { self.delivery.room() };
        let check = |contents: &[Arc<VersionContent>]| {
            self.check_room(room.as_ref(), contents)?;
            let Some(in_place) = &self.in_place else { return Ok(()) };
            let too_large = |error: TooLarge| Fault { reason: ProblemReason::TooLarge, message: error.to_string() };
            in_place.check(&self.store.preview(contents).map_err(too_large)?)
        };
        let unfit = unfit(&contents, check);
        if unfit.is_empty() {
            return;
        }
        self.note_room(room.as_ref(), &contents);
        let refused = |(config, fault)| self.local_versions.refuse_of(&[config], &fault);
        let readings = unfit.into_iter().flat_map(refused).collect();
        let changed = self.take_in(readings, false, false);
        self.pass_on(changed).await;
    }

    /// Returns the readings with a fault in place of content whose files have no room.
    fn without_unfit(&mut self, mut readings: Vec<Reading>) -> Vec<Reading> {
        let is_new = |content: &&Arc<VersionContent>| self.store.good(content.config()) != Some(*content);
        let contents = readings.iter().filter_map(|reading| reading.result.as_ref().ok());
        let contents: Vec<_> = contents.filter(is_new).cloned().collect();
        let room = if contents.is_empty() { None } else { self.delivery.room() };
        let Some(room) = room else { return readings };
        let unfit = unfit(&contents, |contents| self.check_room(Some(&room), contents));
        // After a restart of the agent, or where another version could not be written, they may be there already.
        let are_there = || self.store.preview(&contents).is_ok_and(|dictionary| self.delivery.has_files(&dictionary));
        if unfit.is_empty() || are_there() {
            return readings;
        }
        self.note_room(Some(&room), &contents);
        for (config, fault) in unfit {
            let of_config = readings.iter_mut().filter(|reading| reading.config == config);
            of_config.for_each(|reading| reading.result = Err(fault.clone()));
        }
        readings
    }

    /// Whether the files that there would be with these contents have room.
    fn check_room(&self, room: Option<&Room>, contents: &[Arc<VersionContent>]) -> Result<(), Fault> {
        let Some(room) = room else { return Ok(()) };
        let fault = |error: NoRoom| Fault { reason: ProblemReason::CantApply, message: error.to_string() };
        room.check(&self.store.files_with(contents)).map_err(fault)
    }

    /// Stores what the containers are to run, and ends the agent. After its start it serves that before any of them starts.
    async fn command(&mut self, command: Command) {
        let Some(in_place) = &mut self.in_place else { return };
        let (head, blocks) = self.local_versions.to_run();
        let configs =
            head.configs.iter().filter_map(|config| Some(format!("{}={}", config.name, config.version.as_ref()?)));
        let configs = configs.collect::<Vec<_>>().join(",");
        let (record, last_good, times) = (in_place.file(), self.keeper.file().clone(), command.times);
        let store = move || {
            record.store(&command)?;
            last_good.store(&head, &blocks).map_err(io::Error::other)
        };
        match tokio::task::spawn_blocking(store).await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => {
                tracing::info!(configs, times, "restarting all containers of this pod");
                in_place.end();
                // Nothing may store anything else now.
                std::future::pending::<()>().await;
            }
            Err(error) => in_place.failed(&error),
        }
    }

    /// Shows whether the containers run what is served.
    fn show(&self) {
        if let Some((in_place, etag)) = self.in_place.as_ref().zip(self.etag()) {
            in_place.show(&etag, &self.delivery.outlets().status);
        }
    }

    /// Notifies the subscribers, then logs and stores what has changed.
    async fn pass_on(&mut self, changed: bool) {
        self.delivery.deliver().await;
        // Subscribers are notified before anything else happens.
        tokio::task::yield_now().await;
        self.delivery.log();
        let silent = self.delivery.outlets().status.silent();
        self.silent = silent.is_some();
        // An agent that was ready stays so.
        if let Some(error) = self.delivery.lacks_files().or(silent.as_ref().map(|fault| &*fault.message)) {
            self.not_ready.say(error);
        } else if self.served {
            self.not_ready.clear();
        } else {
            let problems = self.store.problems().iter();
            let messages: Vec<String> =
                problems.map(|(config, problem)| format!("config {config}: {}", problem.message)).collect();
            if !messages.is_empty() {
                self.not_ready.say(&messages.join("; "));
            }
        }
        self.show();
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

impl Unplaced {
    fn look_later(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.due = Some(Instant::now() + ROOM_BACKOFF.wait(self.failures));
    }
}

/// What comes next beside the polls.
pub(super) enum Work {
    /// The containers say something of the candidate.
    Answered(Verdict),
    /// The files were not written and are tried again.
    Files,
    /// The endpoint listens at all of its addresses.
    Ready,
    /// The last good contents were not stored and are tried again.
    Store,
    /// There may be room for files that had none.
    Room,
    /// A restart of the containers may be commanded now, or the variables be written.
    Restart,
}
