//! Reviews that no API server has sent: any client that reaches the port can post them in any user's name, and learns
//! nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use nudge_api::VersionedConfig;
use nudge_core::derived_keys::ContentKey;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Seals, part_digest};
use nudge_tests::cluster::TestNamespace;
use serde_json::{Value, json};

use crate::guarded_cluster::{GuardedCluster, config, part, sealed};
use crate::server::WebhookClient;

/// Nobody's digest.
const OTHER: &str = "seal:0000";
/// The identity of the config.
const IDENTITY: &str = "0af7651cd43b41d58e2f0123456789ab";

pub(crate) fn review(kind: &str, operation: &str, namespace: &str, object: &Value) -> Value {
    let (group, version) = if kind == "VersionedConfig" { ("nudge.dev", "v1alpha1") } else { ("", "v1") };
    let (old, new) = if operation == "DELETE" { (object, &Value::Null) } else { (&Value::Null, object) };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": "any"},
            "name": object["metadata"]["name"], "namespace": namespace, "operation": operation,
            "userInfo": {"username": "system:admin", "groups": ["system:masters"]}, "oldObject": old, "object": new,
        }
    })
}

struct Attack(WebhookClient);

impl Attack {
    fn on(guarded: &GuardedCluster) -> Result<Self> {
        Ok(Self(WebhookClient::new(&guarded.authority, guarded.server.address())?))
    }

    /// The status line and the body of the answer.
    async fn post(&self, path: &str, review: &Value) -> Result<(String, String)> {
        let answer = self.0.ask(path, &review.to_string()).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
    }

    /// The answers to all of these, which must be one and the same.
    async fn same(&self, path: &str, reviews: &[Value]) -> Result<String> {
        let first = self.post(path, &reviews[0]).await?;
        for review in &reviews[1..] {
            ensure!(self.post(path, review).await? == first, "{path}: {review} is answered otherwise than {first:?}");
        }
        Ok(first.1)
    }
}

fn secret(name: &str, version: &str, pin: &str) -> Value {
    use base64::Engine as _;
    let labels = json!({"nudge.dev/config": "keys", "nudge.dev/version": version});
    let pin = base64::engine::general_purpose::STANDARD.encode(pin);
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels},
        "type": "Opaque", "immutable": true, "data": {"pin": pin},
    })
}

/// A config `keys`: version 1 is current, its Secret sealed under its name; version 0 was deleted.
async fn tenant(guarded: &GuardedCluster) -> Result<TestNamespace> {
    let space = guarded.space("tenant").await?;
    let own = space.create_object::<Secret>(secret("hidden-name", "1", "4711")).await?;
    let key = ContentKey::new(b"key of the tests");
    let keyed = part_digest(&[("pin".to_owned(), b"4711".to_vec())].into(), Some(&key));
    let identity = Identity::parse(IDENTITY).context("no identity")?;
    let seals = Seals::new(&key, &ConfigKey::parse(&space.name, "keys")?, identity);
    let [gone, there] = ["0", "1"].map(|version| seals.seal(version, 1, &keyed));
    let part = json!({"kind": "Secret", "name": "hidden-name", "uid": own.metadata.uid, "digest": there});
    let version = json!({"version": "1", "state": "Current", "keys": 1, "bytes": 4, "parts": [part]});
    let retired = json!([{"version": "0", "digests": [gone]}, {"version": "9", "digests": [OTHER]}]);
    let status = json!({
        "currentVersion": "1", "versions": [version], "internal": {"identity": IDENTITY, "retired": retired},
    });
    config(&space, "keys", json!({"version": "1"}), status).await?;
    guarded.subscribe(&space, "keys", 3);
    Ok(space)
}

