//! Months of rotation by a simulated clock: a client that trusts what was published before can always verify what is served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{ServerName, UnixTime};
use time::OffsetDateTime;

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn lifetimes() -> Lifetimes {
    let lifetimes = Lifetimes {
        authority: MINUTE * 900,
        certificate: MINUTE * 90,
        propagation: MINUTE * 20,
        grace: MINUTE * 10,
        leeway: MINUTE * 2,
        check: MINUTE * 3,
    };
    lifetimes.checked().unwrap()
}

fn names() -> ServingNames {
    ServingNames::new(["hub.test"]).unwrap()
}

fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

/// A client that trusts `bundle` and has that time. Unlike webpki, Go's clients also look at the dates of an authority.
fn verifies(bundle: &str, serving: &Certificate, now: OffsetDateTime) -> bool {
    let authorities = Certificate::all_from_pem(bundle);
    let mut roots = RootCertStore::empty();
    for authority in authorities.iter().filter(|authority| authority.is_valid_at(now)) {
        roots.add(authority.der().clone()).unwrap();
    }
    if roots.is_empty() {
        return false;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unix_timestamp().try_into().unwrap()));
    let name = ServerName::try_from("hub.test").unwrap();
    verifier.build().unwrap().verify_server_cert(serving.der(), &[], &name, &[], now).is_ok()
}

/// A Secret in memory, with versions as the API server counts them.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<(u64, Option<Entries>)>>);

impl Memory {
    fn stored(&self) -> Stored {
        self.0.lock().unwrap().1.as_ref().map(Stored::read).unwrap_or_default()
    }

    fn put(&self, entries: Entries) {
        let mut held = self.0.lock().unwrap();
        *held = (held.0 + 1, Some(entries));
    }
}

impl SecretStore for Memory {
    async fn read(&self) -> Result<Option<Found>, StoreError> {
        // Others may run between reading and writing.
        tokio::task::yield_now().await;
        let held = self.0.lock().unwrap();
        let mut found = Found { entries: held.1.clone().unwrap_or_default(), ..Found::default() };
        found.metadata.resource_version = Some(held.0.to_string());
        Ok(held.1.is_some().then_some(found))
    }

    async fn create(&self, entries: Entries) -> Result<Written, StoreError> {
        tokio::task::yield_now().await;
        if self.0.lock().unwrap().1.is_some() {
            return Ok(Written::Conflict);
        }
        self.put(entries);
        Ok(Written::Done)
    }

    async fn replace(&self, found: Found, entries: Entries) -> Result<Written, StoreError> {
        tokio::task::yield_now().await;
        if found.metadata.resource_version != Some(self.0.lock().unwrap().0.to_string()) {
            return Ok(Written::Conflict);
        }
        self.put(entries);
        Ok(Written::Done)
    }
}

/// What a replica serves since its last check.
#[derive(Clone, Debug)]
struct Replica {
    serving: Certificate,
    next_check: OffsetDateTime,
    /// How far its clock is off, in seconds.
    skew: i64,
}

