//! A pod that nobody creates: a client that reaches the port makes up its review. Here is exactly what the answer
//! discloses of a namespace.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Secret};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind, hub_ca};
use nudge_tests::{Raw, Replica, agent::tls, eventually};
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::pods::injecting_cluster::{InjectingCluster, WAIT_TIMEOUT, config_map, create, dry, opted_in};

/// Values that are nowhere else, and a key.
const HIDDEN: [&str; 4] = ["value-Zk3xQ8vT1m", "pin-pW7nJ4hR9c", "plain-bY6sL2dG5f", "hidden_key"];

/// Who makes up more pods than others.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How many connections it uses, and how many ConfigMaps each of its pods references: as many as Nudge looks up.
const MAX_CONCURRENT_REQUESTS: usize = 20;
const MAX_REFERENCES: usize = 64;

struct Attack<'a> {
    replica: &'a Replica,
    tls: Arc<ClientConfig>,
    namespace: &'a str,
}

impl<'a> Attack<'a> {
    async fn on(injecting: &'a InjectingCluster, space: &'a TestNamespace) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = folder.path().join("ca.crt");
        std::fs::write(&authority, hub_ca(space).await?)?;
        Ok(Self { replica: injecting.replica, tls: tls::trusting(&authority)?, namespace: &space.name })
    }

    /// Returns the answer to the review of a pod with this annotation `nudge.dev/configs`, whose container names these
    /// ConfigMaps.
    async fn review_pod(&self, configs: &str, maps: &[&str], account: &str) -> Result<Answer> {
        // A look-up has 600 ms, which a machine that has much else to do may need.
        let answered = async || self.asks_from(Ipv4Addr::LOCALHOST, configs, maps, account).await.ok();
        Answer::of(&eventually(WAIT_TIMEOUT, "the review is answered", answered).await?)
    }

    async fn asks_from(&self, from: Ipv4Addr, configs: &str, maps: &[&str], account: &str) -> Result<Value> {
        let sources: Vec<Value> = maps.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
        let resources = json!({"requests": {"memory": "80Mi"}});
        let app = json!({"name": "app", "image": "a", "envFrom": sources, "resources": resources});
        let annotations = if configs.is_empty() { json!({}) } else { json!({"nudge.dev/configs": configs}) };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "made-up", "labels": {"nudge.dev/inject": "true"}, "annotations": annotations},
            "spec": {"serviceAccountName": account, "containers": [app]},
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "name": "made-up", "operation": "CREATE",
                "namespace": self.namespace, "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
                "object": pod,
            },
        })
        .to_string();
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let address = self.replica.admission;
        let mut raw = Raw::over(socket.connect(address).await?, address.ip(), &self.tls).await?;
        let length = review.len();
        raw.send(format!("POST /mutate/pods HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{review}")).await?;
        let reply = raw.reply().await?;
        ensure!(reply.status == 200, "{reply:?}");
        Ok(serde_json::from_slice(&reply.body)?)
    }
}

/// All that an answer says.
#[derive(Debug)]
struct Answer {
    allowed: bool,
    /// Every text of the patch, the warnings and the refusal.
    texts: BTreeSet<String>,
}

impl Answer {
    fn of(review: &Value) -> Result<Self> {
        let mut response = review["response"].clone();
        if let Some(patch) = response["patch"].as_str() {
            response["patch"] = serde_json::from_slice(&BASE64_STANDARD.decode(patch)?)?;
        }
        let (mut texts, all) = (BTreeSet::new(), response.to_string());
        for hidden in HIDDEN {
            // The beginning of the base64 form is the same wherever the value ends.
            let encoded = BASE64_STANDARD.encode(hidden);
            ensure!(!all.contains(hidden) && !all.contains(&encoded[..12]), "{hidden} is disclosed: {all}");
        }
        ensure!(!all.contains("hmac"), "the digest of a Secret is disclosed: {all}");
        collect(&response, &mut texts);
        // The path of a mounted part has the digest of a ConfigMap, and of a Secret none.
        let is_known = |text: &&String| !text.contains("sha256") || text.starts_with("/run/nudge/bootstrap/shop/");
        ensure!(texts.iter().all(|text| is_known(&text)), "a digest is disclosed: {all}");
        Ok(Self { allowed: response["allowed"] == true, texts })
    }

    /// Returns what is only in this one.
    fn more_than<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        self.texts.difference(&other.texts).map(String::as_str).collect()
    }
}

fn collect(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(texts.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, texts)),
        _ => {}
    }
}

