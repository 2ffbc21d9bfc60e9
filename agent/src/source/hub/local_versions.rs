//! Keeps the versions that this pod has. Decides which contents of a reply are accepted, and which versions the agent
//! reports in a poll. Does no I/O.
//!
//! All contents of one reply become one change. A revision never goes back within one uid; another uid replaces
//! everything. Content that can't be taken in leaves the good content as it is, with a problem that gives the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use nudge_protocol::block::{self, BlockError, Stored};
use nudge_protocol::hub::{ConfigClaim, HubProblem, HubReason, MountedSecrets, PollConfig, PollHead, PollRequest};
use nudge_protocol::status::{Problem, ProblemReason};
use nudge_protocol::{BlockDigest, ConfigName, ConfigUid, SecretDigest, VersionName};
use ring::digest;

use super::mounted_versions::{MountedError, MountedVersion};
use super::ran_contents::RanContents;
use super::reply::{PollReply, ReceivedBlock};
use crate::content::{Value, VersionContent};
use crate::source::{Reading, SourceFault, Store};
use crate::unsorted_map::map;

/// A version's content and the block that it came in, which share their memory.
#[derive(Clone, Debug)]
struct LocalVersion {
    sha256: BlockDigest,
    block: Value,
    content: Arc<VersionContent>,
    /// The digests of the Secret parts of a mounted version, until the hub has compared them with what was sealed.
    mounted_secrets: Vec<SecretDigest>,
}

impl LocalVersion {
    /// Takes a block as the content of a version.
    fn new(config: &ConfigName, version: VersionName, sha256: BlockDigest, block: Value) -> Result<Self, BlockError> {
        let entries = block::decode(block.as_bytes())?;
        let stored =
            entries.into_iter().map(|(key, Stored { kind, value })| (key, Stored { kind, value: block.part(value) }));
        let content = Arc::new(VersionContent::of_objects(config.clone(), version, stored.collect()));
        Ok(Self { sha256, block, content, mounted_secrets: Vec::new() })
    }

    fn is_uncompared(&self) -> bool {
        !self.mounted_secrets.is_empty()
    }
}

/// The state of one config.
#[derive(Clone, Debug, Default)]
struct ConfigState {
    /// The uid in the last head.
    uid: Option<ConfigUid>,
    revision: u64,
    problem: Option<HubReason>,
    /// The highest revision within the last uid that was known.
    highest: Revision,
    good: Option<LocalVersion>,
    /// The version from the last reply. It is good once the dictionary with it is within its bounds.
    candidate: Option<LocalVersion>,
    /// The version that is held back until the containers take it, or until the hub has compared it with what was
    /// sealed. The latter only as long as no version is good.
    deferred_version: Option<LocalVersion>,
    claim: Claim,
    ack_timeout_seconds: Option<u32>,
}

/// A revision of a config. Revisions of different uids can't be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// The uid of the config.
    pub uid: Option<ConfigUid>,
    /// The number of the revision within the uid.
    pub number: u64,
}

/// The content of a config that the next poll says the agent holds.
#[derive(Clone, Debug, Default)]
enum Claim {
    /// The good content.
    #[default]
    Good,
    /// No content, so that the hub sends it.
    Nothing,
    /// The content that was refused; otherwise the hub would send it again and again.
    Refused { version: VersionName, sha256: Option<BlockDigest>, fault: SourceFault },
}

/// The result of taking in a reply.
#[derive(Debug, Default)]
pub struct TakenReply {
    /// The readings for the [`Store`]. [`LocalVersions::settle`] must be called after it has them.
    pub readings: Vec<Reading>,
    /// The fault of the reply. The hub is polled again, but not at once.
    pub fault: Option<String>,
    /// The configs of which another content is mounted than what was sealed.
    pub changed_mounts: Vec<(ConfigName, MountedError)>,
}

