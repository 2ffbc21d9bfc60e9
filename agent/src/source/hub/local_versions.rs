//! The versions that this pod has, what of a reply is taken in, and what the agent says in a poll that it holds. Pure.
//!
//! All contents of one reply become one change. A revision never goes back within one uid; another uid replaces everything. Content
//! that can't be taken in leaves the good content as it is, with a problem that says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use nudge_protocol::block::{self, BlockError};
use nudge_protocol::hex::hex;
use nudge_protocol::hub::{Held, HubProblem, HubReason, PollConfig, PollHead, PollRequest};
use nudge_protocol::status::{Problem, ProblemReason};
use nudge_protocol::{ConfigName, VersionName};
use ring::digest;

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
        let values = entries.into_iter().map(|(key, value)| (key, block.part(value))).collect();
        let content = Arc::new(VersionContent::new(config.clone(), version, values));
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
    claim: Claim,
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
pub struct Taken {
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
}

impl LocalVersions {
    /// No version of any of the pod's configs.
    pub fn new(order: Vec<ConfigName>) -> Self {
        let configs = map(order.iter().map(|config| (config.clone(), ConfigState::default())));
        Self { configs, order, containers_hash: String::new() }
    }

    /// The pod's configs in the order of merging.
    pub fn order(&self) -> &[ConfigName] {
        &self.order
    }

