//! Years of rotation by a simulated clock: clients that trust an authority that was published long ago accept the
//! serving certificate. No other client does.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nudge_cluster::call::CallError;
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::resolver::NewestCertificate;
use super::*;

const MINUTE: Duration = Duration::from_mins(1);
const YEAR: Duration = Duration::from_hours(365 * 24);

/// A rotation every 600 minutes.
fn lifetimes() -> Lifetimes {
    Lifetimes { authority: MINUTE * 900, certificate: MINUTE * 90, grace: MINUTE * 30, check: MINUTE * 3 }
        .checked()
        .unwrap()
}

fn names() -> ServingNames {
    ServingNames::new(["hub.test"]).unwrap()
}

fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

fn unix(now: OffsetDateTime) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now.unix_timestamp().try_into().unwrap()))
}

fn roots(anchors: &[Certificate]) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for anchor in anchors {
        roots.add(anchor.der().clone()).unwrap();
    }
    Arc::new(roots)
}

/// Whether an agent that trusts `anchors` accepts the serving certificate at time `now`.
fn verifies(anchors: &[Certificate], serving: &Pair, now: OffsetDateTime) -> bool {
    if anchors.is_empty() {
        return false;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(anchors), Arc::new(default_provider()));
    let name = ServerName::try_from("hub.test").unwrap();
    let chain: Vec<_> = serving.chain().iter().map(|certificate| certificate.der().clone()).collect();
    verifier.build().unwrap().verify_server_cert(serving.certificate().der(), &chain, &name, &[], unix(now)).is_ok()
}

/// Whether the API server does. Unlike webpki, Go looks at the dates and the path lengths of an authority.
fn api_server_verifies(bundle: &[Certificate], serving: &Pair, now: OffsetDateTime) -> bool {
    let valid: Vec<_> = bundle.iter().filter(|authority| authority.is_valid_at(now)).cloned().collect();
    verifies(&valid, serving, now)
}

#[derive(Debug)]
struct At(OffsetDateTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix(self.0))
    }
}

/// A whole handshake of an agent that trusts `anchors`, as the agent sets up its client.
fn connects(anchors: &[Certificate], serving: &Pair, now: OffsetDateTime) -> Result<(), rustls::Error> {
    let provider = Arc::new(default_provider());
    let client = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(At(now)));
    let client = client.with_safe_default_protocol_versions()?.with_root_certificates(roots(anchors));
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let server = server
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(NewestCertificate::new(serving.certified_key().unwrap())));
    let name = ServerName::try_from("hub.test").unwrap();
    let mut client = Connection::from(ClientConnection::new(Arc::new(client.with_no_client_auth()), name)?);
    let mut server = Connection::from(ServerConnection::new(Arc::new(server))?);
    while client.is_handshaking() || server.is_handshaking() {
        pass(&mut client, &mut server)?;
        pass(&mut server, &mut client)?;
    }
    Ok(())
}

fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), rustls::Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut bytes = &bytes[..];
    while !bytes.is_empty() {
        to.read_tls(&mut bytes).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

/// A Secret in memory, with versions as the API server counts them.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<(u64, Entries)>>);

impl Memory {
    fn entries(&self) -> Entries {
        self.0.lock().unwrap().1.clone()
    }

    fn put(&self, entries: Entries) {
        let mut held = self.0.lock().unwrap();
        *held = (held.0 + 1, entries);
    }
}

impl SecretStore for Memory {
    async fn read(&self) -> Result<StoredSecret, StoreError> {
        // Others may run between reading and writing.
        tokio::task::yield_now().await;
        let held = self.0.lock().unwrap();
        let mut found = StoredSecret { entries: held.1.clone(), ..StoredSecret::default() };
        found.metadata.resource_version = Some(held.0.to_string());
        Ok(found)
    }

    async fn replace(&self, found: StoredSecret, entries: Entries) -> Result<WriteOutcome, StoreError> {
        tokio::task::yield_now().await;
        if found.metadata.resource_version != Some(self.0.lock().unwrap().0.to_string()) {
            return Ok(WriteOutcome::Conflict);
        }
        self.put(entries);
        Ok(WriteOutcome::Done)
    }
}

/// Both Secrets.
#[derive(Clone, Debug, Default)]
struct Secrets {
    authority: Memory,
    serving: Memory,
}

impl Secrets {
    fn stored(&self) -> Stored {
        Stored::read(&self.authority.entries(), &self.serving.entries())
    }

    fn serving(&self) -> Pair {
        self.stored().serving.unwrap()
    }

    /// The trust anchors that are injected into pods.
    fn anchors(&self) -> Vec<Certificate> {
        self.stored().published
    }

    fn stores(&self) -> Stores<Memory> {
        Stores { authority: self.authority.clone(), serving: self.serving.clone() }
    }

    /// One check that takes at most `steps` steps and then crashes.
    fn check(&self, now: OffsetDateTime, steps: usize) {
        for _ in 0..steps {
            let stored = self.stored();
            assert!(stored.faults.is_empty(), "{:?}", stored.faults);
            let step = next_step(&stored, now);
            if step == Step::Keep {
                break;
            }
            let done = apply(step, stored, &names(), now, &lifetimes()).unwrap();
            match step {
                Step::Make(_) | Step::Rotate(_) | Step::DropOld => self.authority.put(done.authority_entries()),
                _ => self.serving.put(done.serving_entries()),
            }
        }
    }

    fn settled(now: OffsetDateTime) -> Self {
        let secrets = Self::default();
        secrets.check(now, 9);
        secrets
    }

    /// Takes every step in its time, from one moment to another.
    fn run(&self, from: OffsetDateTime, to: OffsetDateTime) {
        let mut now = from;
        while now < to {
            self.check(now, 9);
            now += MINUTE * 5;
        }
        self.check(to, 9);
    }
}

fn next_step(stored: &Stored, now: OffsetDateTime) -> Step {
    plan(stored, &names(), now, &lifetimes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, ..ProptestConfig::default() })]
    #[test]
    fn what_was_injected_two_authorities_lives_ago_verifies_what_is_served(
        pauses in prop::collection::vec((1_u32..=3, 1_u32..=3, 1_usize..=3), 900..1100),
        skews in (-60_i64..=60, -60_i64..=60),
    ) {
        const TICK_INTERVAL: Duration = Duration::from_mins(5);
        let secrets = Secrets::default();
        let mut now = start();
        secrets.check(now, 9);
        let mut next_checks = [now, now];
        // Each with the moment until which pods were injected with it; a server and the API server may lag a tick
        // behind.
        let mut injected = VecDeque::from([(now, secrets.anchors())]);
        let (mut served, mut bundle) = (secrets.serving(), secrets.stored().authorities());
        let mut authorities = std::collections::BTreeSet::new();
        for (tick, (first, second, steps)) in pauses.into_iter().enumerate() {
            for ((next, pause), skew) in next_checks.iter_mut().zip([first, second]).zip([skews.0, skews.1]) {
                if now >= *next {
                    secrets.check(now + time::Duration::seconds(skew), steps);
                    *next = now + TICK_INTERVAL * pause;
                }
            }
            let stored = secrets.stored();
            authorities.insert(stored.signer.as_ref().unwrap().certificate().pem().to_owned());
            match injected.back_mut() {
                Some((until, anchors)) if *anchors == stored.published => *until = now,
                _ => injected.push_back((now, stored.published.clone())),
            }
            injected.retain(|(until, _)| now - *until < lifetimes().authority * 2);
            for pair in [&served, &secrets.serving()] {
                prop_assert!(pair.chain().len() <= MAX_CROSSES as usize);
                for (until, anchors) in injected.iter().filter(|_| tick % 3 == 0) {
                    prop_assert!(
                        verifies(anchors, pair, now),
                        "after {}: what was injected {} ago", now - start(), now - *until
                    );
                }
                for bundle in [&bundle, &stored.authorities()] {
                    prop_assert!(api_server_verifies(bundle, pair, now), "after {}: the API server", now - start());
                }
            }
            prop_assert!(stored.old.len() <= 1, "one rotation ends before the next begins");
            let trust = Trust::of(pair_of(&stored), &stored.published, now).unwrap().pods.unwrap();
            prop_assert!(now - trust.since >= (lifetimes().authority * 2).min(Duration::try_from(now - start()).unwrap()));
            (served, bundle) = (secrets.serving(), stored.authorities());
            now += TICK_INTERVAL;
        }
        prop_assert!(authorities.len() > 6, "only {} authorities were seen", authorities.len());
    }

    #[test]
    fn any_content_of_the_secrets_settles_in_a_few_steps(
        kept in prop::collection::vec(any::<bool>(), 7), spoilt in prop::option::of(0_usize..7), days in -2000_i64..2000,
    ) {
        let lifetimes = Lifetimes::default();
        let mut stored = Stored::default();
        for step in [Step::Make(Cause::Empty), Step::Renew(Cause::NoServing), Step::Rotate(Cause::Due), Step::Publish] {
            stored = apply(step, stored, &names(), start(), &lifetimes).unwrap();
        }
        let mut entries = [stored.authority_entries(), stored.serving_entries()];
        let mut index = 0;
        for secret in &mut entries {
            for name in secret.keys().cloned().collect::<Vec<_>>() {
                if !kept[index] {
                    secret.remove(&name);
                } else if spoilt == Some(index) {
                    secret.insert(name, Zeroizing::new(b"not PEM".to_vec()));
                }
                index += 1;
            }
        }
        prop_assert_eq!(index, 7);
        let now = start() + time::Duration::days(days);
        let mut stored = Stored::read(&entries[0], &entries[1]);
        let mut steps = Vec::new();
        loop {
            let step = plan(&stored, &names(), now, &lifetimes);
            if step == Step::Keep {
                break;
            }
            steps.push(step);
            prop_assert!(steps.len() < 8, "{steps:?}");
            let done = apply(step, stored, &names(), now, &lifetimes).unwrap();
            stored = Stored::read(&done.authority_entries(), &done.serving_entries());
        }
        prop_assert!(verifies(&stored.published, pair_of(&stored), now), "after {steps:?}");
        prop_assert!(api_server_verifies(&stored.authorities(), pair_of(&stored), now), "after {steps:?}");
    }

    #[test]
    fn clocks_that_jump_and_come_back_cut_no_agent_off(years in prop_oneof![-20_i64..=-1, 1_i64..=20], minutes in 0_u32..600) {
        let secrets = Secrets::settled(start());
        let before = secrets.anchors();
        let now = start() + MINUTE * minutes;
        secrets.run(start(), now);
        secrets.check(now + time::Duration::days(365 * years), 9);
        let meanwhile = secrets.anchors();
        secrets.check(now + MINUTE, 9);
        let crosses = secrets.stored().cross_certificates.len();
        for at in [now + MINUTE, now + MINUTE * 500] {
            secrets.run(now + MINUTE, at);
            for anchors in [&before, &meanwhile, &secrets.anchors()] {
                connects(anchors, &secrets.serving(), at).unwrap();
            }
            prop_assert!(api_server_verifies(&secrets.stored().authorities(), &secrets.serving(), at));
            prop_assert_eq!(secrets.stored().cross_certificates.len(), crosses, "one jump makes two authorities at most");
        }
    }
}

