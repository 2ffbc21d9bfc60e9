//! Tests of the contents that are accepted, held back and claimed.

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
    let keys = (0..=bytes / (1024 * 1024))
        .map(|key| (nudge_protocol::Key::new(&format!("k{key}")).unwrap(), Stored::in_config_map(&value)));
    block::encode(&keys.collect(), &mut block).unwrap();
    Value::from(&block[..])
}

fn assign(config: &str, uid: &str, revision: u64, version: &str, block: &Value) -> (PollConfig, ReceivedBlock) {
    let config = PollConfig {
        name: name(config),
        uid: ConfigUid::new(uid),
        revision,
        version: Some(VersionName::new(version).unwrap()),
        sha256: Some(sha256(block.as_bytes())),
        length: u32::try_from(block.as_bytes().len()).ok(),
        problem: None,
        ack_timeout_seconds: None,
        mounted_secrets: None,
    };
    (config, ReceivedBlock::Block(block.clone()))
}

fn reply(configs: Vec<(PollConfig, ReceivedBlock)>) -> PollReply {
    let (configs, blocks) = configs.into_iter().unzip();
    PollReply { head: PollHead { configs, containers_hash: "h".to_owned(), ..PollHead::default() }, blocks }
}

/// Takes in a reply as the pipeline does.
fn take(
    local_versions: &mut LocalVersions,
    store: &mut Store,
    configs: Vec<(PollConfig, ReceivedBlock)>,
) -> Option<String> {
    let taken = local_versions.take(reply(configs));
    store.apply(taken.readings, OffsetDateTime::UNIX_EPOCH);
    local_versions.settle(store);
    taken.fault
}

fn held(local_versions: &LocalVersions, at: usize) -> (String, u64, Option<String>) {
    let held = local_versions.request(0).configs[at].clone();
    (held.uid.map(String::from).unwrap_or_default(), held.revision, held.version.map(String::from))
}

#[test]
fn what_is_taken_in_is_held_in_the_next_poll_and_after_a_restart() {
    let (mut one, mut store) = local_versions();
    assert!(!one.is_settled());
    take(&mut one, &mut store, vec![assign("a", "u", 3, "1", &block(4, 1)), assign("b", "w", 1, "7", &block(4, 2))]);
    assert!(one.is_complete());
    assert_eq!(one.request(5).containers_hash, "h");
    let (head, blocks) = one.last_good();
    let blocks = blocks.into_iter().map(ReceivedBlock::Block).collect();
    let (mut two, mut store) = local_versions();
    let taken = two.take(PollReply { head, blocks });
    store.apply(taken.readings, OffsetDateTime::UNIX_EPOCH);
    two.settle(&store);
    assert_eq!(two.request(0).configs, one.request(0).configs);
    assert_eq!(two.request(0).containers_hash, "", "containers may be others by now");
}

#[test]
fn another_replica_with_an_older_revision_changes_nothing() {
    let (mut local_versions, mut store) = local_versions();
    take(&mut local_versions, &mut store, vec![assign("a", "u", 3, "1", &block(4, 1))]);
    let fault = take(&mut local_versions, &mut store, vec![assign("a", "u", 2, "0", &block(4, 0))]);
    assert!(fault.unwrap().contains("older than 3"));
    assert_eq!(held(&local_versions, 0), ("u".to_owned(), 3, Some("1".to_owned())));
    // A deleted config has no uid; its earlier state counts if it is seen again.
    let gone = HubProblem { reason: HubReason::NotFound, message: String::new() };
    let (mut config, _) = assign("a", "", 0, "1", &block(4, 1));
    (config.problem, config.version) = (Some(gone), None);
    take(&mut local_versions, &mut store, vec![(config, ReceivedBlock::None)]);
    assert_eq!(held(&local_versions, 0), (String::new(), 0, Some("1".to_owned())));
    assert!(take(&mut local_versions, &mut store, vec![assign("a", "u", 2, "0", &block(4, 0))]).is_some());
    assert!(take(&mut local_versions, &mut store, vec![assign("a", "v", 1, "2", &block(4, 2))]).is_none());
    assert_eq!(held(&local_versions, 0), ("v".to_owned(), 1, Some("2".to_owned())));
}

