//! A Deployment of nginx that mounts a ConfigMap, under load, and edits of that ConfigMap, with the default settings of
//! a rollout: an edit is a version that goes out in steps, without a restart, a failed request and a second writer.
//! nginx refuses a bad one and says so to nobody: it stops at the first pod, and goes back. A correction ends it at
//! once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::try_join;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use nudge_api::VersionedConfigStatus;
use nudge_tests::eventually;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::exposure::{nudge, ready, wait_for_status};
use super::mounted::moves_mounts;
use crate::clients::Client;
use crate::objects::{deployment, list, opted_in, plain};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "Edits of a ConfigMap, four pods of nginx under load, default settings";
const PODS: usize = 4;
const PORT: u16 = 8080;
const BAD: &str = "nonsense;";
/// The time from the begin of a bad version to its correction.
const CORRECTION_DELAY: time::Duration = time::Duration::seconds(20);
/// The minimum time from the begin of a move that a text has ended to the next one.
const MIN_MOVE_INTERVAL: i64 = 60;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "edited").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    nudge(&home, &["enable", &home.space.name, "--baseline"])?;
    let objects = ["web", "site"].into_iter().flat_map(|name| {
        let map = plain(name, &json!({"greeting.conf": greeting("hello")}));
        [map, deployment(&template(&home, name), PODS.try_into().unwrap_or_default())]
    });
    home.apply(&list(objects))?;
    try_join!(edited_and_returned(suite, &home), corrected(suite, &home)).map(drop)
}

/// A good edit, and then a bad one that nobody corrects.
async fn edited_and_returned(suite: &Suite, home: &ScenarioNamespace<'_>) -> Result<()> {
    let fleet = Fleet::start(home, "web").await?;
    let edited = fleet.edit(&greeting("welcome"))?;
    let is_current = |status: &VersionedConfigStatus| {
        let version = status.desired_version.as_deref().filter(|version| version.starts_with("txt-"));
        version.is_some() && status.current_version.as_deref() == version && status.rollout.failure.is_none()
    };
    let status = wait_for_status(home, "web", "the edit is current", is_current).await?;
    let second = status.current_version.clone();
    ensure!(status.published_version == second, "{status:#?}");
    let mut times = Vec::new();
    for client in &fleet.clients {
        let answers = client.answers();
        let (time, _) = answers.changes.get(1).with_context(|| format!("no second text: {answers:?}"))?;
        times.push(*time);
    }
    times.sort();
    // One pod, then 50%, then all.
    let watched = status.rollout.watch.map_or(0, |watch| i64::from(watch.seconds));
    let gaps = [times[1] - times[0], times[2] - times[1]];
    ensure!(gaps.iter().all(|gap| gap.whole_seconds() >= watched / 2), "not in steps: {times:?}");
    let after = |time: OffsetDateTime| Duration::try_from(time - edited).map(seconds);
    suite.report.row(TITLE, &["the first pod serves an edit".to_owned(), after(times[0])?]);
    suite.report.row(TITLE, &["all serve it".to_owned(), after(times[PODS - 1])?]);

    let edited = fleet.edit(BAD)?;
    let has_failed = |status: &VersionedConfigStatus| {
        status.rollout.failure.is_some() && status.rollout.stage.is_none() && status.current_version == second
    };
    let status = wait_for_status(home, "web", "the bad edit has failed", has_failed).await?;
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - edited)?;
    suite.report.row(TITLE, &["a bad one is back".to_owned(), seconds(elapsed)]);
    let failure = status.rollout.failure.context("no failure")?;
    ensure!(failure.message.contains("1 of 1 pod"), "{failure:?}");
    ensure!(status.desired_version != second, "{:?} is desired", status.desired_version);
    ensure!(fleet.text().await? == BAD, "somebody has written the text");
    let refusals = fleet.refusals()?;
    ensure!(refusals.len() == 1, "{refusals:?} had the bad text");
    ensure!(failure.message.contains(&refusals[0]), "{failure:?} does not name {refusals:?}");
    fleet.check().await
}