#[tokio::test]
async fn no_answer_reveals_the_content_or_name_of_a_secret() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let (attack, space) = (Attack::on(guarded)?, tenant(guarded).await?);
    let create = |object: Value| review("Secret", "CREATE", &space.name, &object);
    // Of the current version, of one that was deleted, of one that never was; right and wrong.
    let mut guesses = Vec::new();
    for version in ["1", "0", "9", "7"] {
        for name in ["hidden-name", "guess"] {
            guesses.extend(["4711", "4712"].map(|pin| create(secret(name, version, pin))));
        }
    }
    let answer = attack.same("/validate/versions", &guesses).await?;
    ensure!(answer.contains("\"allowed\":true"), "{answer}");
    for guess in &guesses {
        // The mark covers the content of the request, and says nothing about the stored content.
        let (status, answer) = attack.post("/mutate/versions", guess).await?;
        ensure!(status.contains("200") && !answer.contains("warnings"), "{answer}");
    }

    // Of deletions without the uid.
    let mut named = secret("hidden-name", "1", "4711");
    let mut deletions = Vec::new();
    for (name, uid) in
        [("hidden-name", json!(null)), ("hidden-name", json!("0")), ("guess", json!(null)), ("guess", json!(""))]
    {
        named["metadata"]["name"] = json!(name);
        named["metadata"]["uid"] = uid;
        deletions.push(review("Secret", "DELETE", &space.name, &named));
    }
    attack.same("/validate/versions", &deletions).await?;
    let gone = |name: &str, uid: Value| {
        let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name, "uid": uid}, "spec": {}});
        review("VersionedConfig", "DELETE", &space.name, &object)
    };
    let configs =
        [gone("keys", json!(null)), gone("keys", json!("0")), gone("guess", json!(null)), gone("guess", json!("0"))];
    attack.same("/validate/configs", &configs).await?;

    // A client that knows the uid has read the object, and learns only about that object.
    let stored = space.api::<VersionedConfig>().get("keys").await?;
    let (_, answer) = attack.post("/validate/configs", &gone("keys", json!(stored.uid()))).await?;
    ensure!(answer.contains("because 3 pods use it") && !answer.contains("hidden-name"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn what_is_not_enabled_is_as_if_it_were_not_there() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let attack = Attack::on(guarded)?;
    let foreign = guarded.cluster.space("foreign").await?;
    let own = foreign.create_object::<ConfigMap>(part("a")).await?;
    let status = json!({"currentVersion": "1.0.1", "versions": [sealed("1.0.1", &[&own])]});
    config(&foreign, "shop", json!({}), status).await?;
    let (mut object, mut config) = (part("a"), json!({"metadata": {"name": "shop"}, "spec": {}}));
    object["metadata"]["uid"] = json!(own.uid());
    config["metadata"]["uid"] = json!(foreign.api::<VersionedConfig>().get("shop").await?.uid());
    (config["apiVersion"], config["kind"]) = (json!("nudge.dev/v1alpha1"), json!("VersionedConfig"));
    let absent = "not-there";
    for (path, kind, object) in [
        ("/mutate/versions", "ConfigMap", &object),
        ("/validate/versions", "ConfigMap", &object),
        ("/mutate/configs", "VersionedConfig", &config),
        ("/validate/configs", "VersionedConfig", &config),
    ] {
        for operation in ["CREATE", "DELETE"] {
            let reviews = [&foreign.name, "kube-system", "nudge-system", absent]
                .map(|namespace| review(kind, operation, namespace, object));
            let answer = attack.same(path, &reviews).await?;
            // 404 or 500 would let it pass if the failure policy is Ignore.
            ensure!(answer.contains("\"allowed\":false") && answer.contains("403"), "{path} {operation}: {answer}");
            ensure!(answer.contains("because it is not enabled there"), "{answer}");
        }
    }
    Ok(())
}

/// A name with a slash would make Nudge read another object, and its answer would show whether that exists.
#[tokio::test]
async fn a_name_never_becomes_the_path_of_another_object() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let (attack, space) = (Attack::on(guarded)?, guarded.space("paths").await?);
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "there"}})).await?;
    for (path, kind) in
        [("/mutate/versions", "ConfigMap"), ("/validate/versions", "Secret"), ("/validate/configs", "VersionedConfig")]
    {
        for (operation, guess) in [("CREATE", "there"), ("DELETE", "there"), ("CREATE", "absent"), ("DELETE", "absent")]
        {
            let refused = async |namespace: &str, object: &Value, because: &str| -> Result<()> {
                let (status, answer) = attack.post(path, &review(kind, operation, namespace, object)).await?;
                // An error would let the deletion of a config pass.
                let denied = path == "/validate/configs" && operation == "DELETE";
                let (code, because) = match operation {
                    _ if denied => ("200", "could not check the request"),
                    "DELETE" => ("400", because),
                    // Denied with status 422, as the API server would refuse it.
                    _ => ("200", because),
                };
                ensure!(status.contains(code) && answer.contains(because), "{path}: {status} {answer}");
                Ok(())
            };
            let (below, beside) = (format!("{}/configmaps/{guess}", space.name), format!("../configmaps/{guess}"));
            refused(&below, &part("a"), "its namespace is not").await?;
            refused(&space.name, &part(&beside), "its name is not").await?;
            let mut object = part("a");
            object["metadata"]["labels"]["nudge.dev/config"] = json!(beside);
            refused(&space.name, &object, "a label of its object").await?;
        }
    }
    Ok(())
}