/// The reason why a config of a reply was not taken in.
enum TakeError {
    /// The assigned version can't be served.
    Version(SourceFault),
    /// The reply is faulty.
    Reply(SourceFault),
}

/// The versions that this pod has.
#[derive(Clone, Debug)]
pub struct LocalVersions {
    configs: BTreeMap<ConfigName, ConfigState>,
    order: Vec<ConfigName>,
    containers_hash: String,
    ran: RanContents,
}

impl LocalVersions {
    /// Creates the state of a pod that has no version of any config.
    pub fn new(order: Vec<ConfigName>) -> Self {
        let configs = map(order.iter().map(|config| (config.clone(), ConfigState::default())));
        Self { configs, order, containers_hash: String::new(), ran: RanContents::default() }
    }

    /// Sets the contents that this pod has run before.
    pub fn set_ran(&mut self, ran: RanContents) {
        self.ran = ran;
    }

    /// Returns the contents that this pod has run.
    pub fn ran(&self) -> &RanContents {
        &self.ran
    }

    /// Returns the pod's configs in the order of merging.
    pub fn order(&self) -> &[ConfigName] {
        &self.order
    }

    /// Returns the next poll, which lists the agent's copies.
    pub fn request(&self, wait_seconds: u32) -> PollRequest {
        let claim = |config: &ConfigName| {
            let state = self.configs.get(config)?;
            let (version, sha256) = match (&state.claim, state.assigned()) {
                (Claim::Refused { version, sha256, .. }, _) => (Some(version.clone()), sha256.clone()),
                (Claim::Good, Some(version)) => (Some(version.content.version().clone()), Some(version.sha256.clone())),
                _ => (None, None),
            };
            let (uid, revision, problem) = (state.uid.clone(), state.revision, state.problem);
            let claimed_version = state.assigned().filter(|_| matches!(state.claim, Claim::Good));
            let mounted_secrets = claimed_version.map(|version| version.mounted_secrets.clone()).unwrap_or_default();
            Some(ConfigClaim { name: config.clone(), uid, revision, version, sha256, problem, mounted_secrets })
        };
        PollRequest {
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            configs: self.order.iter().filter_map(claim).collect(),
            containers_hash: self.containers_hash.clone(),
            wait_seconds,
        }
    }

    /// Returns the revision that each config had in the last head.
    pub fn revisions(&self) -> BTreeMap<ConfigName, Revision> {
        let revision = |state: &ConfigState| Revision { uid: state.uid.clone(), number: state.revision };
        map(self.configs.iter().map(|(config, state)| (config.clone(), revision(state))))
    }

    /// Returns whether every config has content, or a problem that will last longer than a moment.
    pub fn is_settled(&self) -> bool {
        let settled = |state: &ConfigState| {
            state.good.is_some()
                || matches!(state.claim, Claim::Refused { .. })
                || state.problem.is_some_and(|problem| problem != HubReason::Resolving)
        };
        self.configs.values().all(settled)
    }

    /// Returns whether every config has content.
    pub fn is_complete(&self) -> bool {
        self.configs.values().all(|state| state.good.is_some())
    }