fn pair_of(stored: &Stored) -> &Pair {
    stored.serving.as_ref().unwrap()
}

#[test]
fn agents_of_the_last_authorities_connect_and_older_ones_do_not() {
    let secrets = Secrets::settled(start());
    let mut injected = vec![secrets.anchors()];
    let mut now = start();
    for round in 1..=6 {
        // When the next authority was made, has signed, and stands alone.
        let then = start() + MINUTE * (600 * round + 110);
        secrets.run(now, then);
        now = then;
        injected.push(secrets.anchors());
        let serving = secrets.serving();
        assert_eq!(secrets.anchors().len(), 1, "the one before is no longer published");
        for (age, anchors) in injected.iter().rev().enumerate() {
            let connected = connects(anchors, &serving, now);
            assert_eq!(connected.is_ok(), age <= MAX_CROSSES as usize, "round {round}, age {age}: {connected:?}");
        }
    }
}

#[test]
fn each_step_of_a_rotation_has_its_time() {
    let secrets = Secrets::settled(start());
    let steps = |at: u32| {
        let now = start() + MINUTE * at;
        let step = next_step(&secrets.stored(), now);
        secrets.check(now, 1);
        step
    };
    let published = || secrets.anchors().len();
    assert_eq!(steps(0), Step::Keep);
    assert_eq!(steps(59), Step::Keep);
    assert_eq!(steps(60), Step::Renew(Cause::Due));
    secrets.run(start(), start() + MINUTE * 599);
    assert_eq!(steps(600), Step::Rotate(Cause::Due));
    assert_eq!((steps(600), published()), (Step::Publish, 2), "both are trusted before the next is used");
    let end = secrets.serving().certificate().not_after();
    let left = u32::try_from((end - start()).whole_minutes()).unwrap();
    assert_eq!(steps(left - 16), Step::Keep, "it changes to the next authority when a sixth is left");
    assert_eq!(steps(left - 15), Step::Renew(Cause::Due));
    assert_eq!(secrets.serving().chain().len(), 1);
    assert_eq!(steps(left - 15 + 29), Step::Keep);
    assert_eq!(steps(left - 15 + 30), Step::DropOld, "every server has had time to take it");
    assert_eq!((steps(left - 15 + 30), published()), (Step::Publish, 1));
}

