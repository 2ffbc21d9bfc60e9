//! The versions that this pod has, what of a reply is taken in, and what the agent says in a poll that it holds. Pure.
//!
//! All contents of one reply become one change. A revision never goes back within one uid; another uid replaces everything. Content
//! that can't be taken in leaves the good content as it is, with a problem that says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use nudge_protocol::block::{self, BlockError, Stored};
use nudge_protocol::hex::hex;
use nudge_protocol::hub::{HeldConfig, HubProblem, HubReason, PollConfig, PollHead, PollRequest};
use nudge_protocol::status::{Problem, ProblemReason};
use nudge_protocol::{ConfigName, VersionName};
use ring::digest;

use super::ran_contents::Ran;
use super::reply::{Reply, Sent};
use crate::content::{Value, VersionContent};
use crate::map::map;
use crate::source::{Fault, Reading, Store};

/// A version's content and the block that it came in. They share their memory.
#[derive(Clone, Debug)]
struct LocalVersion {
    sha256: String,
    block: Value,
    content: Arc<VersionContent>,
}

impl LocalVersion {
    /// Takes a block as the content of a version.
    fn new(config: &ConfigName, version: VersionName, sha256: String, block: Value) -> Result<Self, BlockError> {
        let entries = block::decode(block.as_bytes())?;
        let stored =
            entries.into_iter().map(|(key, Stored { kind, value })| (key, Stored { kind, value: block.part(value) }));
        let content = Arc::new(VersionContent::of_objects(config.clone(), version, stored.collect()));
        Ok(Self { sha256, block, content })
    }
}

/// The state of one config.
#[derive(Clone, Debug, Default)]
struct ConfigState {
    /// From the last head.
    uid: String,
    revision: u64,
    problem: Option<HubReason>,
    /// The last uid that was not empty, and the highest revision within it.
    highest: (String, u64),
    good: Option<LocalVersion>,
    /// Taken from the last reply. It is good once the dictionary with it is within its bounds.
    candidate: Option<LocalVersion>,
    /// Held back from a reply until the containers take it.
    asked: Option<LocalVersion>,
    claim: Claim,
    /// How long the containers have for their acknowledgement, in seconds.
    ack_timeout: Option<u32>,
}

/// What the next poll says that the agent holds of a config.
#[derive(Clone, Debug, Default)]
enum Claim {
    /// The good content.
    #[default]
    Good,
    /// Nothing, so that the hub sends the content.
    Nothing,
    /// The content that did not fit into the dictionary; otherwise the hub would send it again and again.
    Refused { version: VersionName, sha256: String, fault: Fault },
}

/// What was taken in of a reply.
#[derive(Debug, Default)]
pub struct TakenReply {
    /// For the [`Store`]. Call [`LocalVersions::settle`] after it.
    pub readings: Vec<Reading>,
    /// What is wrong with the reply. The hub is polled again, but not at once.
    pub fault: Option<String>,
}

/// The versions that this pod has.
#[derive(Clone, Debug)]
pub struct LocalVersions {
    configs: BTreeMap<ConfigName, ConfigState>,
    order: Vec<ConfigName>,
    containers_hash: String,
    ran: Ran,
}

impl LocalVersions {
    /// No version of any of the pod's configs.
    pub fn new(order: Vec<ConfigName>) -> Self {
        let configs = map(order.iter().map(|config| (config.clone(), ConfigState::default())));
        Self { configs, order, containers_hash: String::new(), ran: Ran::default() }
    }

    /// Adds what this pod has run before.
    #[must_use]
    pub fn with_ran(self, ran: Ran) -> Self {
        Self { ran, ..self }
    }

    /// The contents that this pod has run.
    pub fn ran(&self) -> &Ran {
        &self.ran
    }

    /// The pod's configs in the order of merging.
    pub fn order(&self) -> &[ConfigName] {
        &self.order
    }

    /// The next poll: it says what the agent holds.
    pub fn request(&self, wait_seconds: u32) -> PollRequest {
        let held = |config: &ConfigName| {
            let state = self.configs.get(config)?;
            let held = state.asked.as_ref().or(state.good.as_ref());
            let (version, sha256) = match (&state.claim, held) {
                (Claim::Refused { version, sha256, .. }, _) => (Some(version.clone()), sha256.clone()),
                (Claim::Good, Some(good)) => (Some(good.content.version().clone()), good.sha256.clone()),
                _ => (None, String::new()),
            };
            let (uid, revision, problem) = (state.uid.clone(), state.revision, state.problem);
            Some(HeldConfig { name: config.clone(), uid, revision, version, sha256, problem })
        };
        PollRequest {
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            configs: self.order.iter().filter_map(held).collect(),
            containers_hash: self.containers_hash.clone(),
            wait_seconds,
        }
    }

