//! Takes in the hub's contents: at once, or when the containers accept them or are restarted with them. Then the
//! contents are served, stored and passed on.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_protocol::ConfigName;
use nudge_protocol::hub::PollRequest;
use nudge_protocol::status::ProblemReason;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::in_place::RestartStep;
use super::last_good_keeper::LastGoodKeeper;
use super::next_attempt::Retry;
use super::unfit_contents::find_unfit;
use super::{Delivery, InPlace, Outlets};
use crate::check::{Candidate, CheckVerdict, Checks, Question};
use crate::content::{TooLarge, VersionContent};
use crate::files::StateFile;
use crate::files::volume_files::{FileSizes, Rooms, UnfitFiles};
use crate::notify::Containers;
use crate::readiness::NotReady;
use crate::restart::RestartCommand;
use crate::source::hub::{LastGood, LocalVersions, PollReply, RanContents};
use crate::source::{Applied, Reading, SourceFault, Store};

/// The time that the containers have for their answer if the hub does not say.
const DEFAULT_CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that the hub has, at the start, to compare mounted Secrets with what was sealed.
const COMPARISON_TIMEOUT: Duration = Duration::from_secs(5);

/// Files that had no room.
#[derive(Default)]
struct UnplacedFiles {
    /// The sizes of all files with each of the contents, by their keys.
    sizes: Vec<FileSizes>,
    /// The next check for room.
    retry: Retry,
}

/// The contents that the pod has, and their way to the outlets.
pub(super) struct Intake {
    pub(super) local_versions: LocalVersions,
    pub(super) delivery: Delivery,
    pub(super) keeper: LastGoodKeeper,
    pub(super) not_ready: NotReady,
    store: Store,
    checks: Checks,
    containers: watch::Receiver<Containers>,
    ran: StateFile,
    in_place: Option<InPlace>,
    /// The reason why the containers can't start with the contents.
    start_fault: Option<SourceFault>,
    unplaced: UnplacedFiles,
    /// Whether a refused content is wanted again, so the hub must be polled at once.
    polls_again: bool,
    /// The question that the containers are asked now.
    question: Option<Question>,
    /// Whether the not-ready file says that an address is taken.
    reports_silence: bool,
    /// The changes that are not served yet, because the rest of the configs may arrive in a moment.
    unserved: Applied,
    /// The time when mounted Secrets are served though the hub has not compared them.
    uncompared_due: tokio::time::Instant,
}

/// What an intake is made of.
pub struct IntakeParts {
    /// The versions that this pod has.
    pub local_versions: LocalVersions,
    /// The last good contents and their dictionary.
    pub store: Store,
    /// The outlets of the dictionary.
    pub outlets: Outlets,
    /// The file with the last good contents.
    pub last_good: LastGood,
    /// The file with the contents that this pod has run.
    pub ran: StateFile,
    /// The reason why nothing is served yet, for `wait-ready`.
    pub not_ready: NotReady,
    /// The restarts of the containers, if they take versions by a restart.
    pub in_place: Option<InPlace>,
}

/// The occasion for taking contents in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// A reply of the hub, which confirms the pod's versions.
    Reply,
    /// An event in the pod.
    Event,
    /// The end of the wait for the rest of the configs.
    WaitEnd,
}

impl Intake {
    pub(super) fn new(parts: IntakeParts, containers: watch::Receiver<Containers>) -> Self {
        let IntakeParts { mut local_versions, store, outlets, last_good, ran, not_ready, in_place } = parts;
        // Without checks no container is asked, and no content needs to be remembered.
        if !outlets.checks.is_empty() {
            local_versions.set_ran(RanContents::load(&ran));
        }
        Self {
            local_versions,
            checks: outlets.checks.clone(),
            delivery: Delivery::new(outlets),
            keeper: LastGoodKeeper::new(last_good),
            not_ready,
            store,
            containers,
            ran,
            in_place,
            start_fault: None,
            unplaced: UnplacedFiles::default(),
            polls_again: false,
            question: None,
            reports_silence: false,
            unserved: Applied::default(),
            uncompared_due: tokio::time::Instant::now() + COMPARISON_TIMEOUT,
        }
    }