#[test]
fn content_that_does_not_fit_is_claimed_until_another_content_changes() {
    let (mut local_versions, mut store) = local_versions();
    let most = block(2 * 1024 * 1024 - 100, 1);
    take(
        &mut local_versions,
        &mut store,
        vec![assign("a", "u", 1, "1", &most), assign("b", "u", 1, "1", &block(4, 1))],
    );
    assert!(take(&mut local_versions, &mut store, vec![assign("b", "u", 2, "2", &most)]).is_none());
    assert_eq!(store.problems()[&name("b")].reason, ProblemReason::TooLarge);
    assert_eq!(held(&local_versions, 1).2.unwrap(), "2");
    // The hub repeats its head for another reason, without the block: the problem stays.
    let (config, _) = assign("b", "u", 3, "2", &most);
    take(&mut local_versions, &mut store, vec![(config, ReceivedBlock::None)]);
    assert_eq!(store.problems()[&name("b")].reason, ProblemReason::TooLarge);
    take(&mut local_versions, &mut store, vec![assign("a", "u", 2, "2", &block(4, 1))]);
    assert_eq!(held(&local_versions, 1).2.unwrap(), "1", "it is to be sent again");
}

/// The mounted version 1.
fn mounted_version(block: Value, digests: &[&str]) -> MountedVersion {
    let secrets = digests.iter().map(|digest| SecretDigest::new((*digest).to_owned())).collect();
    MountedVersion { version: VersionName::new("1").unwrap(), block, secrets }
}

/// Returns the state of a pod that has mounted Secrets of the config `a`.
fn with_mounted_secrets(block: &Value) -> (LocalVersions, Store) {
    let (mut local_versions, store) = local_versions();
    assert!(local_versions.take_mounted(&name("a"), mounted_version(block.clone(), &["sha256:secret"])).is_none());
    assert!(local_versions.holds_uncompared() && !local_versions.is_settled());
    (local_versions, store)
}

/// Returns the config `a` in a reply that says this of the mounted Secrets.
fn verdict(verdict: Option<MountedSecrets>, block: &Value, problem: Option<HubReason>) -> (PollConfig, ReceivedBlock) {
    let (mut config, _) = assign("a", "u", 1, "1", block);
    config.mounted_secrets = verdict;
    config.problem = problem.map(|reason| HubProblem { reason, message: "no".to_owned() });
    (config, ReceivedBlock::None)
}

fn fault_of(store: &Store) -> Option<(ProblemReason, String)> {
    store.problems().get(&name("a")).map(|problem| (problem.reason, problem.message.clone()))
}

/// Returns the number of digests that the next poll asks about.
fn digest_count(local_versions: &LocalVersions) -> usize {
    local_versions.request(0).configs[0].mounted_secrets.len()
}

const CHANGED: Option<MountedSecrets> = Some(MountedSecrets::Changed { part: 2 });

#[test]
fn mounted_secrets_are_served_when_the_hub_has_compared_them() {
    let one = block(4, 1);
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    assert_eq!((digest_count(&local_versions), held(&local_versions, 0).2), (1, Some("1".to_owned())));
    assert!(!format!("{:?}", local_versions.request(0)).contains("secret\""), "no digest is shown");
    take(&mut local_versions, &mut store, vec![verdict(Some(MountedSecrets::Sealed), &one, None)]);
    assert_eq!((served(&store).unwrap(), fault_of(&store), digest_count(&local_versions)), ("1".to_owned(), None, 0));
    assert_eq!(local_versions.last_good().1.len(), 1);
    // The hub can't give the version, and knows its seals.
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    let sealed = verdict(Some(MountedSecrets::Sealed), &one, Some(HubReason::Changed));
    take(&mut local_versions, &mut store, vec![sealed]);
    let fault = (ProblemReason::Changed, "no".to_owned());
    assert_eq!(
        (served(&store).unwrap(), fault_of(&store), digest_count(&local_versions)),
        ("1".to_owned(), Some(fault), 0)
    );
}

