//! A plain pod of a namespace that has nothing to do with Nudge posts reviews of its own making to the control plane,
//! as an admin of the cluster. The answer is the same whether it has guessed right or not, and whether there is
//! anything at all.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::{Api, ResourceExt as _};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::{NAMESPACE, at_once};
use serde_json::{Value, json};

use crate::objects::{APP, list, opted_in, pod, python, secret_config, shell, template};
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT};
use crate::suite::Suite;
use nudge_tests::eventually;

/// Posts what stands in its environment, and prints the answers.
const ATTACK: &str = r#"
import http.client, json, os, ssl

context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for path, review in json.loads(os.environ["REVIEWS"]):
    connection = http.client.HTTPSConnection(os.environ["HOST"], 443, context=context, timeout=10)
    connection.request("POST", path, json.dumps(review), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode()]), flush=True)
print("done", flush=True)
"#;

/// A value that the attacker guesses.
const PIN: &str = "4711";

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "tenant").await?;
    home.kubectl(&["apply", "-k", "deploy/namespace/secrets"])?;
    let pin = |pin: &str| json!({"pin": pin});
    home.apply(&secret_config("keys", &[("1", pin(PIN)), ("2", pin("0815"))], &at_once()))?;
    home.wait_until_current("keys", "1").await?;
    // A third was deleted, which only its digest is known of.
    home.apply(&secret_config("keys", &[("1", pin(PIN)), ("3", pin(PIN))], &at_once()))?;
    let configs = home.space.api::<VersionedConfig>();
    let is_known = async |version: &str| configs.get("keys").await.ok()?.status?.version(version).map(drop);
    eventually(WAIT_TIMEOUT, "3 is sealed", async || is_known("3").await).await?;
    home.kubectl(&["delete", "secret", "keys-3"])?;
    eventually(WAIT_TIMEOUT, "3 is gone", async || is_known("3").await.is_none().then_some(())).await?;
    home.apply(&pod(opted_in("user", &shell(&home, "exec sleep 86400"), &[("configs", "keys")])).to_string())?;
    home.ready_pod("app=user").await?;

    let foreign = ScenarioNamespace::create(suite, "attacker").await?;
    let groups = groups(&home.space.name);
    let answers = post_reviews(&foreign, groups.iter().flatten().cloned().collect()).await?;
    let mut answers = answers.into_iter();
    for group in &groups {
        let same: Vec<(u16, String)> = answers.by_ref().take(group.len()).collect();
        for ((path, review), answer) in group.iter().zip(&same) {
            ensure!(*answer == same[0], "{path}: {review} is answered by {answer:?}, and another by {:?}", same[0]);
            ensure!(!answer.1.contains("keys-1"), "{path}: an object is named: {answer:?}");
        }
    }
    ensure!(answers.next().is_none(), "there are more answers than questions");

    // Only the API server's own request counts, since it knows the object.
    let refused =
        home.kubectl(&["delete", "secret", "keys-1"]).err().context("the current version was deleted")?.to_string();
    ensure!(refused.contains("because the version is current"), "{refused}");
    let refused =
        home.kubectl(&["delete", "vcfg", "keys"]).err().context("a config with a pod was deleted")?.to_string();
    ensure!(refused.contains("because 1 pod uses it"), "{refused}");
    let own = home.space.api::<Secret>().get("keys-1").await?;
    ensure!(own.metadata.deletion_timestamp.is_none(), "{} is terminating", own.name_any());
    Ok(())
}

type Question = (&'static str, Value);

/// Questions of which all in a group are to have the same answer.
fn groups(namespace: &str) -> Vec<Vec<Question>> {
    let versions = "/validate/versions";
    let secret = |name: &str, version: &str, pin: &str, uid: Value| {
        let labels = json!({"nudge.dev/config": "keys", "nudge.dev/version": version});
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "data": {"pin": base64(pin)},
            "metadata": {"name": name, "labels": labels, "uid": uid},
        })
    };
    let config = |name: &str, uid: Value| json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name, "uid": uid}, "spec": {}});
    let mut made = Vec::new();
    for version in ["1", "2", "3", "4"] {
        for name in ["keys-1", "guess"] {
            let guess =
                |pin: &str| (versions, review("Secret", "CREATE", namespace, &secret(name, version, pin, Value::Null)));
            made.extend([PIN, "4712"].map(guess));
        }
    }
    let deleted = [("keys-1", json!(null)), ("keys-1", json!("0")), ("guess", json!(null))]
        .map(|(name, uid)| (versions, review("Secret", "DELETE", namespace, &secret(name, "1", PIN, uid))));
    let forgotten = [("keys", json!(null)), ("keys", json!("0")), ("guess", json!(null))]
        .map(|(name, uid)| ("/validate/configs", review("VersionedConfig", "DELETE", namespace, &config(name, uid))));
    let elsewhere = ["nudge-e2e-attacker", NAMESPACE, "kube-system", "not-there"];
    let part = secret("keys-1", "1", PIN, Value::Null);
    let opted = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"nudge.dev/inject": "true"}},
        "spec": {"containers": [{"name": "app", "image": "a", "envFrom": [{"configMapRef": {"name": "kube-root-ca.crt"}}]}]},
    });
    let closed = |path: &'static str, kind: &str, object: &Value| {
        elsewhere.map(|namespace| (path, review(kind, "CREATE", namespace, object))).to_vec()
    };
    vec![
        made,
        deleted.to_vec(),
        forgotten.to_vec(),
        closed("/mutate/versions", "Secret", &part),
        closed(versions, "Secret", &part),
        closed("/mutate/configs", "VersionedConfig", &config("keys", Value::Null)),
        closed("/validate/configs", "VersionedConfig", &config("keys", Value::Null)),
        closed("/mutate/pods", "Pod", &opted),
    ]
}

pub(super) fn review(kind: &str, operation: &str, namespace: &str, object: &Value) -> Value {
    let group = if kind == "VersionedConfig" { "nudge.dev" } else { "" };
    let (old, new) = if operation == "DELETE" { (object, &Value::Null) } else { (&Value::Null, object) };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": "any"},
            "name": object["metadata"]["name"], "namespace": namespace, "operation": operation,
            "userInfo": {"username": "admin", "groups": ["system:masters"]}, "oldObject": old, "object": new,
        }
    })
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns what a pod in there is answered: status and body.
async fn post_reviews(home: &ScenarioNamespace<'_>, reviews: Vec<Question>) -> Result<Vec<(u16, String)>> {
    let services: Api<Service> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    let host = services.get("nudge-injector").await?.spec.and_then(|spec| spec.cluster_ip).context("no address")?;
    let mut container = python(home, ATTACK);
    let variable = |name: &str, value: String| json!({"name": name, "value": value});
    container["env"] = json!([variable("HOST", host), variable("REVIEWS", serde_json::to_string(&reviews)?)]);
    let mut attacker = pod(template("attacker", &container));
    attacker["spec"]["restartPolicy"] = "Never".into();
    ensure!(attacker["spec"]["securityContext"]["runAsUser"] == APP, "it is to be a plain pod");
    home.apply(&list([attacker]))?;
    let pods = home.space.api::<Pod>();
    let ended = eventually(WAIT_TIMEOUT, "the pod has asked all", async || {
        let log = pods.logs("attacker", &kube::api::LogParams::default()).await.ok()?;
        log.lines().any(|line| line == "done").then_some(log)
    });
    let log = ended.await?;
    let lines = log.lines().filter(|line| line.starts_with('['));
    lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
}
