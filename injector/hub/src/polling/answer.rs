//! Decides whether and how a poll is answered: compares the configs that the pod should have with the agent's copies.
//! Does no I/O.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use nudge_core::pods::PodState;
use nudge_protocol::hub::{ConfigClaim, HubSettings, PollConfig, PollHead, PollRequest};

use crate::contents::ConfigView;

/// The decision about a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PollDecision {
    /// The agent has the versions that its pod should run.
    KeepOpen,
    /// Something of the pod's own differs.
    Answer,
    /// The agent knows more than this replica.
    Behind,
}

/// Whether this replica knows the newest state of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    Fresh,
    /// A watch is silent, so this replica may be behind other replicas.
    Stale,
}

/// Compares the configs that the pod should have with the agent's copies. A stale replica never replaces one container
/// with another.
pub(super) fn decide(
    views: &[ConfigView],
    request: &PollRequest,
    containers_hash: &str,
    freshness: Freshness,
) -> PollDecision {
    let may_change = freshness == Freshness::Fresh || request.containers_hash.is_empty();
    let containers = if may_change && request.containers_hash != containers_hash {
        PollDecision::Answer
    } else {
        PollDecision::KeepOpen
    };
    // An answer covers all configs, so none of them may be older than the agent's.
    views.iter().map(|view| compare(view, agent_entry(view, request))).fold(containers, PollDecision::max)
}

/// Returns the configs that are not as the agent has them.
pub(super) fn differing_views<'a>(
    views: &'a [ConfigView],
    request: &PollRequest,
) -> impl Iterator<Item = &'a ConfigView> {
    views.iter().filter(|view| compare(view, agent_entry(view, request)) != PollDecision::KeepOpen)
}

/// Returns whether the revision of a config has grown. An answer also replaces the agent's list of containers, so a
/// stale replica, whose list differs, must not answer because of revisions alone.
pub(super) fn has_newer_revision(views: &[ConfigView], request: &PollRequest, containers_hash: &str) -> bool {
    let is_newer = |view: &ConfigView| {
        agent_entry(view, request).is_some_and(|entry| entry.uid == view.uid && entry.revision < view.revision)
    };
    request.containers_hash == containers_hash && views.iter().any(is_newer)
}

fn agent_entry<'a>(view: &ConfigView, request: &'a PollRequest) -> Option<&'a ConfigClaim> {
    request.configs.iter().find(|entry| entry.name == view.name)
}

/// Returns how long the answer is delayed, if nothing differs but configs whose return is spread.
pub(super) fn spread_delay(views: &[ConfigView], request: &PollRequest, containers_hash: &str) -> Option<Duration> {
    let delays: Option<Vec<Duration>> = differing_views(views, request).map(|view| view.spread).collect();
    delays.filter(|_| request.containers_hash == containers_hash)?.into_iter().max()
}

/// Decides by one config. A deleted config comes first, because it has no uid and no revision. Only revisions of the
/// same uid can be compared.
fn compare(view: &ConfigView, entry: Option<&ConfigClaim>) -> PollDecision {
    let Some(entry) = entry else { return PollDecision::Answer };
    let reason = view.content.as_ref().err().map(|problem| problem.reason);
    if view.uid.is_none() && entry.problem == reason {
        // The agent decides about its copy of a deleted config; it only has to know the reason.
        return PollDecision::KeepOpen;
    }
    if entry.uid != view.uid {
        return PollDecision::Answer;
    }
    if view.revision < entry.revision {
        return PollDecision::Behind;
    }
    let has_content = match &view.content {
        Ok(content) => entry.version == view.version && entry.sha256 == content.sha256,
        Err(_) => true,
    };
    if entry.problem == reason && has_content { PollDecision::KeepOpen } else { PollDecision::Answer }
}

/// A reply, ready to be sent.
pub(super) struct ComposedReply {
    /// The head after its length, then each block after its length.
    pub(super) body: Vec<Bytes>,
    /// The indexes of the views whose block is in the body.
    pub(super) blocks: Vec<usize>,
}