#[test]
fn mounted_secrets_that_are_not_what_was_sealed_are_never_served_when_the_hub_answers() {
    let (one, two) = (block(4, 1), block(4, 2));
    let differs = "part 2 of the mounted version 1 has another content than what was sealed";
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    let taken = local_versions.take(reply(vec![verdict(CHANGED, &one, Some(HubReason::Changed))]));
    assert_eq!(taken.changed_mounts[0].1.to_string(), differs);
    settle(&mut local_versions, &mut store, taken.readings);
    let fault = (ProblemReason::Changed, format!("{differs}; no"));
    assert_eq!((served(&store), fault_of(&store)), (None, Some(fault)));
    assert_eq!((held(&local_versions, 0).2, digest_count(&local_versions)), (None, 0));

    // The hub has the sealed content.
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    let (config, block) = assign("a", "u", 1, "1", &two);
    let taken = local_versions.take(reply(vec![(PollConfig { mounted_secrets: CHANGED, ..config }, block)]));
    assert_eq!(taken.changed_mounts.len(), 1);
    settle(&mut local_versions, &mut store, taken.readings);
    assert_eq!(store.good(&name("a")).unwrap().values().values().next().unwrap().as_bytes(), &[2; 4]);
    // A hub that takes the content for the sealed one all the same must send it.
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    assert!(take(&mut local_versions, &mut store, vec![verdict(CHANGED, &one, None)]).is_some());
    assert_eq!((served(&store), held(&local_versions, 0).2), (None, None));
}

#[test]
fn mounted_secrets_are_served_uncompared_while_the_hub_is_away_and_compared_when_it_is_back() {
    let one = block(4, 1);
    for (answer, message) in [
        (Some(MountedSecrets::Sealed), None),
        (Some(MountedSecrets::Sealed), Some("no")),
        (CHANGED, Some("part 2 of the mounted version 1 has another content than what was sealed; no")),
        (None, Some("the Secrets of the mounted version 1 were not compared with what was sealed; no")),
    ] {
        let (mut local_versions, mut store) = with_mounted_secrets(&one);
        let readings = local_versions.release_uncompared();
        settle(&mut local_versions, &mut store, readings);
        assert!(!local_versions.holds_uncompared() && local_versions.release_uncompared().is_empty());
        assert_eq!((served(&store).unwrap(), digest_count(&local_versions)), ("1".to_owned(), 1));
        assert_eq!(fault_of(&store).unwrap().0, ProblemReason::NotCompared);
        assert!(local_versions.last_good().1.is_empty(), "an agent that starts again asks again");
        let reason = message.map(|_| HubReason::NotAllowed);
        take(&mut local_versions, &mut store, vec![verdict(answer, &one, reason)]);
        assert_eq!(fault_of(&store).map(|(_, message)| message).as_deref(), message);
        assert_eq!(served(&store).unwrap(), "1");
        let is_sealed = answer == Some(MountedSecrets::Sealed);
        assert_eq!(
            (digest_count(&local_versions), local_versions.last_good().1.len()),
            if is_sealed { (0, 1) } else { (1, 0) }
        );
    }
}

#[test]
fn a_hub_that_gives_another_version_or_none_need_not_compare() {
    let (one, two) = (block(4, 1), block(4, 2));
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    take(&mut local_versions, &mut store, vec![assign("a", "u", 1, "2", &two)]);
    assert_eq!((served(&store).unwrap(), digest_count(&local_versions)), ("2".to_owned(), 0));
    let (mut local_versions, mut store) = with_mounted_secrets(&one);
    take(&mut local_versions, &mut store, vec![verdict(None, &one, Some(HubReason::NotFound))]);
    assert_eq!((served(&store).unwrap(), digest_count(&local_versions)), ("1".to_owned(), 1));
}

