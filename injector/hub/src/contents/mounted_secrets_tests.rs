//! Mounted Secret parts that an agent asks about.

use nudge_api::{PartKind, RetiredVersion, VersionStatus};
use nudge_core::pods::{PodState, UpdateMode};
use nudge_protocol::hub::{HubReason, MountedSecrets};
use nudge_protocol::{BlockDigest, SecretDigest, VersionName};
use ring::digest::{SHA256, digest};

use super::fixtures::{part, sealed};
use crate::fixtures::*;

const SEALED: Option<MountedSecrets> = Some(MountedSecrets::Sealed);
const CHANGED: Option<MountedSecrets> = Some(MountedSecrets::Changed { part: 2 });

/// Version 1: a ConfigMap, and the Secret `pin`, whose object is gone.
fn version() -> VersionStatus {
    let map = part(PartKind::ConfigMap, "map", 1, &[("x", b"1".to_vec())]).0;
    sealed("1", vec![map, part(PartKind::Secret, "pin", 2, &[("pin", b"0000".to_vec())]).0])
}

/// The pod of the tests, which has these Secrets mounted.
fn pod_with(secrets: &[&str]) -> PodState {
    let references = secrets.iter().map(|name| (PartKind::Secret, (*name).to_owned())).collect();
    PodState { references, ..pod("u", &["shop"]) }
}

/// Returns the digest of a Secret with this pin, as agents make it.
fn digest_of(pin: &str) -> SecretDigest {
    let mut bytes = Vec::new();
    for field in ["pin", pin] {
        bytes.extend((field.len() as u64).to_be_bytes());
        bytes.extend(field.bytes());
    }
    SecretDigest::new(format!("sha256:{}", nudge_protocol::hex::hex(digest(&SHA256, &bytes).as_ref())))
}

/// Returns the first poll of an agent that has mounted this version.
fn first_poll(version: &str, digests: &[SecretDigest]) -> PollRequest {
    let claim = ConfigClaim {
        name: ConfigName::new("shop").unwrap(),
        uid: None,
        revision: 0,
        version: VersionName::new(version).ok(),
        sha256: BlockDigest::new("mounted"),
        problem: None,
        mounted_secrets: digests.to_vec(),
    };
    PollRequest { configs: vec![claim], ..PollRequest::default() }
}

async fn verdict(fixture: &Fixture, version: &str, digests: &[SecretDigest]) -> Option<MountedSecrets> {
    fixture.head(first_poll(version, digests)).await.configs[0].mounted_secrets
}

#[tokio::test(start_paused = true)]
async fn the_seals_say_whether_what_is_mounted_is_what_was_sealed_also_if_the_object_is_gone() {
    let mut fixture = Fixture::new();
    fixture.index.put_pod(pod_with(&["pin"]));
    fixture.put("shop", 1, Some(&version()));
    for (digests, expected) in [
        (vec![digest_of("0000")], SEALED),
        (vec![digest_of("0001")], CHANGED),
        (vec![SecretDigest::new(String::new())], CHANGED),
        (vec![digest_of("0000"), digest_of("0000")], None),
        (Vec::new(), None),
    ] {
        assert_eq!(verdict(&fixture, "1", &digests).await, expected, "{}", digests.len());
    }
    assert_eq!(fixture.stored.reads.load(Ordering::SeqCst), 0, "the namespace does not let Nudge read Secrets");
    fixture.index.show_secrets("ns");
    let head = fixture.head(first_poll("1", &[digest_of("0001")])).await;
    assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, HubReason::Changed);
    assert_eq!(head.configs[0].mounted_secrets, CHANGED);
}

#[tokio::test(start_paused = true)]
async fn no_pod_can_guess_a_secret_that_its_specification_does_not_name() {
    let mut fixture = Fixture::new();
    fixture.put("shop", 1, Some(&version()));
    let verdict_of = async |fixture: &Fixture, version: &str| verdict(fixture, version, &[digest_of("0000")]).await;
    for secrets in [&[][..], &["pin-of-another-version"]] {
        fixture.index.put_pod(pod_with(secrets));
        assert_eq!(verdict_of(&fixture, "1").await, None, "{secrets:?}");
    }
    fixture.index.put_pod(pod_with(&["pin"]));
    assert_eq!(verdict_of(&fixture, "2").await, None, "no such version is sealed");
    fixture.admit("shop", &["worker"]);
    assert_eq!(verdict_of(&fixture, "1").await, None, "the config does not admit the pod");
    fixture.admit("shop", &["worker", "app"]);
    assert_eq!(verdict_of(&fixture, "1").await, SEALED);
}

#[tokio::test(start_paused = true)]
async fn what_was_sealed_of_the_current_version_counts_though_its_objects_were_deleted() {
    let mut fixture = Fixture::new();
    fixture.index.put_pod(pod_with(&[]));
    for (current, of_sealed, of_other) in [(Some("1"), SEALED, CHANGED), (Some("2"), None, None), (None, None, None)] {
        let sealed = version();
        let mut config = fixture.made("shop", 1, Some(&sealed));
        let status = config.status.as_mut().unwrap();
        let digests = sealed.parts.iter().map(|part| part.digest.clone()).collect();
        status.internal.retired = vec![RetiredVersion { version: "1".to_owned(), digests }];
        status.versions.clear();
        status.current_version = current.map(str::to_owned);
        fixture.index.put_config(config);
        for (pin, expected) in [("0000", of_sealed), ("0001", of_other)] {
            assert_eq!(verdict(&fixture, "1", &[digest_of(pin)]).await, expected, "{current:?} {pin}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_no_changed_version_until_a_restart() {
    let mut fixture = Fixture::new();
    let (old, new) = (version(), fixture.stored.add("2", b"x"));
    let mut config = fixture.made("shop", 1, Some(&new));
    config.status.as_mut().unwrap().versions.push(old);
    fixture.index.put_config(config);
    fixture.index.put_pod(PodState { update_mode: UpdateMode::ByRestart, ..pod_with(&["pin"]) });
    for (pin, verdict, version) in [("0000", SEALED, "1"), ("0001", CHANGED, "2")] {
        let head = fixture.head(first_poll("1", &[digest_of(pin)])).await;
        let config = &head.configs[0];
        assert_eq!((config.mounted_secrets, config.version.as_ref().map(AsRef::as_ref)), (verdict, Some(version)));
    }
}