#[test]
fn a_lost_authority_cuts_agents_off_only_when_its_last_certificate_ends() {
    for damage in ["ca.key", "all"] {
        let secrets = Secrets::settled(start());
        let before = secrets.anchors();
        let mut entries = secrets.authority.entries();
        if damage == "all" {
            entries.clear();
        } else {
            entries.remove(damage);
        }
        secrets.authority.put(entries);
        let stored = secrets.stored();
        let cause = if damage == "all" { Cause::NoAuthority } else { Cause::CannotSign };
        assert_eq!(next_step(&stored, start()), Step::Make(cause), "{damage}");
        let done = apply(Step::Make(cause), stored, &names(), start(), &lifetimes()).unwrap();
        secrets.authority.put(done.authority_entries());
        // Pods that are injected from now on trust both, so that those from before can be restarted in time.
        secrets.check(start(), 9);
        assert_eq!(secrets.anchors().len(), 2);
        let now = start() + MINUTE * 74;
        secrets.run(start(), now);
        for anchors in [&before, &secrets.anchors()] {
            connects(anchors, &secrets.serving(), now).unwrap();
        }
        let trust = Trust::of(&secrets.serving(), &secrets.anchors(), now).unwrap();
        assert_eq!(trust.pods.unwrap().since, start());
        let meanwhile = secrets.anchors();
        let now = start() + MINUTE * 75;
        secrets.check(now, 9);
        connects(&before, &secrets.serving(), now).unwrap_err();
        connects(&meanwhile, &secrets.serving(), now).unwrap();
        assert!(api_server_verifies(&secrets.stored().authorities(), &secrets.serving(), now));
    }
}

#[test]
fn unrelated_and_expired_certificates_are_refused() {
    let (secrets, other) = (Secrets::settled(start()), Secrets::settled(start()));
    let first = secrets.anchors();
    let now = start() + MINUTE * 720;
    for secrets in [&secrets, &other] {
        secrets.run(start(), now);
    }
    let serving = secrets.serving();
    connects(&first, &serving, now).unwrap();
    connects(&other.anchors(), &serving, now).unwrap_err();
    connects(&first, &other.serving(), now).unwrap_err();
    // The chain of one authority with the certificate of the other authority.
    connects(&first, &other.serving().with_chain(serving.chain().to_vec()), now).unwrap_err();
    // Without the cross certificate.
    connects(&first, &serving.clone().with_chain(Vec::new()), now).unwrap_err();
    connects(&first, &serving, serving.certificate().not_after() + MINUTE).unwrap_err();
    // A cross certificate that has expired, under a serving certificate that has not.
    let signer = secrets.stored().signer.unwrap();
    let later = now + lifetimes().cross() + MINUTE;
    let long = Lifetimes { authority: YEAR * 30, certificate: YEAR, ..Lifetimes::default() };
    let foreign = signer.able().unwrap().make_serving(&names(), now, &lifetimes()).unwrap();
    connects(&first, &foreign.with_chain(serving.chain().to_vec()), now).unwrap();
    let authority = Authority::make(now, &long).unwrap();
    let (next, cross) =
        authority.make_next(now, &Lifetimes { authority: MINUTE, certificate: MINUTE, ..long }).unwrap();
    let short = next.make_serving(&names(), now, &long).unwrap().with_chain(vec![cross.clone()]);
    connects(&[authority.certificate().clone()], &short, now).unwrap();
    assert!(!cross.is_valid_at(later));
    connects(&[authority.certificate().clone()], &short, cross.not_after() + MINUTE).unwrap_err();
}

