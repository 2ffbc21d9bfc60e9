//! One source: follows its object and its config, and does what is decided.

mod kept;
mod unplaced;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, ConfigSourceStatus, Explanation, FromOne, Reason, VersionedConfig};
use nudge_authoring::source_name;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::requester::repeated_setter;
use nudge_core::sources::{self, Act, Decision, Observed, Upstream, debounce, decide, missing, unreadable};
use nudge_core::versions::Seals;
use nudge_protocol::error_chain::chain;
use nudge_protocol::{ConfigName, NameError, VersionName};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use self::kept::Kept;
use crate::content::{Newest, read};
use crate::feed::feed;
use crate::follow::{ObjectState, follow};
use crate::shared::Sources;
use crate::upstream::{BACKOFF, Object};
use crate::validity::Validity;
use crate::writes::{WriteError, Writes};

/// The shortest time between two writes of a status.
const STATUS_WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum of acts at one look.
const MAX_ACTS_PER_LOOK: usize = 4;
/// When to look again though nothing happens: clocks that were set may delay what is due.
const RESYNC_INTERVAL: Duration = Duration::from_mins(5);

/// The content of the object, or why there is none.
enum Content {
    Unknown,
    Refused(Explanation),
    /// Its version, and what it is made of until it is sealed or refused: what was judged is what is made. After that, it is read again where it
    /// is needed.
    Newest(Option<Kept>, sources::Newest),
}

/// The time `wait` from now, capped at [`RESYNC_INTERVAL`].
fn later(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait.min(RESYNC_INTERVAL)).unwrap_or(now)
}

fn no_name(error: &NameError) -> Explanation {
    Reason::SourceRefused.explained(error.to_string())
}

/// What is known about a source.
#[derive(Clone)]
pub(crate) struct KnownSource {
    /// The object, as it was seen last.
    pub(crate) source: Arc<ConfigSource>,
    /// Another source that makes the versions of its config.
    pub(crate) rival: Option<String>,
    /// Whether all sources of the namespace are known.
    pub(crate) complete: bool,
}

/// One source.
pub(crate) struct Task {
    sources: Arc<Sources>,
    namespace: String,
    receiver: Receiver<KnownSource>,
    rival: Option<String>,
    complete: bool,
    /// With the status as this task knows it, which may not be written yet.
    source: ConfigSource,
    written: Option<ConfigSourceStatus>,
    written_at: Option<Instant>,
    content: Content,
    config: Option<VersionedConfig>,
    config_known: bool,
    validity: Validity,
    trouble: Option<Explanation>,
    failures: u32,
    /// When to try again what failed.
    retry: Option<Instant>,
    /// When to read the object again, though it did not change.
    reread: Option<Instant>,
    /// When to look again.
    again: Instant,
    writes: Writes,
}