    /// Uid and revision that each config had in the last head.
    pub fn revisions(&self) -> BTreeMap<ConfigName, (String, u64)> {
        let of = |(config, state): (&ConfigName, &ConfigState)| (config.clone(), (state.uid.clone(), state.revision));
        map(self.configs.iter().map(of))
    }

    /// Returns whether every config has content, or a problem that will not pass by itself in a moment.
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

    /// Returns whether this config has content.
    pub fn has(&self, config: &ConfigName) -> bool {
        self.configs.get(config).is_some_and(|state| state.good.is_some())
    }

    /// Takes a reply in.
    pub fn take(&mut self, reply: Reply) -> TakenReply {
        let mut taken = TakenReply::default();
        for (said, sent) in reply.head.configs.into_iter().zip(reply.sent) {
            // Configs that this pod does not use are ignored.
            let Some(state) = self.configs.get_mut(&said.name) else { continue };
            let (uid, highest) = &state.highest;
            if *uid == said.uid && said.revision < *highest {
                let (config, revision) = (&said.name, said.revision);
                taken.fault = Some(format!(
                    "the hub answered with revision {revision} of config {config}, which is older than {highest}; another replica may have a newer one"
                ));
                continue;
            }
            let config = said.name.clone();
            match state.take(said, sent) {
                Ok(content) => taken.readings.push(Reading { config, result: Ok(content) }),
                Err((fault, by_hub)) => {
                    if by_hub {
                        taken.fault = Some(format!("config {config}: {}", fault.message));
                    }
                    taken.readings.push(Reading { config, result: Err(fault) });
                }
            }
        }
        self.containers_hash = reply.head.containers_hash;
        taken
    }

    /// Takes a mounted version in, if its config has no content yet.
    pub fn take_mounted(&mut self, config: &ConfigName, version: VersionName, block: Value) -> Option<Reading> {
        let state = self.configs.get_mut(config).filter(|state| state.good.is_none())?;
        let sha256 = sha256(block.as_bytes());
        let candidate = LocalVersion::new(config, version, sha256, block).ok()?;
        let content = Arc::clone(&candidate.content);
        state.candidate = Some(candidate);
        Some(Reading { config: config.clone(), result: Ok(content) })
    }

    /// Holds back what this pod has never run, until its containers take it. Returns the other readings. What was wrong with the version
    /// before does not count for the one that is held back now.
    pub fn hold_back_new(&mut self, readings: Vec<Reading>) -> Vec<Reading> {
        self.hold_back(readings, |candidate, _, ran| !ran.has(&candidate.sha256))
    }

    /// Holds back what differs from the content that the pod runs, until its containers are restarted with it.
    pub fn hold_back_changed(&mut self, readings: Vec<Reading>) -> Vec<Reading> {
        let differs = |good: &LocalVersion, candidate: &LocalVersion| good.sha256 != candidate.sha256;
        self.hold_back(readings, |candidate, good, _| good.is_none_or(|good| differs(good, candidate)))
    }

    fn hold_back(
        &mut self,
        mut readings: Vec<Reading>,
        is_held: impl Fn(&LocalVersion, Option<&LocalVersion>, &Ran) -> bool,
    ) -> Vec<Reading> {
        for Reading { config, result } in &mut readings {
            let Some(state) = self.configs.get_mut(config) else { continue };
            let ConfigState { candidate, good, .. } = state;
            let is_new = |candidate: &mut LocalVersion| is_held(candidate, good.as_ref(), &self.ran);
            let Some(candidate) = candidate.take_if(is_new) else { continue };
            if let Some(good) = &state.good {
                *result = Ok(Arc::clone(&good.content));
            }
            state.asked = Some(candidate);
        }
        let is_asked = |content: &Arc<VersionContent>| {
            let state = self.configs.get(content.config());
            let asked = state.and_then(|state| state.asked.as_ref());
            asked.is_some_and(|asked| Arc::ptr_eq(&asked.content, content))
        };
        readings.retain(|reading| !reading.result.as_ref().is_ok_and(is_asked));
        readings
    }