#[test]
fn what_was_mounted_and_does_not_fit_is_requested_and_waited_for() {
    let (mut local_versions, mut store) = local_versions();
    let mut readings = Vec::new();
    for (config, block) in [("a", block(4, 1)), ("b", block(2 * 1024 * 1024 - 100, 1))] {
        readings.extend(local_versions.take_mounted(&name(config), mounted_version(block, &[])));
    }
    store.apply(readings, OffsetDateTime::UNIX_EPOCH);
    local_versions.settle(&store);
    assert_eq!(store.problems()[&name("b")].reason, ProblemReason::TooLarge);
    local_versions.forget_refusals(|_| true);
    assert!(!local_versions.is_settled());
    assert_eq!((held(&local_versions, 0).2, held(&local_versions, 1).2), (Some("1".to_owned()), None));
}

#[test]
fn content_that_the_hub_wrongly_leaves_out_is_requested() {
    let (mut local_versions, mut store) = local_versions();
    let (config, _) = assign("a", "u", 1, "1", &block(4, 1));
    assert!(take(&mut local_versions, &mut store, vec![(config, ReceivedBlock::None)]).is_some());
    assert_eq!(held(&local_versions, 0).2, None);
    assert!(take(&mut local_versions, &mut store, vec![assign("a", "u", 1, "1", &block(4, 1))]).is_none());
    assert_eq!(held(&local_versions, 0).2.unwrap(), "1");
}

/// Takes a reply as the pipeline does if containers are asked.
fn defer(local_versions: &mut LocalVersions, store: &mut Store, configs: Vec<(PollConfig, ReceivedBlock)>) {
    let taken = local_versions.take(reply(configs));
    let readings = local_versions.defer_new(taken.readings);
    settle(local_versions, store, readings);
}

fn settle(local_versions: &mut LocalVersions, store: &mut Store, readings: Vec<Reading>) {
    store.apply(readings, OffsetDateTime::UNIX_EPOCH);
    local_versions.settle(store);
}

fn held_back_names(local_versions: &LocalVersions) -> Vec<String> {
    local_versions
        .deferred_contents()
        .iter()
        .map(|content| format!("{}={}", content.config(), content.version()))
        .collect()
}

fn served(store: &Store) -> Option<String> {
    store.good(&name("a")).map(|content| content.version().to_string())
}

#[test]
fn what_the_pod_has_never_run_is_held_back_until_it_is_released() {
    let (mut local_versions, mut store) = local_versions();
    let (one, two) = (block(4, 1), block(4, 2));
    take(&mut local_versions, &mut store, vec![assign("a", "u", 1, "1", &one), assign("b", "u", 1, "1", &one)]);
    let mut assigned_two = assign("a", "u", 2, "2", &two);
    assigned_two.0.ack_timeout_seconds = Some(7);
    defer(&mut local_versions, &mut store, vec![assigned_two.clone(), assign("b", "u", 2, "2", &one)]);
    assert_eq!((served(&store).unwrap(), held_back_names(&local_versions)), ("1".to_owned(), vec!["a=2".to_owned()]));
    assert_eq!(store.good(&name("b")).unwrap().version().as_str(), "2", "the pod has run this content");
    assert_eq!((held(&local_versions, 0).2.unwrap(), local_versions.ack_timeout_seconds()), ("2".to_owned(), Some(7)));
    // The hub repeats its head for another reason, without the block: the same content is asked about.
    let before = local_versions.deferred_contents();
    defer(&mut local_versions, &mut store, vec![(assigned_two.0, ReceivedBlock::None)]);
    assert!(Arc::ptr_eq(&before[0], &local_versions.deferred_contents()[0]) && served(&store).unwrap() == "1");
    // The same content gets another name.
    let (renamed, _) = assign("a", "u", 3, "3", &two);
    defer(&mut local_versions, &mut store, vec![(renamed, ReceivedBlock::None)]);
    assert_eq!(held_back_names(&local_versions), ["a=3"]);
    let readings = local_versions.release();
    settle(&mut local_versions, &mut store, readings);
    assert_eq!((served(&store).unwrap(), held_back_names(&local_versions).len()), ("3".to_owned(), 0));
    defer(&mut local_versions, &mut store, vec![assign("a", "u", 4, "1", &one)]);
    assert_eq!((served(&store).unwrap(), held_back_names(&local_versions).len()), ("1".to_owned(), 0), "the way back");
}