    /// Takes in a reply.
    pub fn take(&mut self, reply: PollReply) -> TakenReply {
        let mut taken = TakenReply::default();
        for (assigned, block) in reply.head.configs.into_iter().zip(reply.blocks) {
            // Configs that this pod does not use are ignored.
            let Some(state) = self.configs.get_mut(&assigned.name) else { continue };
            let Revision { uid, number: highest } = &state.highest;
            if *uid == assigned.uid && assigned.revision < *highest {
                let (config, revision) = (&assigned.name, assigned.revision);
                taken.fault = Some(format!(
                    "the hub answered with revision {revision} of config {config}, which is older than {highest}; another replica may have a newer one"
                ));
                continue;
            }
            let config = assigned.name.clone();
            let mounted_version = state.take_compared(assigned.mounted_secrets);
            let note = state.note_about(&mounted_version);
            let result =
                state.take(assigned, block, mounted_version.as_ref().ok().and_then(Option::as_ref)).map_err(|error| {
                    let mut fault = match error {
                        TakeError::Version(fault) => fault,
                        TakeError::Reply(fault) => {
                            taken.fault = Some(format!("config {config}: {}", fault.message));
                            fault
                        }
                    };
                    if let Some(note) = note {
                        fault.message = format!("{note}; {}", fault.message);
                    }
                    fault
                });
            match mounted_version {
                // It is better than nothing.
                Ok(Some(mounted_version)) if result.is_err() => {
                    taken
                        .readings
                        .push(Reading { config: config.clone(), result: Ok(Arc::clone(&mounted_version.content)) });
                    state.candidate = Some(mounted_version);
                }
                Ok(_) => {}
                Err(error) => taken.changed_mounts.push((config.clone(), error)),
            }
            taken.readings.push(Reading { config, result });
        }
        self.containers_hash = reply.head.containers_hash;
        taken
    }

    /// Takes in a mounted version, if its config has no content yet. If it has Secret parts, it is held back until the
    /// hub has compared them with what was sealed.
    pub fn take_mounted(&mut self, config: &ConfigName, mounted_version: MountedVersion) -> Option<Reading> {
        let state = self.configs.get_mut(config).filter(|state| state.good.is_none())?;
        let MountedVersion { version, block, secrets } = mounted_version;
        let digest = sha256(block.as_bytes());
        let candidate = LocalVersion::new(config, version, digest, block).ok()?;
        if !secrets.is_empty() {
            state.deferred_version = Some(LocalVersion { mounted_secrets: secrets, ..candidate });
            return None;
        }
        let content = Arc::clone(&candidate.content);
        state.candidate = Some(candidate);
        Some(Reading { config: config.clone(), result: Ok(content) })
    }

    /// Returns whether a mounted version waits until the hub has compared it.
    pub fn holds_uncompared(&self) -> bool {
        self.configs.values().any(|state| state.deferred_version.as_ref().is_some_and(LocalVersion::is_uncompared))
    }

    /// Releases the mounted versions that are held back, though the hub has not compared them.
    pub fn release_uncompared(&mut self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for (config, state) in &mut self.configs {
            let Some(version) = state.deferred_version.take_if(|version| version.is_uncompared()) else { continue };
            let fault = SourceFault { reason: ProblemReason::NotCompared, message: not_compared(&version) };
            for result in [Ok(Arc::clone(&version.content)), Err(fault)] {
                readings.push(Reading { config: config.clone(), result });
            }
            state.candidate = Some(version);
        }
        readings
    }

    /// Holds back contents that this pod has never run, until its containers take them. Returns the other readings. A
    /// fault of the previous version does not count for the version that is held back now.
    pub fn defer_new(&mut self, readings: Vec<Reading>) -> Vec<Reading> {
        self.defer(readings, |candidate, _, ran| !ran.contains(candidate.sha256.as_str()))
    }

    /// Holds back contents that differ from those that the pod runs, until its containers are restarted with them.
    pub fn defer_changed(&mut self, readings: Vec<Reading>) -> Vec<Reading> {
        let differs = |good: &LocalVersion, candidate: &LocalVersion| good.sha256 != candidate.sha256;
        self.defer(readings, |candidate, good, _| good.is_none_or(|good| differs(good, candidate)))
    }

    fn defer(
        &mut self,
        mut readings: Vec<Reading>,
        defers: impl Fn(&LocalVersion, Option<&LocalVersion>, &RanContents) -> bool,
    ) -> Vec<Reading> {
        for Reading { config, result } in &mut readings {
            let Some(state) = self.configs.get_mut(config) else { continue };
            let ConfigState { candidate, good, .. } = state;
            let is_new = |candidate: &mut LocalVersion| defers(candidate, good.as_ref(), &self.ran);
            let Some(candidate) = candidate.take_if(is_new) else { continue };
            if let Some(good) = &state.good {
                *result = Ok(Arc::clone(&good.content));
            }
            state.deferred_version = Some(candidate);
        }
        let is_deferred = |content: &Arc<VersionContent>| {
            let state = self.configs.get(content.config());
            let deferred_version = state.and_then(|state| state.deferred_version.as_ref());
            deferred_version.is_some_and(|version| Arc::ptr_eq(&version.content, content))
        };
        readings.retain(|reading| !reading.result.as_ref().is_ok_and(is_deferred));
        readings
    }