/// One check of a replica that takes at most `steps` steps and then crashes.
fn check(store: &Memory, now: OffsetDateTime, steps: usize) -> Certificate {
    let mut stored = store.stored();
    for _ in 0..steps {
        let step = plan(&stored, &names(), now, &lifetimes());
        if step == Step::Keep {
            break;
        }
        stored = apply(step, stored, &names(), now, &lifetimes()).unwrap();
        store.put(stored.write());
        stored = store.stored();
        assert!(stored.faults.is_empty(), "{:?}", stored.faults);
    }
    stored.serving.unwrap().certificate().clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]
    #[test]
    fn what_was_published_a_while_ago_verifies_what_is_served(
        pauses in prop::collection::vec((1_i64..=3, 1_i64..=3, 1_usize..=4), 700..900),
        skews in (-60_i64..=60, -60_i64..=60),
    ) {
        let store = Memory::default();
        let mut now = start();
        let serving = check(&store, now, 9);
        let mut replicas = [skews.0, skews.1].map(|skew| Replica { serving: serving.clone(), next_check: now, skew });
        // What was published when; a client may have any of it that is not older than the propagation, less a check of each side.
        let mut published = VecDeque::from([(now, store.stored().bundle())]);
        let lag = lifetimes().propagation.saturating_sub(lifetimes().check * 2);
        let mut authorities = std::collections::BTreeSet::new();
        for (first, second, steps) in pauses {
            for (replica, pause) in replicas.iter_mut().zip([first, second]) {
                if now >= replica.next_check {
                    let clock = now + time::Duration::seconds(replica.skew);
                    replica.serving = check(&store, clock, steps);
                    replica.next_check = now + MINUTE * u32::try_from(pause).unwrap();
                }
            }
            let stored = store.stored();
            authorities.insert(stored.signer.as_ref().unwrap().certificate().pem().to_owned());
            if published.back().is_none_or(|(_, bundle)| *bundle != stored.bundle()) {
                published.push_back((now, stored.bundle()));
            }
            // Of what was published before the lag, the last is still somewhere.
            while published.len() > 1 && published[1].0 + lag <= now {
                published.pop_front();
            }
            for (at, bundle) in &published {
                for replica in &replicas {
                    prop_assert!(
                        verifies(bundle, &replica.serving, now),
                        "after {}: {:?} by what was published {} ago", now - start(), replica.serving, now - *at
                    );
                }
            }
            prop_assert!(stored.old.len() <= 1, "one rotation ends before the next begins");
            now += MINUTE;
        }
        prop_assert!(authorities.len() > 1, "at least one rotation was seen");
    }

    #[test]
    fn any_content_of_the_secret_settles_in_a_few_steps(
        kept in prop::collection::vec(any::<bool>(), 9), spoilt in prop::option::of(0_usize..9), days in -2000_i64..2000,
    ) {
        let lifetimes = Lifetimes::default();
        let mut stored = Stored::default();
        for step in [Step::Make(Cause::Empty), Step::Stage(Cause::Due), Step::Promote(Cause::Due), Step::Stage(Cause::Due)] {
            stored = apply(step, stored, &names(), start(), &lifetimes).unwrap();
        }
        let mut entries = stored.write();
        let all: Vec<String> = entries.keys().cloned().collect();
        for (index, name) in all.iter().enumerate() {
            if !kept.get(index).copied().unwrap_or(true) {
                entries.remove(name);
            } else if spoilt == Some(index) {
                entries.insert(name.clone(), zeroize::Zeroizing::new(b"not PEM".to_vec()));
            }
        }
        let now = start() + time::Duration::days(days);
        let mut stored = Stored::read(&entries);
        let mut steps = Vec::new();
        loop {
            let step = plan(&stored, &names(), now, &lifetimes);
            if step == Step::Keep {
                break;
            }
            steps.push(step);
            prop_assert!(steps.len() < 8, "{steps:?}");
            stored = Stored::read(&apply(step, stored, &names(), now, &lifetimes).unwrap().write());
            let serving = stored.serving.as_ref().is_some_and(|pair| verifies(&stored.bundle(), pair.certificate(), now));
            prop_assert!(serving || steps.len() < 2, "after {steps:?} there is nothing to serve");
        }
        let serving = stored.serving.as_ref().unwrap();
        prop_assert!(verifies(&stored.bundle(), serving.certificate(), now));
    }
}

fn settled(now: OffsetDateTime) -> Stored {
    let memory = Memory::default();
    check(&memory, now, 9);
    memory.stored()
}

fn next_step(stored: &Stored, now: OffsetDateTime) -> Step {
    plan(stored, &names(), now, &lifetimes())
}

#[test]
fn each_step_of_a_rotation_has_its_time() {
    let stored = settled(start());
    assert_eq!(next_step(&stored, start()), Step::Keep);
    assert_eq!(next_step(&stored, start() + MINUTE * 59), Step::Keep);
    assert_eq!(next_step(&stored, start() + MINUTE * 60), Step::Renew(Cause::Due));
    let staging = start() + MINUTE * 600;
    let renewed = apply(Step::Renew(Cause::Due), stored, &names(), staging, &lifetimes()).unwrap();
    assert_eq!(next_step(&renewed, staging), Step::Stage(Cause::Due));
    let staged = apply(Step::Stage(Cause::Due), renewed, &names(), staging, &lifetimes()).unwrap();
    assert_eq!(Certificate::all_from_pem(&staged.bundle()).len(), 2);
    assert_eq!(next_step(&staged, staging + MINUTE * 19), Step::Keep);
    assert_eq!(next_step(&staged, staging + MINUTE * 20), Step::Promote(Cause::Due));
    let promoted = apply(Step::Promote(Cause::Due), staged, &names(), staging + MINUTE * 20, &lifetimes()).unwrap();
    assert_eq!(Certificate::all_from_pem(&promoted.bundle()).len(), 2);
    let renewed = apply(Step::Renew(Cause::Due), promoted, &names(), staging + MINUTE * 110, &lifetimes()).unwrap();
    assert_eq!(next_step(&renewed, staging + MINUTE * 119), Step::Keep);
    assert_eq!(next_step(&renewed, staging + MINUTE * 120), Step::DropOld);
    let dropped = apply(Step::DropOld, renewed, &names(), staging + MINUTE * 120, &lifetimes()).unwrap();
    assert_eq!(Certificate::all_from_pem(&dropped.bundle()).len(), 1);
}