/// Makes a reply, with a block for each content that the agent does not have.
pub(super) fn compose(
    views: &[ConfigView],
    request: &PollRequest,
    pod: &PodState,
    settings: HubSettings,
) -> Result<ComposedReply, serde_json::Error> {
    let mut blocks = Vec::new();
    let config = |(index, view): (usize, &ConfigView)| {
        let entry = agent_entry(view, request);
        let content = view.content.as_ref().ok();
        let block = content.filter(|content| entry.is_none_or(|entry| entry.sha256 != content.sha256));
        if block.is_some() {
            blocks.push(index);
        }
        PollConfig {
            name: view.name.clone(),
            uid: view.uid.clone(),
            revision: view.revision,
            version: view.version.clone(),
            sha256: content.and_then(|content| content.sha256.clone()),
            // A block's bound is far below 4 GiB.
            length: block.and_then(|content| u32::try_from(content.block.len()).ok()),
            problem: view.content.as_ref().err().map(|problem| (**problem).clone()),
            ack_timeout_seconds: view.ack_timeout_seconds,
            mounted_secrets: view.mounted_secrets,
        }
    };
    let head = PollHead {
        configs: views.iter().enumerate().map(config).collect(),
        containers: pod.containers.clone(),
        containers_hash: pod.containers_hash.clone(),
        settings,
    };
    let head = serde_json::to_vec(&head)?;
    let mut body = vec![Bytes::from([&encode_length(head.len())[..], &head].concat())];
    for content in blocks.iter().filter_map(|&index| views[index].content.as_ref().ok()) {
        body.push(Bytes::copy_from_slice(&encode_length(content.block.len())));
        body.push(content.block.clone());
    }
    Ok(ComposedReply { body, blocks })
}

/// Encodes the length of a head or block, which is far below 4 GiB.
fn encode_length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

