//! What is taken in, held back and claimed.

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
        ack_timeout_seconds: None,
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
