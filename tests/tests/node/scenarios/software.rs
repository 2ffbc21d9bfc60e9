//! Unchanged software of this machine in Deployments, with the lines of its pages in `examples/cookbook` and the
//! default settings of a rollout: an edit of what each reads is current only when the running program has it. Two pods
//! of PostgreSQL and one of OpenSSH read keys that nobody else may read. One program reads a variable alone, and is
//! restarted; one reads three configs in three folders.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use nudge_api::VersionedConfigStatus;
use nudge_tests::cluster::authority::Authority;
use nudge_tests::{eventually, tools};
use serde_json::{Value, json};

use super::exposure::{nudge, ready, wait_for_status};
use super::mounted::{moved_pods, moves_mounts, serve_secrets};
use crate::clients::{address, page};
use crate::objects::{deployment, holder, list, opted_in, plain, shell};
use crate::place::{repository, succeed};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "Edits that unchanged software takes, one pod each, default settings";
/// Users that the image names, as PostgreSQL and OpenSSH need it.
const USER: i64 = 1000;
const OTHER_USER: i64 = 65534;
/// The group of volumes.
const GROUP: i64 = 2000;

/// A Deployment of one pod, and edits that its program must take.
struct Case {
    name: &'static str,
    template: Value,
    edits: Vec<Edit>,
    uptake: Uptake,
}

/// The way in which a program takes an edit.
enum Uptake {
    Notification,
    Restart,
}

/// An edit of an object, and what the program answers before and after.
struct Edit {
    /// The name of the object, and of its config.
    name: String,
    /// The object before and after.
    objects: [Value; 2],
    question: Question,
    /// What the answers have in them.
    answers: [String; 2],
}

/// What the running program is asked.
enum Question {
    /// A page of its server.
    Page(u16, &'static str),
    /// What its server says first, and the keys by which that proves itself.
    Ssh,
    /// The certificate by which its server proves itself.
    Certificate,
}

impl Question {
    async fn ask(&self, pod: &Pod) -> Result<String> {
        Ok(match self {
            Self::Page(port, path) => page(address(pod, *port)?, path).await?,
            Self::Ssh => {
                let address = address(pod, 2222)?;
                let host = address.ip().to_string();
                let mut command = Command::new("ssh-keyscan");
                let output = command.args(["-t", "ed25519", "-p", "2222", &host]).output()?;
                [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
            }
            Self::Certificate => certificate(address(pod, 5432)?)?,
        })
    }
}

/// Returns what openssl says of a connection to PostgreSQL, without blanks.
fn certificate(address: SocketAddr) -> Result<String> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-starttls", "postgres", "-connect", &address.to_string()]).stdin(Stdio::null());
    Ok(String::from_utf8_lossy(&command.output()?.stdout).replace(' ', ""))
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    if suite.place().await?.inside("unchanged software of this machine").is_none() {
        return Ok(());
    }
    for program in ["haproxy", "prometheus", "psql", "sshd", "ssh-keyscan", "ssh-keygen", "java", "openssl"] {
        if tools::find(program)?.is_none() {
            return Ok(());
        }
    }
    let home = ScenarioNamespace::enabled(suite, "software").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    serve_secrets(&home)?;
    nudge(&home, &["enable", &home.space.name, "--baseline"])?;
    let cases = cases(&home)?;
    let settings = "ssl = on\nssl_cert_file = '/keys/tls.crt'\nssl_key_file = '/keys/tls.key'\n";
    home.apply(&list([plain("postgresql", &json!({"shop.conf": settings}))]))?;
    for case in &cases {
        let objects = case.edits.iter().map(|edit| edit.objects[0].clone());
        // The configs of one pod are moved one after the other, and each would have its bake.
        let configs = case.edits.iter().filter(|_| case.edits.len() > 1).map(|edit| {
            json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": edit.name},
                "spec": {"objects": [edit.objects[0]["kind"]], "rollout": {"bakeSeconds": 0}},
            })
        });
        home.apply(&list(objects.chain(configs).chain([deployment(&case.template, 1)])))?;
    }
    let rows = cases.iter().map(async |case| takes(&home, case).await.context(case.name));
    for row in try_join_all(rows).await?.into_iter().flatten() {
        suite.report.row(TITLE, &row);
    }
    Ok(())
}