impl Task {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, mut receiver: Receiver<KnownSource>) -> Self {
        let KnownSource { source, rival, complete } = receiver.borrow_and_update().clone();
        let source = (*source).clone();
        Self {
            writes: Writes::new(Arc::clone(&sources), namespace.clone()),
            sources,
            namespace,
            receiver,
            rival,
            complete,
            written: source.status.clone(),
            source,
            written_at: None,
            content: Content::Unknown,
            config: None,
            config_known: false,
            validity: Validity::default(),
            trouble: None,
            failures: 0,
            retry: None,
            reread: None,
            again: Instant::now(),
        }
    }

    /// Looks after the source until dropped.
    pub(crate) async fn run(mut self) {
        let Some(_place) = self.place().await else { return };
        let seconds = self.sources.watch_seconds;
        let configs = Api::<VersionedConfig>::namespaced(self.sources.client.clone(), &self.namespace);
        let mut configs = follow(configs, self.source.config(), seconds);
        let mut objects = self.objects();
        loop {
            tokio::select! {
                changed = self.receiver.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if self.receive() {
                        // The keys that are taken may be others.
                        self.content = Content::Unknown;
                        objects = self.objects();
                        self.reset_backoff();
                    }
                }
                Some(seen) = objects.next() => self.observe_object(seen),
                Some(seen) = configs.next() => self.observe_config(seen),
                () = sleep_until(self.again) => {}
            }
            if self.retry.is_some_and(|retry| retry <= Instant::now()) {
                (self.trouble, self.retry) = (None, None);
            }
            self.reconcile().await;
            if self.reread.is_some_and(|reread| reread <= Instant::now()) {
                self.reread = None;
                objects = self.objects();
            }
        }
    }

    /// Takes in the source as the namespace's watch knows it. Returns whether its spec or annotations changed.
    fn receive(&mut self) -> bool {
        let KnownSource { source: next, rival, complete } = self.receiver.borrow_and_update().clone();
        (self.rival, self.complete) = (rival, complete);
        let next = (*next).clone();
        let changes = next.spec != self.source.spec || next.annotations() != self.source.annotations();
        self.source = ConfigSource { status: self.source.status.take(), ..next };
        changes
    }

    fn objects(&self) -> BoxStream<'static, ObjectState<Object>> {
        feed(&self.sources, &self.namespace, &self.source)
    }

    /// What failed may be tried again at once: something has changed.
    fn reset_backoff(&mut self) {
        (self.trouble, self.retry, self.failures) = (None, None, 0);
    }

    fn observe_object(&mut self, seen: ObjectState<Object>) {
        let (now, own) = (Timestamp::now(), self.source.name_any());
        let named = match self.source.spec.from.only() {
            Some(FromOne::Object(kind, name)) => Some((kind, name)),
            _ => None,
        };
        let read = match (seen, named) {
            (ObjectState::There(object), _) => read(&self.source, object),
            (ObjectState::Failed(why), _) => Err(why),
            (ObjectState::Gone, Some((kind, name))) => Err(missing(kind, name)),
            (ObjectState::Forbidden, Some((kind, name))) => Err(unreadable(kind, name, &own, &self.sources.account)),
            (ObjectState::Gone | ObjectState::Forbidden, None) => return,
        };
        let named = read.and_then(|newest| self.name(&newest).map(|version| (newest, version)));
        // The room of older content is free.
        let before = match std::mem::replace(&mut self.content, Content::Unknown) {
            Content::Newest(_, known) => Some(known),
            _ => None,
        };
        self.content = match named {
            Err(why) => Content::Refused(why),
            Ok((newest, version)) => {
                if before.as_ref().is_some_and(|before| before.version != version) {
                    self.reset_backoff();
                }
                let known = match before {
                    Some(mut known) => {
                        known.observe(version, debounce(&self.source), now);
                        known
                    }
                    None => sources::Newest::first(version, now),
                };
                self.kept(newest, known)
            }
        };
    }

    fn observe_config(&mut self, seen: ObjectState<VersionedConfig>) {
        let identity = self.config.as_ref().map(Identity::of);
        let generation = |config: &VersionedConfig| config.metadata.generation;
        let before = self.config.as_ref().and_then(generation);
        self.config = match seen {
            ObjectState::There(config) => Some(config),
            ObjectState::Gone => None,
            // The rights that are missing show with the first write.
            ObjectState::Forbidden | ObjectState::Failed(_) => return,
        };
        self.config_known = true;
        let is_held = self.trouble.as_ref().is_some_and(|trouble| trouble.reason == Reason::HeldBy);
        // Other rules may take what these refuse.
        let changed = self.config.as_ref().and_then(generation) != before;
        if is_held || changed {
            self.reset_backoff();
        }
        if changed && matches!(&self.content, Content::Newest(None, known) if !self.is_sealed(&known.version)) {
            self.reread = Some(Instant::now());
        }
        if self.config.as_ref().map(Identity::of) != identity {
            self.rename();
        }
    }

    /// The name of a version with Secrets depends on the identity of the config.
    fn rename(&mut self) {
        let content = std::mem::replace(&mut self.content, Content::Unknown);
        self.content = match content {
            Content::Newest(Some(kept), known) => match self.name(&kept.newest) {
                Ok(version) => Content::Newest(Some(kept), sources::Newest { version, ..known }),
                Err(why) => Content::Refused(why),
            },
            Content::Newest(None, _) => {
                self.reread = Some(Instant::now());
                Content::Unknown
            }
            other => other,
        };
    }

    fn name(&self, newest: &Newest) -> Result<String, Explanation> {
        source_name(&newest.parts, &self.seals()?).map(|name| name.as_str().to_owned()).map_err(|error| no_name(&error))
    }

    fn seals(&self) -> Result<Seals, Explanation> {
        let key = ConfigKey::parse(&*self.namespace, self.source.config()).map_err(|error| no_name(&error))?;
        let identity = self.config.as_ref().map_or_else(|| Identity::of_uid(""), Identity::of);
        Ok(Seals::new(&self.sources.content_key, &key, identity))
    }

    /// Decides, and does what is decided until there is nothing more to do.
    async fn reconcile(&mut self) {
        self.again = later(RESYNC_INTERVAL);
        for _ in 0..MAX_ACTS_PER_LOOK {
            if let (Content::Newest(Some(kept), known), Some(config)) = (&self.content, &self.config) {
                let room = self.sources.budget.copies(&self.namespace, kept.newest.bytes());
                self.validity.judge(config, (&known.version, &kept.newest), room).await;
            }
            let decision = self.decide();
            if let Some(at) = decision.again {
                let wait = Duration::try_from(at.duration_since(Timestamp::now()).max(SignedDuration::ZERO));
                self.again = self.again.min(later(wait.unwrap_or_default()));
            }
            self.source.status = Some(decision.status);
            // What failed is not tried again yet.
            let Some(act) = decision.act.filter(|_| self.retry.is_none()) else { break };
            if let Err(error) = self.act(act).await {
                self.record_failure(error);
            }
        }
        self.let_go();
        let earliest = [self.retry, self.reread].into_iter().flatten().min();
        self.again = earliest.map_or(self.again, |earliest| self.again.min(earliest));
        self.write().await;
    }

    fn decide(&self) -> Decision {
        let upstream = match &self.content {
            _ if !self.config_known || !self.complete => Upstream::Unknown,
            Content::Unknown => Upstream::Unknown,
            Content::Refused(why) => Upstream::Refused(why),
            Content::Newest(_, known) => Upstream::Content(known),
        };
        let refusal = match &self.content {
            Content::Newest(_, known) => self.validity.refusal(&known.version),
            _ => None,
        };
        let seals = self.seals().ok();
        decide(&Observed {
            source: &self.source,
            upstream,
            refusal,
            config: self.config.as_ref(),
            last: self.config.as_ref().zip(seals.as_ref()).and_then(|(config, seals)| seals.last_of_source(config)),
            rival: self.rival.as_deref(),
            trouble: self.trouble.as_ref(),
            now: Timestamp::now(),
        })
    }

    fn record_failure(&mut self, error: WriteError) {
        self.failures = self.failures.saturating_add(1);
        self.retry = Some(later(BACKOFF.jittered(self.failures, rand::random())));
        let (namespace, source) = (&self.namespace, self.source.name_any());
        match error {
            WriteError::Refused(why) => {
                tracing::info!(namespace, source, reason = %why.reason, "source refused");
                self.trouble = Some(why);
            }
            WriteError::Call(error) => {
                tracing::warn!(namespace, source, error = chain(&error), "write of a source failed; retrying");
            }
        }
    }

    async fn act(&mut self, act: Act) -> Result<(), WriteError> {
        let name = self.source.config().to_owned();
        match act {
            Act::CreateConfig => {
                let created = self.writes.create_config(&name).await?;
                if let Some(config) = created {
                    tracing::info!(namespace = self.namespace, config = name, "config created");
                    self.observe_config(ObjectState::There(config));
                } else {
                    // It is there, and the watch shows it soon.
                    self.config_known = false;
                }
            }
            Act::Make => {
                let Content::Newest(kept, known) = &self.content else { return Ok(()) };
                let Some(Kept { newest, .. }) = kept else {
                    self.reread = Some(Instant::now());
                    return Ok(());
                };
                let (version, again) = (known.version.clone(), self.took_last(&known.version));
                let invalid_name = |error| WriteError::Refused(no_name(&error));
                let config = ConfigName::new(&name).map_err(invalid_name)?;
                let label = VersionName::new(&version).map_err(invalid_name)?;
                let set_by = repeated_setter(&self.source);
                let more = (self.source.spec.history_limit, set_by.as_deref());
                let existed = self.writes.make(&config, &label, newest, more).await?;
                if let Some(existed) = existed.filter(|_| again) {
                    let message = format!(
                        "{existed} exists already, and version {version} is not sealed; see kubectl nudge status {name}, and delete \
                         {existed} if something else has made it"
                    );
                    return Err(WriteError::Refused(Reason::Conflict.explained(message)));
                }
                tracing::info!(namespace = self.namespace, source = self.source.name_any(), version, "version made");
                self.took(version);
            }
            Act::Activate(version) => {
                let Some(config) = &self.config else { return Ok(()) };
                let config = self.writes.activate(&self.source, config, &version).await?;
                tracing::info!(
                    namespace = self.namespace,
                    source = self.source.name_any(),
                    version,
                    "version set in spec.version"
                );
                self.config = Some(config);
                if !self.took_last(&version) {
                    self.took(version);
                }
            }
            Act::Retry(version) => {
                self.config = Some(self.writes.retry(&name).await?);
                tracing::info!(
                    namespace = self.namespace,
                    source = self.source.name_any(),
                    version,
                    "version tried again"
                );
            }
            Act::KeepOnly(last) => {
                let Some((config, seals)) = self.config.as_ref().zip(self.seals().ok()) else { return Ok(()) };
                let notice = last.as_ref().map(|last| seals.source_gone_notice(config, last, Timestamp::now()));
                let config = self.writes.keep_only(&name, notice).await?;
                tracing::info!(
                    namespace = self.namespace,
                    config = name,
                    last,
                    "decided whether older Secret versions stay"
                );
                self.config = Some(config);
            }
        }
        self.failures = 0;
        Ok(())
    }

    /// Returns whether this is the version that the source made or chose last.
    fn took_last(&self, version: &str) -> bool {
        self.source.status.as_ref().is_some_and(|status| status.version.as_deref() == Some(version))
    }

    fn took(&mut self, version: String) {
        let status = self.source.status.get_or_insert_default();
        status.version = Some(version);
        status.make_time = Some(Time(Timestamp::now()));
    }

    /// Writes the status where it has changed, and not too often.
    async fn write(&mut self) {
        let Some(status) = self.source.status.clone() else { return };
        if self.written.as_ref() == Some(&status) {
            return;
        }
        let earliest = self
            .written_at
            .and_then(|written| written.checked_add(STATUS_WRITE_INTERVAL))
            .filter(|earliest| *earliest > Instant::now());
        if let Some(earliest) = earliest {
            self.again = self.again.min(earliest);
            return;
        }
        self.written_at = Some(Instant::now());
        match self.writes.status(&self.source.name_any(), &status).await {
            Ok(()) => self.written = Some(status),
            Err(error) => {
                self.again = self.again.min(later(BACKOFF.longest));
                let (namespace, source) = (&self.namespace, self.source.name_any());
                tracing::warn!(namespace, source, error = chain(&error), "status of a source not written; retrying");
            }
        }
    }
}