    /// Returns the contents that are held back.
    pub fn deferred_contents(&self) -> Vec<Arc<VersionContent>> {
        let deferred_version =
            |config: &ConfigName| Some(Arc::clone(&self.configs.get(config)?.deferred_version.as_ref()?.content));
        self.order.iter().filter_map(deferred_version).collect()
    }

    /// Returns the time that the containers have to acknowledge the contents that are held back, in seconds.
    pub fn ack_timeout_seconds(&self) -> Option<u32> {
        let states = self.configs.values().filter(|state| state.deferred_version.is_some());
        states.filter_map(|state| state.ack_timeout_seconds).min()
    }

    /// Releases the contents that were held back, which the containers take.
    pub fn release(&mut self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for (config, state) in &mut self.configs {
            let Some(version) = state.deferred_version.take() else { continue };
            readings.push(Reading { config: config.clone(), result: Ok(Arc::clone(&version.content)) });
            state.candidate = Some(version);
        }
        readings
    }

    /// Refuses the contents that were held back.
    pub fn refuse(&mut self, fault: &SourceFault) -> Vec<Reading> {
        self.order.clone().iter().filter_map(|config| self.refuse_config(config, fault)).collect()
    }

    /// Refuses the content that was held back of this config.
    pub fn refuse_config(&mut self, config: &ConfigName, fault: &SourceFault) -> Option<Reading> {
        let state = self.configs.get_mut(config)?;
        let LocalVersion { sha256, content, .. } = state.deferred_version.take()?;
        state.claim = Claim::Refused { version: content.version().clone(), sha256: Some(sha256), fault: fault.clone() };
        Some(Reading { config: config.clone(), result: Err(fault.clone()) })
    }

    /// Returns readings that give this fault to the configs with contents that are held back.
    pub fn overdue_readings(&self, fault: &SourceFault) -> Vec<Reading> {
        let states = self.configs.iter().filter(|(_, state)| state.deferred_version.is_some());
        states.map(|(config, _)| Reading { config: config.clone(), result: Err(fault.clone()) }).collect()
    }

    /// Learns from the store which candidates are in the dictionary now. Returns whether the last good contents have
    /// changed.
    pub fn settle(&mut self, store: &Store) -> bool {
        let (mut changed, mut refused) = (false, Vec::new());
        for (config, state) in &mut self.configs {
            let Some(candidate) = state.candidate.take() else { continue };
            if store.good(config).is_some_and(|good| *good == candidate.content) {
                self.ran.add(candidate.sha256.as_str());
                state.good = Some(candidate);
                changed = true;
            } else if let Some(Problem { reason, message, .. }) = store.problems().get(config) {
                let fault = SourceFault { reason: *reason, message: message.clone() };
                let version = candidate.content.version().clone();
                refused.push((config.clone(), Claim::Refused { version, sha256: Some(candidate.sha256), fault }));
            }
        }
        if changed {
            // A content that did not fit before may fit now, so the hub must send it again.
            for state in self.configs.values_mut() {
                state.claim = Claim::Good;
            }
        }
        for (config, claim) in refused {
            self.configs.entry(config).and_modify(|state| state.claim = claim);
        }
        changed
    }