    /// Returns whether the hub must be polled at once.
    pub(super) fn polls_again(&self) -> bool {
        self.polls_again
    }

    /// Returns the next poll. It asks again for contents that had no room, if there is room now.
    pub(super) fn next_request(&mut self, wait_seconds: u32) -> PollRequest {
        if std::mem::take(&mut self.polls_again) {
            self.local_versions.forget_refusals(|fault| fault.reason == ProblemReason::CantApply);
        }
        self.local_versions.request(wait_seconds)
    }

    /// Returns whether a dictionary is served.
    pub(super) fn is_serving(&self) -> bool {
        self.delivery.outlets().current.borrow().is_some()
    }

    /// Serves contents that this pod has had before. `restored` says that some are the last good ones.
    pub(super) async fn start(&mut self, readings: Vec<Reading>, restored: bool) {
        self.adopt(readings);
        // The hub may assign other contents, which fit.
        self.local_versions.forget_refusals(|_| true);
        self.serve_settled(Occasion::Event);
        let complete = self.local_versions.is_complete();
        tracing::info!(last_good = restored, complete, "contents found in this pod");
        self.pass_on(!restored).await;
        if restored {
            self.keeper.set_kept_etag(self.etag());
        }
    }

    /// Takes a reply in. Subscribers are notified of its contents before anything else happens. Returns the reply's
    /// faults.
    pub(super) async fn take(&mut self, reply: PollReply) -> Option<String> {
        let taken = self.local_versions.take(reply);
        for (config, error) in &taken.changed_mounts {
            tracing::warn!(%config, %error, "mounted version differs");
        }
        let readings = if !self.is_serving() {
            taken.readings
        } else if self.in_place.is_some() {
            self.local_versions.defer_changed(taken.readings)
        } else if !self.checks.is_empty() {
            self.local_versions.defer_new(taken.readings)
        } else {
            taken.readings
        };
        self.take_in(readings, Occasion::Reply).await;
        if self.in_place.is_some() {
            self.restart().await;
        } else {
            self.ask().await;
        }
        taken.fault
    }

    /// Serves the contents that the pod has: the rest of the configs may never arrive, and some are better than none.
    pub(super) async fn serve_now(&mut self) {
        let readings = self.local_versions.release_uncompared();
        self.take_in(readings, Occasion::WaitEnd).await;
    }

