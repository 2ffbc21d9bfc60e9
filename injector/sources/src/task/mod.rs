//! One source: polls its server, follows its config, and carries out the decisions.

mod acts;
mod kept_draft;
mod unplaced;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, ConfigSourceStatus, Explanation, Reason, VersionedConfig};
use nudge_authoring::source_name;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::sources::{self, SourceDecision, SourceSnapshot, Upstream, debounce, decide};
use nudge_core::versions::Seals;
use nudge_protocol::NameError;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use self::kept_draft::KeptDraft;
use crate::draft::{VersionDraft, read};
use crate::feed::feed;
use crate::follow::follow;
use crate::source_content::SourceContent;
use crate::sources::Sources;
use crate::validity::Validity;
use crate::writes::Writes;

/// The waits after failed calls of the API server in a row.
const API_BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_mins(1) };
/// The minimum time between two writes of a status.
const STATUS_WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of acts in one reconciliation.
const MAX_ACTS_PER_RECONCILE: usize = 4;
/// The interval of reconciles of a source without events, because setting a clock may delay acts that are due.
const RESYNC_INTERVAL: Duration = Duration::from_mins(5);

/// The content of the source, or the reason why there is none.
enum ContentState {
    Unknown,
    Refused(Explanation),
    /// The content becomes a version. The judged content must be the created content, so the draft is kept until its
    /// version is sealed or refused. After that, the content is read again if it is needed.
    Read {
        draft: Option<KeptDraft>,
        newest: sources::DebouncedVersion,
    },
}

/// The config that the source makes versions of.
enum KnownConfig {
    Unknown,
    Absent,
    Present(Box<VersionedConfig>),
}

/// The time after a failed act. No other act is tried until it is over.
struct Pause {
    until: Instant,
    /// The reason why the act was refused; `None` if the call failed.
    refusal: Option<Explanation>,
}

/// Returns the time `wait` from now, capped at [`RESYNC_INTERVAL`].
fn later(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait.min(RESYNC_INTERVAL)).unwrap_or(now)
}

fn invalid_name(error: &NameError) -> Explanation {
    Reason::SourceRefused.explained(error.to_string())
}

/// Another source that makes the versions of the same config.
#[derive(Clone, PartialEq)]
pub(crate) enum Rival {
    /// Not all sources of the namespace are known yet.
    Unknown,
    Absent,
    Present(String),
}

/// A source as the watch of its namespace shows it.
#[derive(Clone)]
pub(crate) struct KnownSource {
    pub(crate) source: Arc<ConfigSource>,
    pub(crate) rival: Rival,
}

/// The task of one source.
pub(crate) struct Task {
    sources: Arc<Sources>,
    namespace: String,
    receiver: Receiver<KnownSource>,
    rival: Rival,
    /// The source with the status as this task knows it, which may not be written yet.
    source: ConfigSource,
    /// The status that the API server has; `None` if the whole status must be written again.
    stored_status: Option<ConfigSourceStatus>,
    last_write: Option<Instant>,
    content: ContentState,
    config: KnownConfig,
    validity: Validity,
    /// The number of acts that failed since the last success.
    failures: u32,
    pause: Option<Pause>,
    /// The time of the next read of the content even if it has not changed.
    reread_at: Option<Instant>,
    reconcile_at: Instant,
    writes: Writes,
}