/// Returns a hash of the state of a pod. An agent that gets the same state again and again does not take it.
pub(super) fn fingerprint(views: &[ConfigView], containers_hash: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    containers_hash.hash(&mut hasher);
    for view in views {
        (view.name.as_str(), &view.uid, &view.version).hash(&mut hasher);
        match &view.content {
            Ok(content) => content.sha256.hash(&mut hasher),
            Err(problem) => problem.reason.hash(&mut hasher),
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nudge_protocol::hub::{HubProblem, HubReason};
    use nudge_protocol::{BlockDigest, ConfigName, ConfigUid, VersionName};
    use proptest::prelude::*;

    use super::*;
    use crate::contents::Content;

    fn content(sha256: &str) -> Arc<Content> {
        Arc::new(Content {
            block: Bytes::from(format!("block {sha256}")),
            sha256: BlockDigest::new(sha256),
            secrets: Vec::new(),
        })
    }

    fn view(uid: &str, revision: u64, content_or_reason: Result<u8, HubReason>) -> ConfigView {
        let content = content_or_reason.map(|n| content(&format!("sha{n}")));
        let version = content_or_reason.ok().map(|n| VersionName::new(&n.to_string()).unwrap());
        ConfigView {
            name: ConfigName::new("shop").unwrap(),
            uid: ConfigUid::new(uid),
            revision,
            version,
            content: content.map_err(|reason| Arc::new(HubProblem { reason, message: String::new() })),
            restart_version: None,
            start: nudge_core::restart::StartState::Present,
            spread: None,
            ack_timeout_seconds: None,
            mounted_secrets: None,
        }
    }

    /// Returns the copy of an agent that has processed `view`.
    fn claim(view: &ConfigView) -> ConfigClaim {
        ConfigClaim {
            name: view.name.clone(),
            uid: view.uid.clone(),
            revision: view.revision,
            version: view.version.clone(),
            sha256: view.content.as_ref().ok().and_then(|content| content.sha256.clone()),
            problem: view.content.as_ref().err().map(|problem| problem.reason),
            mounted_secrets: Vec::new(),
        }
    }

    fn request(configs: Vec<ConfigClaim>) -> PollRequest {
        PollRequest { configs, ..PollRequest::default() }
    }

    fn freshness(stale: bool) -> Freshness {
        if stale { Freshness::Stale } else { Freshness::Fresh }
    }

    fn judge(view: &ConfigView, claim: ConfigClaim) -> PollDecision {
        decide(std::slice::from_ref(view), &request(vec![claim]), "", Freshness::Fresh)
    }

    #[test]
    fn what_differs_is_answered() {
        let now = view("u", 5, Ok(1));
        assert_eq!(judge(&now, claim(&now)), PollDecision::KeepOpen);
        assert_eq!(judge(&view("u", 5, Ok(2)), claim(&now)), PollDecision::Answer);
        assert_eq!(judge(&view("v", 1, Ok(1)), claim(&now)), PollDecision::Answer, "another object of the name");
        assert_eq!(judge(&view("", 0, Err(HubReason::NotFound)), claim(&now)), PollDecision::Answer, "it is gone");
        assert_eq!(judge(&view("u", 5, Err(HubReason::NotAllowed)), claim(&now)), PollDecision::Answer);
        assert_eq!(judge(&now, claim(&view("u", 5, Err(HubReason::Resolving)))), PollDecision::Answer);
        assert_eq!(
            judge(&now, ConfigClaim { uid: None, revision: 0, ..claim(&now) }),
            PollDecision::Answer,
            "bootstrap"
        );
        let nothing = decide(std::slice::from_ref(&now), &request(Vec::new()), "", Freshness::Fresh);
        assert_eq!(nothing, PollDecision::Answer);
        let containers =
            |stale| decide(std::slice::from_ref(&now), &request(vec![claim(&now)]), "other", freshness(stale));
        assert_eq!(containers(false), PollDecision::Answer);
    }

    #[test]
    fn an_older_state_is_never_answered_whatever_the_other_configs_say() {
        let old = view("u", 4, Ok(1));
        assert_eq!(judge(&old, claim(&view("u", 5, Ok(2)))), PollDecision::Behind);
        let mut other = view("v", 9, Ok(3));
        other.name = ConfigName::new("keys").unwrap();
        let both = [other, old];
        let claim = vec![claim(&view("u", 5, Ok(2)))];
        assert_eq!(decide(&both, &request(claim), "changed", Freshness::Fresh), PollDecision::Behind);
    }

    #[test]
    fn what_concerns_other_pods_alone_is_passed_on_and_not_answered() {
        let now = view("u", 5, Ok(1));
        let later = view("u", 6, Ok(1));
        assert_eq!(judge(&later, claim(&now)), PollDecision::KeepOpen);
        let newer = |view: &ConfigView| has_newer_revision(std::slice::from_ref(view), &request(vec![claim(&now)]), "");
        assert!(newer(&later) && !newer(&now) && !newer(&view("v", 9, Ok(1))));
        let passed =
            compose(&[later], &request(vec![claim(&now)]), &PodState::default(), HubSettings::default()).unwrap();
        assert!(passed.blocks.is_empty());
    }

    #[test]
    fn a_stale_replica_does_not_replace_one_container_by_another() {
        let here = view("u", 5, Ok(1));
        let stale = PollRequest { containers_hash: "a".to_owned(), ..request(vec![claim(&here)]) };
        let later = [view("u", 6, Ok(1))];
        assert_eq!(decide(&later, &stale, "b", Freshness::Stale), PollDecision::KeepOpen);
        assert!(
            has_newer_revision(&later, &stale, "a") && !has_newer_revision(&later, &stale, "b"),
            "nor beside a newer revision"
        );
    }

    #[test]
    fn an_agent_may_keep_or_drop_the_uid_of_a_config_that_is_gone() {
        let gone = view("", 0, Err(HubReason::NotFound));
        assert_eq!(judge(&gone, claim(&gone)), PollDecision::KeepOpen);
        assert_eq!(
            judge(&gone, ConfigClaim { uid: ConfigUid::new("u"), revision: 7, ..claim(&gone) }),
            PollDecision::KeepOpen
        );
    }

    #[test]
    fn a_return_that_is_spread_delays_no_other_config() {
        let later = Some(Duration::from_secs(9));
        let (shop, mut keys) = (view("u", 5, Ok(1)), view("v", 5, Ok(1)));
        keys.name = ConfigName::new("keys").unwrap();
        let agent = request(vec![claim(&shop), claim(&keys)]);
        let returns = ConfigView { spread: later, ..view("u", 6, Ok(2)) };
        assert_eq!(spread_delay(&[returns.clone(), keys.clone()], &agent, ""), later);
        assert_eq!(
            spread_delay(&[returns.clone(), ConfigView { uid: ConfigUid::new("w"), ..keys.clone() }], &agent, ""),
            None
        );
        assert_eq!(spread_delay(&[returns, keys], &agent, "containers"), None, "they were started anew");
    }

    #[test]
    fn a_block_is_sent_only_where_the_content_is_not_there() {
        let now = view("u", 6, Ok(1));
        let pod = PodState::default();
        let settings = HubSettings::default();
        let same = compose(std::slice::from_ref(&now), &request(vec![claim(&view("u", 5, Ok(1)))]), &pod, settings);
        let same = same.unwrap();
        assert!(same.blocks.is_empty() && same.body.len() == 1);
        let other = compose(std::slice::from_ref(&now), &request(Vec::new()), &pod, settings).unwrap();
        assert_eq!((other.blocks.as_slice(), other.body.len()), (&[0][..], 3));
        let head_length = usize::try_from(u32::from_be_bytes(other.body[0][..4].try_into().unwrap())).unwrap();
        let head: PollHead = serde_json::from_slice(&other.body[0][4..]).unwrap();
        assert_eq!(head_length, other.body[0].len() - 4);
        assert_eq!(head.configs[0].length.map(|length| length.to_be_bytes().to_vec()), Some(other.body[1].to_vec()));
        assert_eq!(other.body[2], "block sha1");
    }

    fn any_view() -> impl Strategy<Value = ConfigView> {
        let reasons = [HubReason::Resolving, HubReason::NotAllowed, HubReason::TooLarge, HubReason::Changed];
        let content = prop_oneof![(0_u8..3).prop_map(Ok), proptest::sample::select(reasons.to_vec()).prop_map(Err)];
        let there = ("[uv]", 0_u64..6, content).prop_map(|(uid, revision, content)| view(&uid, revision, content));
        prop_oneof![4 => there, 1 => Just(view("", 0, Err(HubReason::NotFound)))]
    }

    proptest! {
        #[test]
        fn the_agent_that_took_it_in_is_held(view in any_view(), hash in "[ab]{0,1}", stale: bool) {
            let request = PollRequest { containers_hash: hash.clone(), ..request(vec![claim(&view)]) };
            prop_assert_eq!(decide(&[view], &request, &hash, freshness(stale)), PollDecision::KeepOpen);
        }

        #[test]
        fn nothing_older_is_ever_answered(now in any_view(), before in any_view(), hash in "[ab]{0,1}", stale: bool) {
            let request = PollRequest { containers_hash: hash, ..request(vec![claim(&before)]) };
            let decision = decide(std::slice::from_ref(&now), &request, "a", freshness(stale));
            if now.uid.is_some() && now.uid == before.uid && now.revision < before.revision {
                prop_assert_eq!(decision, PollDecision::Behind);
            }
            if decision == PollDecision::KeepOpen && now.uid.is_some() {
                prop_assert_eq!(&now.uid, &before.uid);
                let content = |view: &ConfigView| view.content.clone().map(|content| content.sha256.clone());
                let content = |view: &ConfigView| content(view).map_err(|problem| problem.reason);
                prop_assert_eq!(content(&now), content(&before), "the pod's own is the same");
            }
        }

        #[test]
        fn what_was_answered_and_taken_in_is_not_answered_again(now in any_view(), before in any_view()) {
            let request = request(vec![claim(&before)]);
            if decide(std::slice::from_ref(&now), &request, "", Freshness::Fresh) == PollDecision::Answer {
                let next = super::tests::request(vec![claim(&now)]);
                prop_assert_eq!(decide(std::slice::from_ref(&now), &next, "", Freshness::Fresh), PollDecision::KeepOpen);
            }
        }
    }
}