    /// Waits for work that does not depend on the polls: answers of the containers, and attempts that are due.
    ///
    /// Cancel safe.
    pub(super) async fn wait_for_work(&mut self) -> Work {
        let Self { question, delivery, keeper, in_place, reports_silence, unplaced, local_versions, .. } = self;
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
        let listening = async {
            if *reports_silence {
                delivery.outlets().status.wait_until_listening().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            verdict = verdict => Work::Verdict(verdict),
            () = listening => Work::Listening,
            () = delivery.wait_until_files_due() => Work::Files,
            () = keeper.wait_until_due() => Work::Store,
            () = restart => Work::Restart,
            () = unplaced.retry.wait_until_due() => Work::Room,
            () = sleep_until(self.uncompared_due), if local_versions.holds_uncompared() => Work::Uncompared,
        }
    }

    /// Does the work that [`Self::wait_for_work`] returned.
    pub(super) async fn do_work(&mut self, work: Work) {
        let readings = match work {
            Work::Files | Work::Listening => return self.pass_on(false).await,
            Work::Store => return self.store_last_good().await,
            Work::Room => return self.check_for_room(),
            Work::Restart if self.is_serving() => return self.restart().await,
            // The variables could not be written, so there is no further wait for the other configs.
            Work::Restart => return self.serve_now().await,
            Work::Uncompared => self.local_versions.release_uncompared(),
            Work::Verdict(CheckVerdict::Overdue(fault)) => self.local_versions.overdue_readings(&fault),
            Work::Verdict(CheckVerdict::Refuses(fault)) => {
                self.end_question();
                self.local_versions.refuse(&fault)
            }
            Work::Verdict(CheckVerdict::Takes) => {
                // The files and the dictionary of the candidate go before others are made.
                self.end_question();
                self.local_versions.release()
            }
        };
        self.take_in(readings, Occasion::Event).await;
    }

    /// Asks the containers about the contents that are held back, unless they are being asked already.
    async fn ask(&mut self) {
        self.refuse_unfit().await;
        let (contents, served) = (self.local_versions.deferred_contents(), self.store.dictionary().cloned());
        let Some(served) = served.filter(|_| !contents.is_empty()) else {
            return self.end_question();
        };
        if self.question.as_ref().is_some_and(|question| question.is_about(&contents, &served)) {
            return;
        }
        self.end_question();
        let Ok(dictionary) = self.store.preview(&contents) else {
            // The store reports the faults of the contents.
            let readings = self.local_versions.release();
            return self.take_in(readings, Occasion::Event).await;
        };
        let seconds = self.local_versions.ack_timeout_seconds();
        let timeout = seconds.map_or(DEFAULT_CHECK_TIMEOUT, |seconds| Duration::from_secs(seconds.into()));
        let candidate = Candidate { contents, dictionary: Arc::new(dictionary) };
        self.question = Some(self.checks.ask(candidate, served, timeout, &self.containers));
    }

    /// Ends the question. Its candidate can't be read any more, and slow readers do not keep it in memory.
    fn end_question(&mut self) {
        if self.question.take().is_some() {
            self.delivery.outlets().connections.cut_older(1);
        }
    }

    /// Adopts readings, serves them unless the rest of the configs may arrive in a moment, and passes them on.
    async fn take_in(&mut self, readings: Vec<Reading>, occasion: Occasion) {
        let changed = self.adopt(readings);
        self.serve_settled(occasion);
        self.pass_on(changed).await;
    }

    /// Requests the contents that had no room again if there is room now.
    fn check_for_room(&mut self) {
        let UnplacedFiles { sizes, retry } = &mut self.unplaced;
        if !self.local_versions.refuses_for(ProblemReason::CantApply) {
            self.unplaced = UnplacedFiles::default();
            return;
        }
        let rooms = self.delivery.rooms();
        self.polls_again = rooms.is_none_or(|rooms| sizes.iter().any(|files| rooms.check(files).is_ok()));
        if self.polls_again {
            retry.due = None;
        } else {
            retry.plan();
        }
    }

    /// Plans another check for room, for those of these contents that do not fit now.
    fn plan_room_check(&mut self, rooms: &Rooms, contents: &[Arc<VersionContent>]) {
        let without_room = |contents: &[Arc<VersionContent>]| {
            self.sizes_with(contents).ok().filter(|sizes| rooms.check(sizes).is_err())
        };
        let mut sizes: Vec<_> = contents.chunks(1).filter_map(without_room).collect();
        // Each content alone may have room, and all together none.
        if sizes.is_empty() {
            sizes.extend(without_room(contents));
        }
        if !sizes.is_empty() {
            self.unplaced.sizes = sizes;
            self.unplaced.retry.plan();
        }
    }

    /// Adds the good readings to the last good contents. Returns whether these have changed.
    fn adopt(&mut self, readings: Vec<Reading>) -> bool {
        let readings = self.replace_unfit(readings);
        let applied = self.store.apply(readings, OffsetDateTime::now_utc());
        self.unserved.add(applied);
        let changed = self.local_versions.settle(&self.store);
        if changed {
            self.unplaced.retry.failures = 0;
        }
        changed
    }

    /// Serves the last good contents, unless the rest of the configs may arrive in a moment.
    fn serve_settled(&mut self, occasion: Occasion) {
        if !self.is_serving() && occasion != Occasion::WaitEnd && !self.local_versions.is_settled() {
            return;
        }
        if let Err(fault) = self.prepare() {
            return self.report_start_fault(fault);
        }
        self.clear_start_fault();
        let confirmed = (occasion == Occasion::Reply).then(Instant::now);
        self.delivery.serve(&self.store, std::mem::take(&mut self.unserved), confirmed);
    }

    /// Writes the variables that the containers start with, before anything is served.
    fn prepare(&mut self) -> Result<(), SourceFault> {
        let is_serving = self.is_serving();
        match (&mut self.in_place, self.store.dictionary()) {
            (Some(in_place), Some(dictionary)) if !is_serving => {
                in_place.prepare(dictionary, &self.local_versions.assigned_id())
            }
            _ => Ok(()),
        }
    }

    /// Reports that the containers can't start with the contents, which are not served.
    fn report_start_fault(&mut self, fault: SourceFault) {
        let configs = self.local_versions.order().iter().filter(|config| self.store.good(config).is_some());
        let reading = |config: &ConfigName| Reading { config: config.clone(), result: Err(fault.clone()) };
        let readings = configs.map(reading).collect();
        let problems = Applied { dictionary: None, ..self.store.apply(readings, OffsetDateTime::now_utc()) };
        self.start_fault = Some(fault);
        self.delivery.serve(&self.store, problems, None);
    }

    /// Withdraws the fault that the containers can't start.
    fn clear_start_fault(&mut self) {
        let Some(SourceFault { reason, message }) = self.start_fault.take() else { return };
        let problems = self.store.problems().iter();
        let problems = problems.filter(|(_, problem)| problem.reason == reason && problem.message == message);
        let good = |config: &ConfigName| {
            Some(Reading { config: config.clone(), result: Ok(Arc::clone(self.store.good(config)?)) })
        };
        let readings = problems.filter_map(|(config, _)| good(config)).collect();
        self.unserved.add(self.store.apply(readings, OffsetDateTime::now_utc()));
    }

    /// Restarts the containers with the contents that are held back, or once more if the last restart was not done.
    async fn restart(&mut self) {
        if !self.is_serving() {
            return;
        }
        self.refuse_unfit().await;
        let Some(in_place) = &mut self.in_place else { return };
        let deferred_content =
            (!self.local_versions.deferred_contents().is_empty()).then(|| self.local_versions.assigned_id());
        let step = in_place.next_step(deferred_content, &self.containers.borrow());
        match step {
            RestartStep::Wait => {}
            RestartStep::Command(command) => self.command_restart(command).await,
            RestartStep::Lost(fault) => {
                let readings = self.local_versions.overdue_readings(&fault);
                self.take_in(readings, Occasion::Event).await;
            }
        }
        self.show_progress();
    }

    /// Refuses the held-back contents that the pod can't take.
    async fn refuse_unfit(&mut self) {
        let contents = self.local_versions.deferred_contents();
        let rooms = if contents.is_empty() { None } else { self.delivery.rooms() };
        let check = |contents: &[Arc<VersionContent>]| {
            rooms.as_ref().map_or(Ok(()), |rooms| self.check_files(rooms, contents))?;
            let Some(in_place) = &self.in_place else { return Ok(()) };
            let too_large =
                |error: TooLarge| SourceFault { reason: ProblemReason::TooLarge, message: error.to_string() };
            in_place.check(&self.store.preview(contents).map_err(too_large)?)
        };
        let unfit = find_unfit(&contents, check);
        if unfit.is_empty() {
            return;
        }
        if let Some(rooms) = &rooms {
            self.plan_room_check(rooms, &contents);
        }
        let refuse = |(config, fault)| self.local_versions.refuse_config(&config, &fault);
        let readings = unfit.into_iter().filter_map(refuse).collect();
        self.take_in(readings, Occasion::Event).await;
    }

    /// Returns the readings with a fault in place of each content whose files have no room.
    fn replace_unfit(&mut self, mut readings: Vec<Reading>) -> Vec<Reading> {
        let is_new = |content: &&Arc<VersionContent>| self.store.good(content.config()) != Some(*content);
        let contents = readings.iter().filter_map(|reading| reading.result.as_ref().ok());
        let contents: Vec<_> = contents.filter(is_new).cloned().collect();
        let rooms = if contents.is_empty() { None } else { self.delivery.rooms() };
        let Some(rooms) = rooms else { return readings };
        let unfit = find_unfit(&contents, |contents| self.check_files(&rooms, contents));
        // After a restart of the agent, or if another version could not be written, the files may exist already.
        let files_exist = || self.store.preview(&contents).is_ok_and(|dictionary| self.delivery.has_files(&dictionary));
        if unfit.is_empty() || files_exist() {
            return readings;
        }
        self.plan_room_check(&rooms, &contents);
        for (config, fault) in unfit {
            let of_config = readings.iter_mut().filter(|reading| reading.config == config);
            of_config.for_each(|reading| reading.result = Err(fault.clone()));
        }
        readings
    }

    /// Checks whether the files that there would be with these contents have their keys and room.
    fn check_files(&self, rooms: &Rooms, contents: &[Arc<VersionContent>]) -> Result<(), SourceFault> {
        let fault = |message| SourceFault { reason: ProblemReason::CantApply, message };
        let sizes = self.sizes_with(contents).map_err(|error| fault(error.to_string()))?;
        rooms.check(&sizes).map_err(|error| fault(error.to_string()))
    }

    /// Returns the sizes of the files that there would be with these contents.
    fn sizes_with(&self, contents: &[Arc<VersionContent>]) -> Result<FileSizes, UnfitFiles> {
        self.delivery.outlets().folders.sizes(&self.store.contents_with(contents))
    }

    /// Stores the contents that the containers should run, and ends the agent. After its start it serves them before
    /// any container starts.
    async fn command_restart(&mut self, command: RestartCommand) {
        let Some(in_place) = &mut self.in_place else { return };
        let (head, blocks) = self.local_versions.assigned();
        let configs =
            head.configs.iter().filter_map(|config| Some(format!("{}={}", config.name, config.version.as_ref()?)));
        let configs = configs.collect::<Vec<_>>().join(",");
        let (file, last_good, times) = (in_place.file(), self.keeper.file().clone(), command.times);
        let store = move || {
            file.store(&command)?;
            last_good.store(&head, &blocks).map_err(io::Error::other)
        };
        match tokio::task::spawn_blocking(store).await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => {
                tracing::info!(configs, times, "restarting all containers of this pod");
                in_place.end_agent();
                // Nothing may store anything else now.
                std::future::pending::<()>().await;
            }
            Err(error) => in_place.retry_store(&error),
        }
    }