    /// The next poll: it says what the agent holds.
    pub fn request(&self, wait_seconds: u32) -> PollRequest {
        let held = |config: &ConfigName| {
            let state = self.configs.get(config)?;
            let (version, sha256) = match (&state.claim, &state.good) {
                (Claim::Refused { version, sha256, .. }, _) => (Some(version.clone()), sha256.clone()),
                (Claim::Good, Some(good)) => (Some(good.content.version().clone()), good.sha256.clone()),
                _ => (None, String::new()),
            };
            let (uid, revision, problem) = (state.uid.clone(), state.revision, state.problem);
            Some(Held { name: config.clone(), uid, revision, version, sha256, problem })
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

    /// Whether every config has content, or a problem that will not pass by itself in a moment.
    pub fn is_settled(&self) -> bool {
        let settled = |state: &ConfigState| {
            state.good.is_some() || state.problem.is_some_and(|problem| problem != HubReason::Resolving)
        };
        self.configs.values().all(settled)
    }

    /// Whether every config has content.
    pub fn is_complete(&self) -> bool {
        self.configs.values().all(|state| state.good.is_some())
    }

    /// Whether this config has content.
    pub fn has(&self, config: &ConfigName) -> bool {
        self.configs.get(config).is_some_and(|state| state.good.is_some())
    }

    /// Takes a reply in.
    pub fn take(&mut self, reply: Reply) -> Taken {
        let mut taken = Taken::default();
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

    /// Learns from the store which candidates are in the dictionary now. Returns whether the last good contents have changed.
    pub fn settle(&mut self, store: &Store) -> bool {
        let (mut changed, mut refused) = (false, Vec::new());
        for (config, state) in &mut self.configs {
            let Some(candidate) = state.candidate.take() else { continue };
            if store.good(config).is_some_and(|good| *good == candidate.content) {
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

    /// The good contents in the form of a reply: its head and the blocks.
    pub fn last_good(&self) -> (PollHead, Vec<Value>) {
        let mut blocks = Vec::new();
        let mut config = |config: &ConfigName| {
            let state = self.configs.get(config)?;
            let good = state.good.as_ref()?;
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
            })
        };
        let configs = self.order.iter().filter_map(&mut config).collect();
        (PollHead { configs, ..PollHead::default() }, blocks)
    }
}

impl ConfigState {
    /// Takes one config of a reply in. Returns its content, or a fault and whether it is the hub's.
    fn take(&mut self, said: PollConfig, sent: Sent) -> Result<Arc<VersionContent>, (Fault, bool)> {
        let PollConfig { name, uid, revision, version, sha256, problem, .. } = said;
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
            Sent::Nothing => match (&self.claim, &self.good) {
                (Claim::Refused { version: refused, sha256: digest, fault }, _)
                    if *refused == version && *digest == sha256 =>
                {
                    return Err((fault.clone(), false));
                }
                (_, Some(good)) if good.sha256 == sha256 && *good.content.version() == version => {
                    self.claim = Claim::Good;
                    return Ok(Arc::clone(&good.content));
                }
                // The same content under another name.
                (_, Some(good)) if good.sha256 == sha256 => good.block.clone(),
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
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use time::OffsetDateTime;

    use super::*;
    use crate::content::EtagKey;

    fn name(config: &str) -> ConfigName {
        ConfigName::new(config).unwrap()
    }

    fn local_versions() -> (LocalVersions, Store) {
        let order = vec![name("a"), name("b")];
        (LocalVersions::new(order.clone()), Store::new(Some(order), EtagKey::new(b"")))
    }

    fn block(bytes: usize, fill: u8) -> Value {
        let mut block = Vec::new();
        let value = vec![fill; bytes.min(1024 * 1024)];
        let keys =
            (0..=bytes / (1024 * 1024)).map(|key| (nudge_protocol::Key::new(&format!("k{key}")).unwrap(), &value));
        block::encode(&keys.collect(), &mut block).unwrap();
        Value::from(&block[..])
    }

    fn said(config: &str, uid: &str, revision: u64, version: &str, block: &Value) -> (PollConfig, Sent) {
        let config = PollConfig {
            name: name(config),
            uid: uid.to_owned(),
            revision,
            version: Some(VersionName::new(version).unwrap()),
            sha256: sha256(block.as_bytes()),
            length: u32::try_from(block.as_bytes().len()).ok(),
            problem: None,
        };
        (config, Sent::Block(block.clone()))
    }

    fn reply(configs: Vec<(PollConfig, Sent)>) -> Reply {
        let (configs, sent) = configs.into_iter().unzip();
        Reply { head: PollHead { configs, containers_hash: "h".to_owned(), ..PollHead::default() }, sent }
    }

    /// Takes a reply in as the pipeline does.
    fn take(local_versions: &mut LocalVersions, store: &mut Store, configs: Vec<(PollConfig, Sent)>) -> Option<String> {
        let taken = local_versions.take(reply(configs));
        store.apply(taken.readings, OffsetDateTime::UNIX_EPOCH);
        local_versions.settle(store);
        taken.fault
    }

    fn held(local_versions: &LocalVersions, at: usize) -> (String, u64, Option<String>) {
        let held = local_versions.request(0).configs[at].clone();
        (held.uid, held.revision, held.version.map(String::from))
    }

    #[test]
    fn what_is_taken_in_is_held_in_the_next_poll_and_after_a_restart() {
        let (mut one, mut store) = local_versions();
        assert!(!one.is_settled());
        take(&mut one, &mut store, vec![said("a", "u", 3, "1", &block(4, 1)), said("b", "w", 1, "7", &block(4, 2))]);
        assert!(one.is_complete());
        assert_eq!(one.request(5).containers_hash, "h");
        let (head, blocks) = one.last_good();
        let sent = blocks.into_iter().map(Sent::Block).collect();
        let (mut two, mut store) = local_versions();
        let taken = two.take(Reply { head, sent });
        store.apply(taken.readings, OffsetDateTime::UNIX_EPOCH);
        two.settle(&store);
        assert_eq!(two.request(0).configs, one.request(0).configs);
        assert_eq!(two.request(0).containers_hash, "", "containers may be others by now");
    }

    #[test]
    fn another_replica_with_an_older_revision_changes_nothing() {
        let (mut local_versions, mut store) = local_versions();
        take(&mut local_versions, &mut store, vec![said("a", "u", 3, "1", &block(4, 1))]);
        let fault = take(&mut local_versions, &mut store, vec![said("a", "u", 2, "0", &block(4, 0))]);
        assert!(fault.unwrap().contains("older than 3"));
        assert_eq!(held(&local_versions, 0), ("u".to_owned(), 3, Some("1".to_owned())));
        // A config that is gone has no uid; what was known of it counts when it is seen again.
        let gone = HubProblem { reason: HubReason::NotFound, message: String::new() };
        let (mut config, _) = said("a", "", 0, "1", &block(4, 1));
        (config.problem, config.version) = (Some(gone), None);
        take(&mut local_versions, &mut store, vec![(config, Sent::Nothing)]);
        assert_eq!(held(&local_versions, 0), (String::new(), 0, Some("1".to_owned())));
        assert!(take(&mut local_versions, &mut store, vec![said("a", "u", 2, "0", &block(4, 0))]).is_some());
        assert!(take(&mut local_versions, &mut store, vec![said("a", "v", 1, "2", &block(4, 2))]).is_none());
        assert_eq!(held(&local_versions, 0), ("v".to_owned(), 1, Some("2".to_owned())));
    }

    #[test]
    fn content_that_does_not_fit_is_claimed_until_another_content_changes() {
        let (mut local_versions, mut store) = local_versions();
        let most = block(2 * 1024 * 1024 - 100, 1);
        take(
            &mut local_versions,
            &mut store,
            vec![said("a", "u", 1, "1", &most), said("b", "u", 1, "1", &block(4, 1))],
        );
        assert!(take(&mut local_versions, &mut store, vec![said("b", "u", 2, "2", &most)]).is_none());
        assert_eq!(store.problems()[&name("b")].reason, ProblemReason::TooLarge);
        assert_eq!(held(&local_versions, 1).2.unwrap(), "2");
        // The hub repeats its head for another reason, without the block: the problem stays.
        let (config, _) = said("b", "u", 3, "2", &most);
        take(&mut local_versions, &mut store, vec![(config, Sent::Nothing)]);
        assert_eq!(store.problems()[&name("b")].reason, ProblemReason::TooLarge);
        take(&mut local_versions, &mut store, vec![said("a", "u", 2, "2", &block(4, 1))]);
        assert_eq!(held(&local_versions, 1).2.unwrap(), "1", "it is to be sent again");
    }

    #[test]
    fn content_that_the_hub_wrongly_leaves_out_is_requested() {
        let (mut local_versions, mut store) = local_versions();
        let (config, _) = said("a", "u", 1, "1", &block(4, 1));
        assert!(take(&mut local_versions, &mut store, vec![(config, Sent::Nothing)]).is_some());
        assert_eq!(held(&local_versions, 0).2, None);
        assert!(take(&mut local_versions, &mut store, vec![said("a", "u", 1, "1", &block(4, 1))]).is_none());
        assert_eq!(held(&local_versions, 0).2.unwrap(), "1");
    }

    proptest! {
        #[test]
        fn no_revision_is_ever_followed_by_a_lower_one_of_its_uid(
            steps in vec((0usize..2, 0u64..6, 0u8..4, any::<bool>()), 1..40),
        ) {
            let (mut local_versions, mut store) = local_versions();
            let mut last = (String::new(), 0);
            for (uid, revision, fill, broken) in steps {
                let uid = ["u", "v"][uid];
                let (mut config, sent) = said("a", uid, revision, &format!("{uid}{revision}"), &block(4, fill));
                if broken {
                    config.sha256 = "0".repeat(64);
                }
                let fault = take(&mut local_versions, &mut store, vec![(config, sent)]);
                let now = (local_versions.request(0).configs[0].uid.clone(), local_versions.request(0).configs[0].revision);
                prop_assert!(last.0 != now.0 || last.1 <= now.1);
                let version = local_versions.request(0).configs[0].version.clone().map(String::from);
                let served = store.good(&name("a")).map(|content| content.version().to_string());
                prop_assert_eq!(version, served);
                prop_assert_eq!(fault.is_some(), broken || (last.0 == uid && revision < last.1));
                last = now;
            }
        }
    }
}