    /// Forgets refusals for these faults, so that the hub sends the contents again, or other ones.
    pub fn forget_refusals(&mut self, is_forgotten: impl Fn(&SourceFault) -> bool) {
        for state in self.configs.values_mut() {
            if matches!(&state.claim, Claim::Refused { fault, .. } if is_forgotten(fault)) {
                state.claim = Claim::Good;
            }
        }
    }

    /// Returns whether a content is refused for this reason.
    pub fn refuses_for(&self, reason: ProblemReason) -> bool {
        let is_refused =
            |state: &ConfigState| matches!(&state.claim, Claim::Refused { fault, .. } if fault.reason == reason);
        self.configs.values().any(is_refused)
    }

    /// Returns the good contents in the form of a reply: its head and the blocks.
    pub fn last_good(&self) -> (PollHead, Vec<Value>) {
        self.as_reply(|state| state.good.as_ref())
    }

    /// Returns the contents that the pod is assigned: those that are held back, and the good ones of the other configs.
    pub fn assigned(&self) -> (PollHead, Vec<Value>) {
        self.as_reply(ConfigState::assigned)
    }

    /// Returns the ID of the contents that the pod is assigned, whatever their versions are called.
    pub fn assigned_id(&self) -> String {
        let contents = self.configs.iter().filter_map(|(config, state)| {
            let LocalVersion { sha256, .. } = state.assigned()?;
            Some([config.as_str(), "=", sha256.as_str()].concat())
        });
        contents.collect::<Vec<_>>().join(",")
    }

    fn as_reply(&self, version: impl Fn(&ConfigState) -> Option<&LocalVersion>) -> (PollHead, Vec<Value>) {
        let mut blocks = Vec::new();
        let mut config = |config: &ConfigName| {
            let state = self.configs.get(config)?;
            // A mounted version is read again after a restart of the agent.
            let LocalVersion { sha256, block, content, .. } =
                version(state).filter(|version| !version.is_uncompared())?;
            blocks.push(block.clone());
            let Revision { uid, number: revision } = state.highest.clone();
            Some(PollConfig {
                name: config.clone(),
                uid,
                revision,
                version: Some(content.version().clone()),
                sha256: Some(sha256.clone()),
                length: u32::try_from(block.as_bytes().len()).ok(),
                problem: None,
                ack_timeout_seconds: None,
                mounted_secrets: None,
            })
        };
        let configs = self.order.iter().filter_map(&mut config).collect();
        (PollHead { configs, ..PollHead::default() }, blocks)
    }
}

impl ConfigState {
    /// Returns the version that is held back, or else the good version.
    fn assigned(&self) -> Option<&LocalVersion> {
        self.deferred_version.as_ref().or(self.good.as_ref())
    }

    /// Takes the mounted version that is held back, or returns the one that is served, if the hub has compared that
    /// now. An error says that it is not what was sealed.
    fn take_compared(&mut self, verdict: Option<MountedSecrets>) -> Result<Option<LocalVersion>, MountedError> {
        let deferred_version = self.deferred_version.take_if(|version| version.is_uncompared());
        let Some(verdict) = verdict else { return Ok(deferred_version) };
        let mounted_version = deferred_version.or_else(|| self.good.clone()).filter(LocalVersion::is_uncompared);
        match (verdict, mounted_version) {
            (MountedSecrets::Changed { part }, Some(mounted_version)) => {
                Err(MountedError::Changed { version: mounted_version.content.version().clone(), part })
            }
            (_, mounted_version) => {
                Ok(mounted_version
                    .map(|mounted_version| LocalVersion { mounted_secrets: Vec::new(), ..mounted_version }))
            }
        }
    }

    /// Returns the note about a mounted version that is served although it is not known to be what was sealed.
    fn note_about(&self, mounted_version: &Result<Option<LocalVersion>, MountedError>) -> Option<String> {
        match mounted_version {
            Err(error) => Some(error.to_string()),
            Ok(mounted_version) => {
                let version = mounted_version.as_ref().or(self.good.as_ref());
                version.filter(|version| version.is_uncompared()).map(not_compared)
            }
        }
    }