    /// What is held back.
    pub fn asked(&self) -> Vec<Arc<VersionContent>> {
        let asked = |config: &ConfigName| Some(Arc::clone(&self.configs.get(config)?.asked.as_ref()?.content));
        self.order.iter().filter_map(asked).collect()
    }

    /// How long the containers have to acknowledge what is held back, in seconds.
    pub fn ack_timeout(&self) -> Option<u32> {
        let asked = self.configs.values().filter(|state| state.asked.is_some());
        asked.filter_map(|state| state.ack_timeout).min()
    }

    /// The containers take what was held back.
    pub fn release(&mut self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for (config, state) in &mut self.configs {
            let Some(asked) = state.asked.take() else { continue };
            readings.push(Reading { config: config.clone(), result: Ok(Arc::clone(&asked.content)) });
            state.candidate = Some(asked);
        }
        readings
    }

    /// A container refuses what was held back.
    pub fn refuse(&mut self, fault: &Fault) -> Vec<Reading> {
        self.refuse_of(&self.order.clone(), fault)
    }

    /// What was held back of these configs is refused.
    pub fn refuse_of(&mut self, configs: &[ConfigName], fault: &Fault) -> Vec<Reading> {
        let mut readings = Vec::new();
        for config in configs {
            let Some(state) = self.configs.get_mut(config) else { continue };
            let Some(LocalVersion { sha256, content, .. }) = state.asked.take() else { continue };
            state.claim = Claim::Refused { version: content.version().clone(), sha256, fault: fault.clone() };
            readings.push(Reading { config: config.clone(), result: Err(fault.clone()) });
        }
        readings
    }

    /// A container has not answered about what is held back.
    pub fn overdue(&self, fault: &Fault) -> Vec<Reading> {
        let asked = self.configs.iter().filter(|(_, state)| state.asked.is_some());
        asked.map(|(config, _)| Reading { config: config.clone(), result: Err(fault.clone()) }).collect()
    }

    /// Learns from the store which candidates are in the dictionary now. Returns whether the last good contents have changed.
    pub fn settle(&mut self, store: &Store) -> bool {
        let (mut changed, mut refused) = (false, Vec::new());
        for (config, state) in &mut self.configs {
            let Some(candidate) = state.candidate.take() else { continue };
            if store.good(config).is_some_and(|good| *good == candidate.content) {
                self.ran.add(&candidate.sha256);
                state.good = Some(candidate);
                changed = true;
            } else if let Some(Problem { reason, message, .. }) = store.problems().get(config) {
                let fault = Fault { reason: *reason, message: message.clone() };
                let version = candidate.content.version().clone();
                refused.push((config.clone(), Claim::Refused { version, sha256: candidate.sha256, fault }));
            }
        }
        if changed {
            // A content that did not fit before may fit now, so the hub is to send it again.
            for state in self.configs.values_mut() {
                state.claim = Claim::Good;
            }
        }
        for (config, claim) in refused {
            self.configs.entry(config).and_modify(|state| state.claim = claim);
        }
        changed
    }

    /// Forgets what was refused, so that the hub sends it, or something else.
    pub fn forget_refusals(&mut self) {
        self.forget(|_| true);
    }

    /// Forgets what was refused for this reason.
    pub fn forget_refusals_for(&mut self, reason: ProblemReason) {
        self.forget(|fault| fault.reason == reason);
    }

    fn forget(&mut self, is_forgotten: impl Fn(&Fault) -> bool) {
        for state in self.configs.values_mut() {
            if matches!(&state.claim, Claim::Refused { fault, .. } if is_forgotten(fault)) {
                state.claim = Claim::Good;
            }
        }
    }

    /// Returns whether a content is refused for this reason.
    pub fn refuses_for(&self, reason: ProblemReason) -> bool {
        self.configs
            .values()
            .any(|state| matches!(&state.claim, Claim::Refused { fault, .. } if fault.reason == reason))
    }

    /// The good contents in the form of a reply: its head and the blocks.
    pub fn last_good(&self) -> (PollHead, Vec<Value>) {
        self.as_reply(|state| state.good.as_ref())
    }

    /// The contents that the pod is to run: those that are held back, and the good ones of the other configs.
    pub fn to_run(&self) -> (PollHead, Vec<Value>) {
        self.as_reply(ConfigState::to_run)
    }