#[test]
fn what_differs_is_held_back_for_a_restart_whether_or_not_it_was_run() {
    let (mut local_versions, mut store) = local_versions();
    let (one, two) = (block(4, 1), block(4, 2));
    take(&mut local_versions, &mut store, vec![assign("a", "u", 1, "1", &one), assign("b", "w", 1, "7", &one)]);
    let before = local_versions.assigned_id();
    let mut deferred_version = |revision, version: &str, block: &Value| {
        let readings = local_versions.take(reply(vec![assign("a", "u", revision, version, block)])).readings;
        let readings = local_versions.defer_changed(readings);
        settle(&mut local_versions, &mut store, readings);
        let named = held_back_names(&local_versions);
        let (head, blocks) = local_versions.assigned();
        let version = head.configs[0].version.clone().map(String::from);
        assert_eq!((blocks.len(), head.configs[1].version.clone().map(String::from)), (2, Some("7".to_owned())));
        (named, version.unwrap(), local_versions.assigned_id())
    };
    let (named, version, id) = deferred_version(2, "2", &two);
    assert_eq!((named, version), (vec!["a=2".to_owned()], "2".to_owned()));
    assert_ne!(id, before);
    // The pod has never left it.
    assert_eq!(deferred_version(3, "1", &one), (Vec::new(), "1".to_owned(), before.clone()));
    assert_eq!(deferred_version(4, "renamed", &one).2, before);
    assert_eq!(deferred_version(5, "2", &two).0, ["a=2"]);
}

#[test]
fn what_is_refused_is_claimed_until_the_hub_assigns_something_else() {
    let (mut local_versions, mut store) = local_versions();
    let (one, two) = (block(4, 1), block(4, 2));
    take(&mut local_versions, &mut store, vec![assign("a", "u", 1, "1", &one)]);
    defer(&mut local_versions, &mut store, vec![assign("a", "u", 2, "2", &two)]);
    let fault = |reason| SourceFault { reason, message: "no".to_owned() };
    let problem = |store: &Store| store.problems().get(&name("a")).map(|problem| problem.reason);
    let readings = local_versions.overdue_readings(&fault(ProblemReason::CheckFailed));
    settle(&mut local_versions, &mut store, readings);
    assert_eq!((problem(&store), held_back_names(&local_versions).len()), (Some(ProblemReason::CheckFailed), 1));
    let readings = local_versions.refuse(&fault(ProblemReason::CheckRefused));
    settle(&mut local_versions, &mut store, readings);
    assert_eq!((problem(&store), held_back_names(&local_versions).len()), (Some(ProblemReason::CheckRefused), 0));
    assert_eq!((held(&local_versions, 0).2.unwrap(), served(&store).unwrap()), ("2".to_owned(), "1".to_owned()));
    let (again, _) = assign("a", "u", 3, "2", &two);
    defer(&mut local_versions, &mut store, vec![(again, ReceivedBlock::None)]);
    assert_eq!((problem(&store), held_back_names(&local_versions).len()), (Some(ProblemReason::CheckRefused), 0));
    defer(&mut local_versions, &mut store, vec![assign("a", "u", 4, "1", &one)]);
    assert_eq!((problem(&store), held(&local_versions, 0).2.unwrap()), (None, "1".to_owned()));
    defer(&mut local_versions, &mut store, vec![assign("a", "u", 5, "2", &two)]);
    assert_eq!(held_back_names(&local_versions), ["a=2"], "it is asked about again");
    // Containers are not asked about contents that the hub can't give.
    let (mut gone, _) = assign("a", "u", 6, "2", &two);
    gone.problem = Some(HubProblem { reason: HubReason::NotAllowed, message: String::new() });
    defer(&mut local_versions, &mut store, vec![(gone, ReceivedBlock::None)]);
    assert_eq!((held_back_names(&local_versions).len(), served(&store).unwrap()), (0, "1".to_owned()));
    // Another version directly after a refused version: the reasons for the refusal do not apply to the new version.
    defer(&mut local_versions, &mut store, vec![assign("a", "u", 7, "2", &two)]);
    let readings = local_versions.refuse(&fault(ProblemReason::CheckRefused));
    settle(&mut local_versions, &mut store, readings);
    defer(&mut local_versions, &mut store, vec![assign("a", "u", 8, "3", &block(4, 3))]);
    assert_eq!(
        (problem(&store), held_back_names(&local_versions), served(&store).unwrap()),
        (None, vec!["a=3".to_owned()], "1".to_owned())
    );
}