#[test]
fn an_authority_of_the_same_name_with_another_key_is_refused() {
    let secrets = Secrets::settled(start());
    let first = secrets.anchors();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, first[0].common_name().unwrap());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let forged = params.self_signed(&key).unwrap();
    let forger = Authority::from_pem(&forged.pem(), Zeroizing::new(key.serialize_pem())).unwrap();
    let serving = forger.make_serving(&names(), start(), &lifetimes()).unwrap();
    let chain = vec![forger.certificate().clone(), first[0].clone()];
    connects(&first, &serving.with_chain(chain), start()).unwrap_err();
}

#[test]
fn a_serving_key_can_sign_for_nobody() {
    let secrets = Secrets::settled(start());
    let serving = secrets.serving();
    let issuer = Issuer::from_ca_cert_der(serving.certificate().der(), KeyPair::from_pem(serving.key_pem()).unwrap());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["hub.test".to_owned()]).unwrap();
    let forged = params.signed_by(&key, &issuer.unwrap()).unwrap();
    let pair = Pair::from_pem(&forged.pem(), Zeroizing::new(key.serialize_pem())).unwrap();
    let pair = pair.with_chain(vec![serving.certificate().clone()]);
    connects(&secrets.anchors(), &pair, start()).unwrap_err();
}

#[tokio::test]
async fn two_processes_that_start_together_end_with_the_same_authority() {
    let secrets = Secrets::default();
    let settle = || {
        let stores = secrets.stores();
        async move { Keeper::new(stores, names(), lifetimes()).settle(start).await.unwrap().bundle() }
    };
    let (one, two) = tokio::join!(settle(), settle());
    assert_eq!(one, two);
    assert_eq!(Certificate::all_from_pem(&one).len(), 1);
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
    assert!(pair_of(&stored).certificate().names().cover(&one.and(&two)));
    assert_eq!(plan(&stored, &one, start(), &lifetimes()), Step::Keep);
    assert_eq!(plan(&stored, &two, start(), &lifetimes()), Step::Keep);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let secret = || KubeSecret::new(client.clone(), "nudge-system", "certificates");
    let mut keeper = Keeper::new(Stores { authority: secret(), serving: secret() }, names(), lifetimes());
    let silent = keeper.settle(start).await.unwrap_err();
    assert!(matches!(silent, KeepError::Store(StoreError::Call(CallError::Timeout { .. }))), "{silent}");
}

#[test]
fn pods_that_lose_their_trust_soon_are_known() {
    let year = |count: u32| start() + YEAR * count;
    let lifetimes = Lifetimes::default();
    let mut stored = Stored::default();
    let mut run = |from: u32, to: u32| {
        let mut now = year(from);
        while now < year(to) {
            while let step @ (Step::Make(_) | Step::Rotate(_) | Step::Renew(_) | Step::Publish | Step::DropOld) =
                plan(&stored, &names(), now, &lifetimes)
            {
                stored = apply(step, stored.clone(), &names(), now, &lifetimes).unwrap();
            }
            now += Duration::from_hours(24 * 5);
        }
        Trust::of(pair_of(&stored), &stored.published, now).unwrap()
    };
    let first = run(0, 3).pods.unwrap();
    assert_eq!((first.since, first.lasting_since), (start(), start()));
    // Six years after the first rotation, the trust anchors of the first authority's pods expire soon.
    let later = run(3, 8).pods.unwrap();
    assert_eq!(later.since, start());
    assert!(later.lasting_since > year(1), "{later:?}");
    let gone = run(8, 9).pods.unwrap();
    assert!(gone.since > year(1) && gone.since <= year(3), "{gone:?}");
}

#[test]
fn debug_output_has_no_key() {
    let stored = Secrets::settled(start()).stored();
    let serving = pair_of(&stored).key_pem().lines().nth(1).unwrap().to_owned();
    let signer = stored.signer.as_ref().unwrap().able().unwrap().key_pem().lines().nth(1).unwrap().to_owned();
    let debug = format!("{stored:?}");
    assert!(!debug.contains(&serving) && !debug.contains(&signer));
}