impl Task {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, mut receiver: Receiver<KnownSource>) -> Self {
        let KnownSource { source, rival } = receiver.borrow_and_update().clone();
        let source = (*source).clone();
        Self {
            writes: Writes::new(Arc::clone(&sources), namespace.clone()),
            sources,
            namespace,
            receiver,
            rival,
            stored_status: source.status.clone(),
            source,
            last_write: None,
            content: ContentState::Unknown,
            config: KnownConfig::Unknown,
            validity: Validity::default(),
            failures: 0,
            pause: None,
            reread_at: None,
            reconcile_at: Instant::now(),
        }
    }

    /// Looks after the source until dropped.
    pub(crate) async fn run(mut self) {
        let Some(_place) = self.wait_for_place().await else { return };
        let seconds = self.sources.watch_seconds;
        let configs = Api::<VersionedConfig>::namespaced(self.sources.client.clone(), &self.namespace);
        let mut configs = follow(configs, self.source.config(), seconds);
        let mut contents = self.contents();
        loop {
            tokio::select! {
                changed = self.receiver.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if self.receive() {
                        // The source may take other keys.
                        self.content = ContentState::Unknown;
                        contents = self.contents();
                        self.reset_backoff();
                    }
                }
                Some(result) = contents.next() => self.observe_content(result),
                Some(state) = configs.next() => self.observe_config(state),
                () = sleep_until(self.reconcile_at) => {}
            }
            self.pause = self.pause.take().filter(|pause| pause.until > Instant::now());
            self.reconcile().await;
            if self.reread_at.is_some_and(|reread_at| reread_at <= Instant::now()) {
                self.reread_at = None;
                contents = self.contents();
            }
        }
    }

    /// Takes over the source as the namespace's watch has it. Returns whether its spec or annotations changed.
    fn receive(&mut self) -> bool {
        let KnownSource { source: next, rival } = self.receiver.borrow_and_update().clone();
        self.rival = rival;
        let next = (*next).clone();
        let changed = next.spec != self.source.spec || next.annotations() != self.source.annotations();
        self.source = ConfigSource { status: self.source.status.take(), ..next };
        changed
    }

    fn contents(&self) -> BoxStream<'static, Result<SourceContent, Explanation>> {
        feed(&self.sources, &self.namespace, &self.source)
    }

    fn config(&self) -> Option<&VersionedConfig> {
        match &self.config {
            KnownConfig::Present(config) => Some(config),
            KnownConfig::Unknown | KnownConfig::Absent => None,
        }
    }

    fn set_config(&mut self, config: VersionedConfig) {
        self.config = KnownConfig::Present(Box::new(config));
    }

    /// Lets the next act be tried at once, because something has changed.
    fn reset_backoff(&mut self) {
        (self.pause, self.failures) = (None, 0);
    }

    fn observe_content(&mut self, result: Result<SourceContent, Explanation>) {
        let now = Timestamp::now();
        let draft = result.and_then(|content| read(&self.source, content));
        let draft = draft.and_then(|draft| self.version_name(&draft).map(|version| (draft, version)));
        // The older draft gives its room back before the newer one is kept.
        let before = match std::mem::replace(&mut self.content, ContentState::Unknown) {
            ContentState::Read { newest, .. } => Some(newest),
            ContentState::Unknown | ContentState::Refused(_) => None,
        };
        self.content = match draft {
            Err(explanation) => ContentState::Refused(explanation),
            Ok((draft, version)) => {
                if before.as_ref().is_some_and(|before| before.version != version) {
                    self.reset_backoff();
                }
                let newest = match before {
                    Some(mut newest) => {
                        newest.observe(version, debounce(&self.source), now);
                        newest
                    }
                    None => sources::DebouncedVersion::first(version, now),
                };
                self.keep(draft, newest)
            }
        };
    }

    fn observe_config(&mut self, config: Option<VersionedConfig>) {
        let generation = |config: &VersionedConfig| config.metadata.generation;
        let identity_before = self.config().map(Identity::of);
        let generation_before = self.config().and_then(generation);
        self.config = config.map_or(KnownConfig::Absent, |config| KnownConfig::Present(Box::new(config)));
        let refusal = self.pause.as_ref().and_then(|pause| pause.refusal.as_ref());
        let is_conflict = refusal.is_some_and(|refusal| refusal.reason == Reason::FieldConflict);
        // The new rules may allow content that the old ones refused.
        let changed = self.config().and_then(generation) != generation_before;
        if is_conflict || changed {
            self.reset_backoff();
        }
        if changed
            && let ContentState::Read { draft: None, newest } = &self.content
            && !self.is_sealed(&newest.version)
        {
            self.reread_at = Some(Instant::now());
        }
        if self.config().map(Identity::of) != identity_before {
            self.rename_version();
        }
    }

    /// Names the version again, because the name of a version with Secrets depends on the identity of the config.
    fn rename_version(&mut self) {
        let content = std::mem::replace(&mut self.content, ContentState::Unknown);
        self.content = match content {
            ContentState::Read { draft: Some(draft), newest } => match self.version_name(&draft.draft) {
                Ok(version) => {
                    ContentState::Read { draft: Some(draft), newest: sources::DebouncedVersion { version, ..newest } }
                }
                Err(explanation) => ContentState::Refused(explanation),
            },
            ContentState::Read { draft: None, .. } => {
                self.reread_at = Some(Instant::now());
                ContentState::Unknown
            }
            content => content,
        };
    }

    fn version_name(&self, draft: &VersionDraft) -> Result<String, Explanation> {
        let name = source_name(&draft.parts, &self.seals()?);
        name.map(|name| name.as_str().to_owned()).map_err(|error| invalid_name(&error))
    }

    fn seals(&self) -> Result<Seals, Explanation> {
        let key = ConfigKey::parse(&*self.namespace, self.source.config()).map_err(|error| invalid_name(&error))?;
        let identity = self.config().map_or_else(|| Identity::of_uid(""), Identity::of);
        Ok(Seals::new(&self.sources.content_key, &key, identity))
    }

    /// Decides and acts until nothing is left to do.
    async fn reconcile(&mut self) {
        self.reconcile_at = later(RESYNC_INTERVAL);
        for _ in 0..MAX_ACTS_PER_RECONCILE {
            if let (ContentState::Read { draft: Some(draft), newest }, KnownConfig::Present(config)) =
                (&self.content, &self.config)
            {
                let room = self.sources.budget.reserve_copies(&self.namespace, draft.draft.bytes());
                self.validity.judge(config, &newest.version, &draft.draft, room).await;
            }
            let decision = self.decide();
            if let Some(recheck_at) = decision.recheck_at {
                let wait = Duration::try_from(recheck_at.duration_since(Timestamp::now()).max(SignedDuration::ZERO));
                self.reconcile_at = self.reconcile_at.min(later(wait.unwrap_or_default()));
            }
            self.source.status = Some(decision.status);
            let Some(act) = decision.act.filter(|_| self.pause.is_none()) else { break };
            if let Err(error) = self.act(act).await {
                self.record_failure(error);
            }
        }
        self.drop_needless_draft();
        let earliest = self.pause.as_ref().map(|pause| pause.until).into_iter().chain(self.reread_at).min();
        self.reconcile_at = earliest.map_or(self.reconcile_at, |earliest| self.reconcile_at.min(earliest));
        self.write_status().await;
    }

    fn decide(&self) -> SourceDecision {
        let upstream = match &self.content {
            _ if matches!(self.config, KnownConfig::Unknown) || self.rival == Rival::Unknown => Upstream::Unknown,
            ContentState::Unknown => Upstream::Unknown,
            ContentState::Refused(explanation) => Upstream::Refused(explanation),
            ContentState::Read { newest, .. } => Upstream::Content(newest),
        };
        let refusal = match &self.content {
            ContentState::Read { newest, .. } => self.validity.refusal(&newest.version),
            ContentState::Unknown | ContentState::Refused(_) => None,
        };
        let rival = match &self.rival {
            Rival::Present(name) => Some(name.as_str()),
            Rival::Unknown | Rival::Absent => None,
        };
        let seals = self.seals().ok();
        decide(&SourceSnapshot {
            source: &self.source,
            upstream,
            refusal,
            config: self.config(),
            last: self.config().zip(seals.as_ref()).and_then(|(config, seals)| seals.last_of_source(config)),
            rival,
            trouble: self.pause.as_ref().and_then(|pause| pause.refusal.as_ref()),
            now: Timestamp::now(),
        })
    }

    /// Writes the status if it has changed, but not too often.
    async fn write_status(&mut self) {
        let Some(status) = self.source.status.clone() else { return };
        if self.stored_status.as_ref() == Some(&status) {
            return;
        }
        let earliest = self.last_write.and_then(|last_write| last_write.checked_add(STATUS_WRITE_INTERVAL));
        if let Some(earliest) = earliest.filter(|earliest| *earliest > Instant::now()) {
            self.reconcile_at = self.reconcile_at.min(earliest);
            return;
        }
        self.last_write = Some(Instant::now());
        match self.writes.write_status(&self.source.name_any(), &status).await {
            Ok(()) => self.stored_status = Some(status),
            Err(error) => {
                self.reconcile_at = self.reconcile_at.min(later(API_BACKOFF.longest));
                let (namespace, source) = (&self.namespace, self.source.name_any());
                tracing::warn!(namespace, source, error = chain(&error), "status of a source not written; retrying");
            }
        }
    }
}