/// A bad edit, and its correction before it has failed.
async fn corrected(suite: &Suite, home: &ScenarioNamespace<'_>) -> Result<()> {
    let fleet = Fleet::start(home, "site").await?;
    fleet.edit(BAD)?;
    let is_moved = |status: &VersionedConfigStatus| status.target_version.is_some() && status.rollout.stage.is_some();
    let bad = wait_for_status(home, "site", "the bad edit is moved to", is_moved).await?;
    let begin = begin_of(&bad)?;
    eventually(LONG_WAIT_TIMEOUT, "the first pod has the bad edit", async || {
        fleet.refusals().is_ok_and(|refusals| !refusals.is_empty()).then_some(())
    })
    .await?;
    let wait = begin + CORRECTION_DELAY - OffsetDateTime::now_utc();
    tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
    let edited = fleet.edit(&greeting("welcome"))?;
    let has_ended = |status: &VersionedConfigStatus| status.rollout.stage.is_none();
    let status = wait_for_status(home, "site", "the correction ends the bad edit", has_ended).await?;
    let elapsed = Duration::try_from(OffsetDateTime::now_utc() - edited)?;
    suite.report.row(TITLE, &["a correction ends a bad one".to_owned(), seconds(elapsed)]);
    ensure!(status.rollout.failure.is_none() && status.target_version != bad.target_version, "{status:#?}");

    let good = wait_for_status(home, "site", "the correction is moved to", is_moved).await?;
    let interval = begin_of(&good)? - begin;
    ensure!(interval.whole_seconds() >= MIN_MOVE_INTERVAL, "the correction began {interval} after the bad edit");
    suite.report.row(TITLE, &["it begins after the begin of that".to_owned(), seconds(interval.unsigned_abs())]);
    eventually(LONG_WAIT_TIMEOUT, "all serve the correction", async || {
        let mut answers = fleet.clients.iter().map(Client::answers);
        answers.all(|answers| answers.texts().last() == Some(&"welcome\n")).then_some(())
    })
    .await?;
    ensure!(fleet.refusals()?.len() == 1, "{:?} had the bad text", fleet.refusals()?);
    fleet.check().await
}

/// Returns when the move began.
fn begin_of(status: &VersionedConfigStatus) -> Result<OffsetDateTime> {
    let begin = status.rollout.start_time.as_ref().context("the move has no begin")?;
    Ok(OffsetDateTime::from_unix_timestamp(begin.0.as_second())?)
}

/// The pods of a Deployment, with a client of each.
struct Fleet<'a> {
    home: &'a ScenarioNamespace<'a>,
    name: &'static str,
    pods: Vec<Pod>,
    clients: Vec<Client>,
}

impl<'a> Fleet<'a> {
    /// Starts the clients once the first text is current.
    async fn start(home: &'a ScenarioNamespace<'a>, name: &'static str) -> Result<Self> {
        let pods = ready(home, name, PODS).await?;
        home.wait_until_current(name, "1.0.0").await?;
        let clients = pods.iter().map(|pod| Client::start(pod, PORT)).collect::<Result<Vec<_>>>()?;
        eventually(LONG_WAIT_TIMEOUT, "all clients are served", async || {
            clients.iter().all(|client| client.answers().texts() == ["hello\n"]).then_some(())
        })
        .await?;
        Ok(Self { home, name, pods, clients })
    }

    /// Edits the text as a user does, and returns when that was.
    fn edit(&self, text: &str) -> Result<OffsetDateTime> {
        let patch = json!({"data": {"greeting.conf": text}}).to_string();
        self.home.kubectl(&["patch", "configmap", self.name, "--type=merge", "-p", &patch])?;
        Ok(OffsetDateTime::now_utc())
    }

    async fn text(&self) -> Result<String> {
        let map = self.home.space.api::<ConfigMap>().get(self.name).await?;
        Ok(map.data.and_then(|mut data| data.remove("greeting.conf")).unwrap_or_default())
    }

    /// Returns the names of the pods whose nginx has refused a text.
    fn refusals(&self) -> Result<Vec<String>> {
        let mut refusals = Vec::new();
        for pod in &self.pods {
            let log = self.home.kubectl(&["logs", &pod.name_any(), "-c", "app"])?;
            refusals.extend(log.contains("[emerg]").then(|| pod.name_any()));
        }
        Ok(refusals)
    }

    /// Fails unless each client got the first text, at last the second one, and nothing else, and no pod and no
    /// container is another one. While nginx replaces its workers, old and new ones answer.
    async fn check(&self) -> Result<()> {
        for (pod, client) in self.pods.iter().zip(&self.clients) {
            let (name, answers) = (pod.name_any(), client.answers());
            let texts = answers.texts();
            let is_known = texts.iter().all(|text| ["hello\n", "welcome\n"].contains(text));
            let is_moved = texts.first() == Some(&"hello\n") && texts.last() == Some(&"welcome\n");
            ensure!(is_known && is_moved && answers.faults.is_empty(), "{name}: {answers:?}");
            assert_untouched(self.home, pod).await?;
        }
        Ok(())
    }
}

fn greeting(text: &str) -> String {
    format!("return 200 \"{text}\\n\";\n")
}

fn template(home: &ScenarioNamespace<'_>, name: &str) -> Value {
    let app = json!({
        "name": "app", "image": home.place.image("nudge-example-nginx:0.1.0"), "args": ["/work"],
        "env": [{"name": "NGINX_ADDRESS", "value": "0.0.0.0"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "conf", "mountPath": "/work/config"}],
    });
    let mut template = opted_in(name, &app, &[("notify", "SIGHUP"), ("verify.app", "workers")]);
    template["spec"]["volumes"] =
        json!([{"name": "work", "emptyDir": {}}, {"name": "conf", "configMap": {"name": name}}]);
    template
}