    /// Takes in one config of a reply. Returns its content. `mounted` is the mounted version if it can be used.
    fn take(
        &mut self,
        assigned: PollConfig,
        block: ReceivedBlock,
        mounted_version: Option<&LocalVersion>,
    ) -> Result<Arc<VersionContent>, TakeError> {
        let PollConfig { name, uid, revision, version, sha256, problem, ack_timeout_seconds, .. } = assigned;
        let deferred_version = self.deferred_version.take();
        self.ack_timeout_seconds = ack_timeout_seconds;
        if uid.is_some() {
            self.highest = Revision { uid: uid.clone(), number: revision };
        }
        (self.uid, self.revision) = (uid, revision);
        self.problem = problem.as_ref().map(|problem| problem.reason);
        if let Some(HubProblem { reason, message }) = problem {
            return Err(TakeError::Version(SourceFault { reason: to_problem_reason(reason), message }));
        }
        let damaged = |message: String| TakeError::Reply(SourceFault { reason: ProblemReason::Damaged, message });
        let Some(version) = version else {
            return Err(damaged("the hub named neither a version nor a problem".to_owned()));
        };
        let block = match block {
            ReceivedBlock::Block(block) => block,
            ReceivedBlock::TooLarge => {
                self.claim = Claim::Refused { version, sha256, fault: too_large_fault() };
                return Err(TakeError::Version(too_large_fault()));
            }
            ReceivedBlock::None => {
                match (&self.claim, deferred_version.as_ref().or(mounted_version).or(self.good.as_ref())) {
                    (Claim::Refused { version: refused, sha256: digest, fault }, _)
                        if *refused == version && *digest == sha256 =>
                    {
                        return Err(TakeError::Version(fault.clone()));
                    }
                    (_, Some(local))
                        if Some(&local.sha256) == sha256.as_ref() && *local.content.version() == version =>
                    {
                        let content = Arc::clone(&local.content);
                        self.candidate = mounted_version.cloned();
                        (self.claim, self.deferred_version) = (Claim::Good, deferred_version);
                        return Ok(content);
                    }
                    // The same content has another name.
                    (_, Some(local)) if Some(&local.sha256) == sha256.as_ref() => local.block.clone(),
                    _ => {
                        self.claim = Claim::Nothing;
                        return Err(damaged("the hub left out a content that this agent does not have".to_owned()));
                    }
                }
            }
        };
        self.claim = Claim::Good;
        let digest = self::sha256(block.as_bytes());
        if sha256.as_ref() != Some(&digest) {
            return Err(damaged(format!("the content of version {version} does not match its digest")));
        }
        let candidate = LocalVersion::new(&name, version.clone(), digest, block)
            .map_err(|error| damaged(format!("the content of version {version} can't be read: {error}")))?;
        let content = Arc::clone(&candidate.content);
        self.candidate = Some(candidate);
        Ok(content)
    }
}

fn not_compared(version: &LocalVersion) -> String {
    let version = version.content.version();
    format!("the Secrets of the mounted version {version} were not compared with what was sealed")
}

fn too_large_fault() -> SourceFault {
    let message = "the configs of this pod are too large for one dictionary; make values smaller or use fewer configs";
    SourceFault { reason: ProblemReason::TooLarge, message: message.to_owned() }
}

fn to_problem_reason(reason: HubReason) -> ProblemReason {
    match reason {
        HubReason::Resolving => ProblemReason::Resolving,
        HubReason::NotFound => ProblemReason::NotFound,
        HubReason::NotAllowed => ProblemReason::NotAllowed,
        HubReason::TooLarge => ProblemReason::TooLarge,
        HubReason::Changed => ProblemReason::Changed,
        HubReason::Other => ProblemReason::Other,
    }
}

fn sha256(bytes: &[u8]) -> BlockDigest {
    BlockDigest::of_hash(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
#[path = "local_versions_tests.rs"]
mod tests;