    /// What stands for the contents that the pod is to run, whatever their versions are called.
    pub fn to_run_id(&self) -> String {
        let contents = self.configs.iter().filter_map(|(config, state)| {
            let LocalVersion { sha256, .. } = state.to_run()?;
            Some([config.as_str(), "=", sha256].concat())
        });
        contents.collect::<Vec<_>>().join(",")
    }

    fn as_reply(&self, of: impl Fn(&ConfigState) -> Option<&LocalVersion>) -> (PollHead, Vec<Value>) {
        let mut blocks = Vec::new();
        let mut config = |config: &ConfigName| {
            let state = self.configs.get(config)?;
            let good = of(state)?;
            blocks.push(good.block.clone());
            let (uid, revision) = state.highest.clone();
            Some(PollConfig {
                name: config.clone(),
                uid,
                revision,
                version: Some(good.content.version().clone()),
                sha256: good.sha256.clone(),
                length: u32::try_from(good.block.as_bytes().len()).ok(),
                problem: None,
                ack_timeout_seconds: None,
            })
        };
        let configs = self.order.iter().filter_map(&mut config).collect();
        (PollHead { configs, ..PollHead::default() }, blocks)
    }
}

impl ConfigState {
    /// What is held back, or the good content.
    fn to_run(&self) -> Option<&LocalVersion> {
        self.asked.as_ref().or(self.good.as_ref())
    }

    /// Takes one config of a reply in. Returns its content, or a fault and whether it is the hub's.
    fn take(&mut self, said: PollConfig, sent: Sent) -> Result<Arc<VersionContent>, (Fault, bool)> {
        let PollConfig { name, uid, revision, version, sha256, problem, ack_timeout_seconds, .. } = said;
        let asked = self.asked.take();
        self.ack_timeout = ack_timeout_seconds;
        if !uid.is_empty() {
            self.highest = (uid.clone(), revision);
        }
        (self.uid, self.revision) = (uid, revision);
        self.problem = problem.as_ref().map(|problem| problem.reason);
        if let Some(HubProblem { reason, message }) = problem {
            return Err((Fault { reason: reason_of(reason), message }, false));
        }
        let damaged = |message: String| (Fault { reason: ProblemReason::Damaged, message }, true);
        let Some(version) = version else {
            return Err(damaged("the hub named neither a version nor a problem".to_owned()));
        };
        let block = match sent {
            Sent::Block(block) => block,
            Sent::TooMuch => {
                self.claim = Claim::Refused { version, sha256, fault: too_large() };
                return Err((too_large(), false));
            }
            Sent::Nothing => match (&self.claim, asked.as_ref().or(self.good.as_ref())) {
                (Claim::Refused { version: refused, sha256: digest, fault }, _)
                    if *refused == version && *digest == sha256 =>
                {
                    return Err((fault.clone(), false));
                }
                (_, Some(held)) if held.sha256 == sha256 && *held.content.version() == version => {
                    let content = Arc::clone(&held.content);
                    (self.claim, self.asked) = (Claim::Good, asked);
                    return Ok(content);
                }
                // The same content under another name.
                (_, Some(held)) if held.sha256 == sha256 => held.block.clone(),
                _ => {
                    self.claim = Claim::Nothing;
                    return Err(damaged("the hub left out a content that this agent does not have".to_owned()));
                }
            },
        };
        self.claim = Claim::Good;
        if sha256 != self::sha256(block.as_bytes()) {
            return Err(damaged(format!("the content of version {version} does not match its digest")));
        }
        let candidate = LocalVersion::new(&name, version.clone(), sha256, block)
            .map_err(|error| damaged(format!("the content of version {version} can't be read: {error}")))?;
        let content = Arc::clone(&candidate.content);
        self.candidate = Some(candidate);
        Ok(content)
    }
}

fn too_large() -> Fault {
    let message = "the configs of this pod are too large for one dictionary; make values smaller or use fewer configs";
    Fault { reason: ProblemReason::TooLarge, message: message.to_owned() }
}

fn reason_of(reason: HubReason) -> ProblemReason {
    match reason {
        HubReason::Resolving => ProblemReason::Resolving,
        HubReason::NotFound => ProblemReason::NotFound,
        HubReason::NotAllowed => ProblemReason::NotAllowed,
        HubReason::TooLarge => ProblemReason::TooLarge,
        HubReason::Changed => ProblemReason::Changed,
        HubReason::Other => ProblemReason::Other,
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
#[path = "local_versions_tests.rs"]
mod tests;