proptest! {
    #[test]
    fn nothing_is_served_that_was_neither_run_nor_taken(steps in vec((1u8..5, 0u8..4), 1..40)) {
        let (mut local_versions, mut store) = local_versions();
        take(&mut local_versions, &mut store, vec![assign("a", "u", 0, "1", &block(4, 1))]);
        let mut good = vec![1_u8];
        for (revision, (fill, answer)) in steps.into_iter().enumerate() {
            let assigned = assign("a", "u", revision as u64 + 1, &fill.to_string(), &block(4, fill));
            defer(&mut local_versions, &mut store, vec![assigned]);
            prop_assert_eq!(held_back_names(&local_versions).is_empty(), good.contains(&fill));
            let fault = SourceFault { reason: ProblemReason::CheckRefused, message: String::new() };
            let readings = match answer {
                0 => {
                    good.push(fill);
                    local_versions.release()
                }
                1 => local_versions.refuse(&fault),
                2 => local_versions.overdue_readings(&fault),
                _ => Vec::new(),
            };
            settle(&mut local_versions, &mut store, readings);
            let served: u8 = served(&store).unwrap().parse().unwrap();
            prop_assert!(good.contains(&served), "{served} of {good:?}");
            prop_assert_eq!(held(&local_versions, 0).2.unwrap(), fill.to_string(), "the hub need not send it again");
        }
    }

    #[test]
    fn no_revision_is_ever_followed_by_a_lower_one_of_its_uid(
        steps in vec((0usize..2, 0u64..6, 0u8..4, any::<bool>()), 1..40),
    ) {
        let (mut local_versions, mut store) = local_versions();
        let mut last = (String::new(), 0);
        for (uid, revision, fill, broken) in steps {
            let uid = ["u", "v"][uid];
            let (mut config, block) = assign("a", uid, revision, &format!("{uid}{revision}"), &block(4, fill));
            if broken {
                config.sha256 = BlockDigest::new("0".repeat(64));
            }
            let fault = take(&mut local_versions, &mut store, vec![(config, block)]);
            let now = (local_versions.request(0).configs[0].uid.clone().map(String::from).unwrap_or_default(), local_versions.request(0).configs[0].revision);
            prop_assert!(last.0 != now.0 || last.1 <= now.1);
            let version = local_versions.request(0).configs[0].version.clone().map(String::from);
            let served = store.good(&name("a")).map(|content| content.version().to_string());
            prop_assert_eq!(version, served);
            prop_assert_eq!(fault.is_some(), broken || (last.0 == uid && revision < last.1));
            last = now;
        }
    }
}