/// A config of a Secret that only `owner` may have, one of ConfigMaps for everybody, and a ConfigMap that is no config.
async fn tenant(space: &TestNamespace) -> Result<()> {
    bind(space, "nudge-secrets").await?;
    let meta = |config: &str, name: &str| json!({"name": name, "labels": {"nudge.dev/config": config, "nudge.dev/version": "1"}});
    let data = |value: &str| json!({"hidden_key": value});
    let secret = json!({"metadata": meta("keys", "keys-1"), "immutable": true, "stringData": data(HIDDEN[0])});
    space.create_object::<Secret>(secret).await?;
    let map = json!({"metadata": meta("shop", "shop-1"), "immutable": true, "data": data(HIDDEN[1])});
    space.create_object::<ConfigMap>(map).await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "plain"}, "data": data(HIDDEN[2])})).await?;
    let base = json!({"name": "base", "labels": {"nudge.dev/baseline": "true"}});
    space.create_object::<ConfigMap>(json!({"metadata": base, "data": data(HIDDEN[2])})).await?;
    let range =
        json!({"metadata": {"name": "range"}, "spec": {"limits": [{"type": "Container", "min": {"memory": "77Mi"}}]}});
    space.create_object::<LimitRange>(range).await?;
    for (name, subscribers) in [("keys", Some(["owner"])), ("shop", None)] {
        let spec = json!({"version": "1", "rollout": at_once(), "allowedServiceAccounts": subscribers});
        space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": spec})).await?;
        let configs = space.api::<VersionedConfig>();
        let current = async || configs.get(name).await.ok()?.status?.current_version;
        eventually(WAIT_TIMEOUT, &format!("{name} has a version"), current).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_made_up_pod_learns_names_and_no_value() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let (space, bare) =
        (injecting.installation.enabled("tenant").await?, injecting.installation.enabled("bare").await?);
    tenant(&space).await?;
    let (attack, elsewhere) = (Attack::on(injecting, &space).await?, Attack::on(injecting, &bare).await?);
    let review_pod = async |configs: &str, maps: &[&str], account: &str| {
        let (here, there) =
            (attack.review_pod(configs, maps, account).await?, elsewhere.review_pod(configs, maps, account).await?);
        Ok::<_, anyhow::Error>((here, there))
    };

    // The names and digests of the parts of the current version, and the version, which stand in paths.
    let mounts = async || {
        let (here, _) = review_pod("shop", &[], "any").await.ok()?;
        (here.texts.contains("shop-1") && here.texts.contains("77Mi")).then_some(())
    };
    eventually(WAIT_TIMEOUT, "the webhook knows the version and the LimitRange", mounts).await?;
    let (here, there) = review_pod("shop", &[], "any").await?;
    ensure!(here.allowed && there.allowed, "{here:?} {there:?}");
    let disclosed = [
        "/run/nudge/bootstrap",
        "/run/nudge/bootstrap/shop/1/1",
        "77Mi",
        "NUDGE_BOOTSTRAP_DIR",
        "nudge-bootstrap-1",
        "shop-1",
    ];
    let texts: Vec<&str> =
        here.more_than(&there).into_iter().map(|text| text.split(".sha256-").next().unwrap_or(text)).collect();
    assert_eq!(texts, disclosed);

    // Whether the service account is among the subscribers, and only then the name of a Secret.
    let read = async || {
        review_pod("keys", &[], "owner").await.ok().filter(|(here, _)| here.texts.contains("keys-1")).map(drop)
    };
    eventually(WAIT_TIMEOUT, "the webhook knows that Secrets are allowed", read).await?;
    let (stranger, _) = review_pod("keys", &[], "stranger").await?;
    ensure!(!stranger.allowed && !stranger.texts.iter().any(|text| text.contains("keys-1")), "{stranger:?}");

    // Whether a ConfigMap exists, by its name, and nothing of it.
    let (here, there) = review_pod("", &["plain"], "any").await?;
    ensure!(!here.allowed && !there.allowed, "{here:?} {there:?}");
    let says_it = |answer: &Answer, part: &str| answer.texts.iter().any(|text| text.contains(part));
    ensure!(says_it(&here, "if a ConfigMap of theirs (plain) is to become one"), "{here:?}");
    ensure!(says_it(&there, "its containers use ConfigMap plain, which does not exist"), "{there:?}");
    let (here, there) = review_pod("", &["base", "plain"], "any").await?;
    ensure!(here.allowed && !there.allowed, "{here:?} {there:?}");
    let shop = review_pod("shop", &[], "any").await?.0;
    let forged_reviews = [
        "/metadata/annotations/nudge.dev~1warnings",
        "ConfigMaps that are not configs, and do not become configs by themselves: plain",
        "base",
    ];
    assert_eq!(here.more_than(&shop), forged_reviews);
    Ok(())
}

/// What a made-up pod references is looked up at the API server. One client can't make Nudge ask as often as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_pods_of_one_address_use_up_only_its_own_rate() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.installation.enabled("asked").await?;
    let attack = Attack::on(injecting, &space).await?;
    // More pods of one workload than there may be questions: they share the answer.
    config_map(&space).await?;
    let pod = opted_in("many");
    for _ in 0..11 {
        try_join_all((0..50).map(|_| dry(&space, &pod))).await?;
    }
    // Other ones over each connection: one flood requests more than the rate allows at once, also on a slow machine.
    let names = |at: usize| (0..MAX_REFERENCES).map(|number| format!("absent-{at}-{number}")).collect::<Vec<String>>();
    let absent: Vec<Vec<String>> = (0..MAX_CONCURRENT_REQUESTS).map(names).collect();
    let absent: Vec<Vec<&str>> = absent.iter().map(|names| names.iter().map(String::as_str).collect()).collect();
    let flood = async || {
        let reviews = absent.iter().map(|names| attack.asks_from(HOSTILE, "", names, "any"));
        join_all(reviews).await.into_iter().flatten().find(|review| review["response"]["status"]["code"] == 429)
    };
    let refused = eventually(WAIT_TIMEOUT, "it asks too often", flood).await?;
    let message = refused["response"]["status"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("the reviews of 127.0.0.2 make Nudge ask the API server more than"), "{message}");
    // While it continues, the API server creates pods, each of which references a ConfigMap that was never looked up.
    let created = async {
        for number in 0..30 {
            let name = format!("shop-{number}");
            let map = json!({"metadata": {"name": name, "labels": {"nudge.dev/baseline": "true"}}, "data": {"a": "b"}});
            space.create_object::<ConfigMap>(map).await?;
            let mut pod = opted_in(&name);
            pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": name}}]);
            // As a controller does, which tries again.
            eventually(WAIT_TIMEOUT, "the pod is created", async || create(&space, &pod).await.ok()).await?;
        }
        Ok(())
    };
    let attack = async {
        loop {
            flood().await;
        }
    };
    tokio::select! {
        created = created => created,
        () = attack => Ok(()),
    }
}