    /// Shows whether the containers run the served content.
    fn show_progress(&self) {
        if let Some((in_place, etag)) = self.in_place.as_ref().zip(self.etag()) {
            in_place.show_progress(&etag, &self.delivery.outlets().status);
        }
    }

    /// Notifies the subscribers, then logs and stores the changes.
    async fn pass_on(&mut self, changed: bool) {
        self.delivery.deliver().await;
        // Subscribers are notified before anything else happens.
        tokio::task::yield_now().await;
        self.delivery.log();
        let listen_fault = self.delivery.outlets().status.listen_fault();
        self.reports_silence = listen_fault.is_some();
        // An agent that was ready stays ready.
        if let Some(error) = self.delivery.files_error().or(listen_fault.as_ref().map(|fault| &*fault.message)) {
            self.not_ready.set_reason(error);
        } else if self.is_serving() {
            self.not_ready.clear();
        } else {
            let problems = self.store.problems().iter();
            let messages: Vec<String> =
                problems.map(|(config, problem)| format!("config {config}: {}", problem.message)).collect();
            if !messages.is_empty() {
                self.not_ready.set_reason(&messages.join("; "));
            }
        }
        self.show_progress();
        if changed {
            self.store_last_good().await;
        }
    }

    /// Stores the contents that would be served after a restart, and those that no container is asked about again.
    async fn store_last_good(&mut self) {
        if !self.checks.is_empty() {
            self.local_versions.ran().store(&self.ran);
        }
        self.keeper.store(self.local_versions.last_good(), self.etag()).await;
    }

    /// Returns the `ETag` of the dictionary that is served now.
    fn etag(&self) -> Option<String> {
        self.delivery.outlets().current.borrow().as_ref().map(|now| now.dictionary.etag().to_owned())
    }
}

/// Work that does not depend on the polls.
pub(super) enum Work {
    /// The containers have answered about the candidate.
    Verdict(CheckVerdict),
    /// The files were not written: another attempt is due.
    Files,
    /// The endpoint listens at all of its addresses.
    Listening,
    /// The last good contents were not stored: another attempt is due.
    Store,
    /// There may be room for files that had none.
    Room,
    /// The hub has not compared mounted Secrets in time.
    Uncompared,
    /// A restart of the containers may be commanded now, or the variables be written.
    Restart,
}