/// Makes all edits of a case at once, and asks the program when each is current. Returns rows of the report.
async fn takes(home: &ScenarioNamespace<'_>, case: &Case) -> Result<Vec<[String; 2]>> {
    let before = moved_pods(home, case.name, 1).await?.pop().context("no pod")?;
    for edit in &case.edits {
        home.wait_until_current(&edit.name, "1.0.0").await?;
        eventually(LONG_WAIT_TIMEOUT, &format!("{} answers {}", case.name, edit.answers[0]), async || {
            edit.question.ask(&before).await.is_ok_and(|answer| answer.contains(&edit.answers[0])).then_some(())
        })
        .await?;
    }
    let began = Instant::now();
    home.apply(&list(case.edits.iter().map(|edit| edit.objects[1].clone())))?;
    let rows = case.edits.iter().map(async |edit| {
        let is_current = |status: &VersionedConfigStatus| {
            status.rollout.failure.is_some()
                || status.current_version.as_deref().is_some_and(|version| version.starts_with("txt-"))
        };
        let description = format!("the edit of {} is current", edit.name);
        let status = wait_for_status(home, &edit.name, &description, is_current).await?;
        ensure!(status.rollout.failure.is_none(), "{:?}", status.rollout.failure);
        let pod = ready(home, case.name, 1).await?.pop().context("no pod")?;
        // A server that takes the next config at this moment may not listen.
        let listens = async || edit.question.ask(&pod).await.ok().filter(|answer| !answer.is_empty());
        let answer = eventually(LONG_WAIT_TIMEOUT, &format!("{} answers", case.name), listens).await?;
        ensure!(answer.contains(&edit.answers[1]), "{} is current, and the program answers {answer}", edit.name);
        Ok([format!("{}: {} is current", case.name, edit.name), seconds(began.elapsed())])
    });
    let rows = try_join_all(rows).await?;
    match case.uptake {
        Uptake::Notification => assert_untouched(home, &before).await?,
        Uptake::Restart => {
            let after = ready(home, case.name, 1).await?.pop().context("no pod")?;
            ensure!(after.metadata.uid != before.metadata.uid, "the same pod has another variable");
        }
    }
    Ok(rows)
}

fn cases(home: &ScenarioNamespace<'_>) -> Result<Vec<Case>> {
    let recipe = |name: &'static str, port: u16, question: Question| -> Result<Case> {
        let edits = vec![recipe_edit(name, question)?];
        Ok(Case { name, template: recipe_template(home, name, name, port)?, edits, uptake: Uptake::Notification })
    };
    let mut jvm = recipe("jvm", 8080, Question::Page(8080, "/"))?;
    add_java(&mut jvm.template)?;
    Ok(vec![
        folders(home),
        ssh(home)?,
        postgresql(home, "postgresql-alone", &json!({}))?,
        postgresql(home, "postgresql-group", &json!({"fsGroup": GROUP}))?,
        jvm,
        recipe("haproxy", 8080, Question::Page(8080, "/"))?,
        recipe("prometheus", 9090, Question::Page(9090, "/api/v1/status/config"))?,
        variables(home),
    ])
}

/// Returns the edit of a recipe's config from its first to its second version.
fn recipe_edit(name: &str, question: Question) -> Result<Edit> {
    let version = |version: &str| -> Result<Value> {
        let mut data = BTreeMap::new();
        for entry in fs::read_dir(repository().join("examples/config").join(name).join(version))? {
            let entry = entry?;
            data.insert(entry.file_name().to_string_lossy().into_owned(), fs::read_to_string(entry.path())?);
        }
        Ok(plain(name, &json!(data)))
    };
    let objects = [version("1.0.0")?, version("1.0.1")?];
    Ok(Edit { name: name.to_owned(), objects, question, answers: ["hello", "welcome"].map(str::to_owned) })
}