#[test]
fn a_lost_key_of_the_authority_interrupts_nothing() {
    let mut entries = settled(start()).write();
    entries.remove("ca.key");
    let stored = Stored::read(&entries);
    assert_eq!(stored.faults.len(), 1);
    assert_eq!(next_step(&stored, start()), Step::Stage(Cause::CannotSign));
    let staged = apply(Step::Stage(Cause::CannotSign), stored, &names(), start(), &lifetimes()).unwrap();
    assert_eq!(next_step(&staged, start() + MINUTE), Step::Keep);
    assert_eq!(next_step(&staged, start() + MINUTE * 20), Step::Promote(Cause::CannotSign));
}

#[test]
fn a_clock_that_was_wrong_is_corrected() {
    let staged = apply(Step::Stage(Cause::Due), settled(start()), &names(), start(), &lifetimes()).unwrap();
    let mut ahead = staged.clone();
    ahead.since = Some(start() + MINUTE * 500);
    assert_eq!(next_step(&ahead, start()), Step::Restamp);
    let future = apply(Step::Stage(Cause::Due), settled(start()), &names(), start() + MINUTE * 500, &lifetimes());
    assert_eq!(next_step(&future.unwrap(), start()), Step::Stage(Cause::NextUnusable));
    let all_future = settled(start() + MINUTE * 500);
    assert_eq!(next_step(&all_future, start()), Step::Make(Cause::NoAuthority));
}

#[test]
fn replicas_with_different_names_do_not_renew_in_turns() {
    let names = |name: &str| ServingNames::new([name]).unwrap();
    let (one, two) = (names("one.test"), names("two.test"));
    let mut stored = Stored::default();
    for _ in 0..6 {
        for names in [&one, &two] {
            let step = plan(&stored, names, start(), &lifetimes());
            stored = apply(step, stored, names, start(), &lifetimes()).unwrap();
        }
    }
    assert!(stored.serving.as_ref().unwrap().certificate().names().cover(&one.and(&two)));
    assert_eq!(plan(&stored, &one, start(), &lifetimes()), Step::Keep);
    assert_eq!(plan(&stored, &two, start(), &lifetimes()), Step::Keep);
}

#[tokio::test]
async fn two_replicas_that_start_together_end_with_the_same_authority() {
    let store = Memory::default();
    let settle = || {
        let store = store.clone();
        async move { Keeper::new(store, names(), lifetimes()).settle(start).await.unwrap().bundle() }
    };
    let (one, two) = tokio::join!(settle(), settle());
    assert_eq!(one, two);
    assert_eq!(Certificate::all_from_pem(&one).len(), 1);
}

/// A store that never answers.
struct Silent;

impl SecretStore for Silent {
    async fn read(&self) -> Result<Option<Found>, StoreError> {
        std::future::pending().await
    }

    async fn create(&self, _: Entries) -> Result<Written, StoreError> {
        std::future::pending().await
    }

    async fn replace(&self, _: Found, _: Entries) -> Result<Written, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_times_out() {
    let mut keeper = Keeper::new(Silent, names(), lifetimes());
    assert!(matches!(keeper.settle(start).await, Err(KeepError::TooSlow)));
}

#[test]
fn debug_output_has_no_key() {
    let stored = settled(start());
    let key = stored.serving.as_ref().unwrap().key_pem().lines().nth(1).unwrap().to_owned();
    assert!(!format!("{stored:?}").contains(&key));
}