/// Returns a template that has the metadata and the container's name of a recipe's page, and runs the recipe's script.
fn recipe_template(home: &ScenarioNamespace<'_>, recipe: &str, name: &str, port: u16) -> Result<Value> {
    let text = fs::read_to_string(repository().join("examples/cookbook").join(recipe).join("README.md"))?;
    let manifest = text.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).context("no manifest")?.0;
    let page: Value = serde_saphyr::from_str(manifest)?;
    let mut app = shell(home, "");
    app["name"] = page["spec"]["containers"][0]["name"].clone();
    app["command"] = json!(["sh", format!("/cookbook/{recipe}/app.sh"), "/work"]);
    app["env"] = json!([{"name": "ADDRESS", "value": "0.0.0.0"}, {"name": "PORT", "value": port.to_string()}]);
    app["volumeMounts"] = json!([
        {"name": "usr", "mountPath": "/usr", "readOnly": true},
        {"name": "cookbook", "mountPath": "/cookbook", "readOnly": true},
        {"name": "work", "mountPath": "/work"},
        {"name": "conf", "mountPath": "/work/config"},
    ]);
    let mut template = opted_in(name, &app, &[]);
    template["metadata"]["annotations"] = page["metadata"]["annotations"].clone();
    template["spec"]["securityContext"] = json!({"runAsUser": USER, "runAsGroup": USER});
    template["spec"]["volumes"] = json!([
        {"name": "usr", "hostPath": {"path": "/usr"}},
        {"name": "cookbook", "hostPath": {"path": fs::canonicalize(repository().join("examples/cookbook"))?}},
        {"name": "work", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": recipe}},
    ]);
    Ok(template)
}

/// Adds a Secret of the template's name, which its first container mounts with files for their owner alone.
fn add_keys(template: &mut Value, name: &str) {
    let spec = &mut template["spec"];
    push(&mut spec["volumes"], json!({"name": "keys", "secret": {"secretName": name, "defaultMode": 0o400}}));
    push(&mut spec["containers"][0]["volumeMounts"], json!({"name": "keys", "mountPath": "/keys"}));
}

fn secret(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

fn push(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

/// Adds the JDK of this machine, whose settings are not below /usr.
fn add_java(template: &mut Value) -> Result<()> {
    let java = tools::look("java").context("no java")?.canonicalize()?;
    let programs = java.parent().context("no folder")?;
    let settings = fs::canonicalize(programs.join("../conf/net.properties"))?;
    let settings = settings.parent().context("no folder")?;
    let spec = &mut template["spec"];
    push(&mut spec["volumes"], json!({"name": "java", "hostPath": {"path": settings}}));
    let container = &mut spec["containers"][0];
    push(&mut container["volumeMounts"], json!({"name": "java", "mountPath": settings, "readOnly": true}));
    push(&mut container["env"], json!({"name": "PATH", "value": format!("{}:/usr/bin:/bin", programs.display())}));
    Ok(())
}

/// PostgreSQL, which refuses a key that is not its user's and that others may read.
fn postgresql(home: &ScenarioNamespace<'_>, name: &'static str, security: &Value) -> Result<Case> {
    let mut template = recipe_template(home, "postgresql", name, 5432)?;
    add_keys(&mut template, name);
    for (key, value) in security.as_object().into_iter().flatten() {
        template["spec"]["securityContext"][key] = value.clone();
    }
    let authority = Authority::new("software")?;
    let version = |user: &str| -> Result<Value> {
        let certified = authority.client(user, None)?;
        Ok(secret(name, &json!({"tls.crt": certified.certificate, "tls.key": certified.key})))
    };
    let edit = Edit {
        name: name.to_owned(),
        objects: [version("first")?, version("second")?],
        question: Question::Certificate,
        answers: ["subject=CN=first", "subject=CN=second"].map(str::to_owned),
    };
    Ok(Case { name, template, edits: vec![edit], uptake: Uptake::Notification })
}

/// OpenSSH, whose key another user reads as well, so that it is neither's: the agent is a third user.
fn ssh(home: &ScenarioNamespace<'_>) -> Result<Case> {
    let mut template = recipe_template(home, "sshd", "sshd", 2222)?;
    add_keys(&mut template, "sshd-keys");
    let mut side =
        shell(home, "trap : HUP; trap 'exit 0' TERM; cat /keys/key >/dev/null || exit; while :; do sleep 0.1; done");
    side["name"] = json!("side");
    side["securityContext"] = json!({"runAsUser": OTHER_USER, "runAsGroup": OTHER_USER});
    side["volumeMounts"] = json!([{"name": "keys", "mountPath": "/keys"}]);
    push(&mut template["spec"]["containers"], side);
    template["spec"]["securityContext"]["fsGroup"] = json!(GROUP);
    template["metadata"]["annotations"]["nudge.dev/notify.side"] = json!("SIGHUP");
    let script = "ln -sf /keys/key /work/key; exec sh /cookbook/sshd/app.sh /work";
    template["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);

    let folder = tempfile::tempdir()?;
    let mut keys = Vec::new();
    for name in ["first", "second"] {
        let file = folder.path().join(name);
        succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file))?;
        let public = fs::read_to_string(file.with_extension("pub"))?;
        let public = public.split(' ').nth(1).context("no key")?.to_owned();
        keys.push((secret("sshd-keys", &json!({"key": fs::read_to_string(&file)?})), public));
    }
    let [(first, first_key), (second, second_key)]: [(Value, String); 2] = keys.try_into().ok().context("two keys")?;
    let key_edit = Edit {
        name: "sshd-keys".to_owned(),
        objects: [first, second],
        question: Question::Ssh,
        answers: [first_key, second_key],
    };
    let edits = vec![recipe_edit("sshd", Question::Ssh)?, key_edit];
    Ok(Case { name: "sshd", template, edits, uptake: Uptake::Notification })
}

/// A program that reads three configs in three folders.
fn folders(home: &ScenarioNamespace<'_>) -> Case {
    let names = ["folder-a", "folder-b", "folder-c"];
    let mut app = holder(home);
    let mounts = names.map(|name| json!({"name": name, "mountPath": format!("/etc/app/{name}")}));
    app["volumeMounts"] = mounts.to_vec().into();
    let mut template = opted_in("folders", &app, &[("notify", "SIGHUP")]);
    template["spec"]["volumes"] = names.map(|name| json!({"name": name, "configMap": {"name": name}})).to_vec().into();
    let edits = names.map(|name| {
        let values = ["old", "new"].map(|age| format!("{age}-{name}"));
        mode_edit(name, values)
    });
    Case { name: "folders", template, edits: edits.into(), uptake: Uptake::Notification }
}

/// A program that reads a variable, and nothing else.
fn variables(home: &ScenarioNamespace<'_>) -> Case {
    let mut app = holder(home);
    let key = json!({"configMapKeyRef": {"name": "variables", "key": "mode"}});
    app["env"] = json!([{"name": "MODE", "valueFrom": key}]);
    let edits = vec![mode_edit("variables", ["old", "new"].map(str::to_owned))];
    Case { name: "variables", template: opted_in("variables", &app, &[]), edits, uptake: Uptake::Restart }
}

/// Returns the edit of a ConfigMap with one key.
fn mode_edit(name: &str, values: [String; 2]) -> Edit {
    let objects = values.each_ref().map(|value| plain(name, &json!({"mode": value})));
    Edit { name: name.to_owned(), objects, question: Question::Page(8080, "/"), answers: values }
}
