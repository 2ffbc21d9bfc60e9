//! Edits of ConfigMaps that their volumes take or not: all of 8,192 keys change, a ConfigMap of one key gets 8,192, and
//! one lacks a key that its volume needs. No version is current while the process has another one, which the process
//! itself says.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use nudge_api::VersionedConfigStatus;
use nudge_tests::cluster::installation::at_once;
use serde_json::{Value, json};

use super::exposure::wait_for_status;
use super::mounted::{moved_pods, moves_mounts};
use crate::clients::{address, page};
use crate::objects::{deployment, holder, list, opted_in, plain};
use crate::report::seconds;
use crate::space::{ScenarioNamespace, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "A ConfigMap of 8,192 keys in a volume";
const KEYS: usize = 8192;

/// A ConfigMap in the volume of a Deployment of one pod, and its edit.
struct Case {
    /// The name of all objects.
    name: &'static str,
    data: [Value; 2],
    /// The items of the volume.
    items: Value,
    /// A part of the message if the edit is refused.
    refusal: Option<&'static str>,
    /// What the process has before and after.
    held: [String; 2],
}

fn cases() -> [Case; 3] {
    let keys =
        |value: &str| json!((0..KEYS).map(|number| (format!("key-{number}"), value)).collect::<BTreeMap<_, _>>());
    let (one, two) = (json!({"mode": "one"}), json!({"mode": "two"}));
    let kept = || ["1 one", "1 one"].map(str::to_owned);
    let (many, few) = (format!("{KEYS} one"), format!("{KEYS} two"));
    let items = json!([{"key": "mode", "path": "mode"}, {"key": "extra", "path": "extra"}]);
    let with_extra = json!({"mode": "one", "extra": "more"});
    [
        Case { name: "many", data: [keys("one"), keys("two")], items: Value::Null, refusal: None, held: [many, few] },
        Case {
            name: "full",
            data: [one, keys("two")],
            items: Value::Null,
            refusal: Some("its files need"),
            held: kept(),
        },
        Case { name: "lacking", data: [with_extra, two], items, refusal: Some("needs key extra"), held: kept() },
    ]
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "room").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    let cases = cases();
    for case in &cases {
        let config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": case.name},
            "spec": {"objects": ["ConfigMap"], "rollout": at_once()},
        });
        home.apply(&list([plain(case.name, &case.data[0]), config]))?;
    }
    let edits = cases.iter().map(async |case| {
        home.wait_until_current(case.name, "1.0.0").await?;
        home.apply(&list([deployment(&template(&home, case), 1)]))?;
        test_edit(suite, &home, case).await.context(case.name)
    });
    try_join_all(edits).await.map(drop)
}

async fn test_edit(suite: &Suite, home: &ScenarioNamespace<'_>, case: &Case) -> Result<()> {
    let pod = moved_pods(home, case.name, 1).await?.pop().context("no pod")?;
    let held = async || page(address(&pod, 8080)?, "/").await;
    ensure!(held().await?.contains(&case.held[0]), "it has {}", held().await?);
    let began = Instant::now();
    home.apply(&list([plain(case.name, &case.data[1])]))?;
    let is_decided = |status: &VersionedConfigStatus| {
        let is_text = |version: &Option<String>| version.as_deref().is_some_and(|version| version.starts_with("txt-"));
        is_text(&status.current_version) || status.rollout.failure.is_some()
    };
    let status = wait_for_status(home, case.name, "the edit is current or has failed", is_decided).await?;
    let now = held().await?;
    ensure!(now.contains(&case.held[1]), "it has {now}, and {:?} is current", status.current_version);
    match (case.refusal, status.rollout.failure) {
        (None, None) => {
            suite.report.row(TITLE, &["all values change: current after".to_owned(), seconds(began.elapsed())]);
        }
        (Some(text), Some(failure)) => {
            ensure!(failure.reason.as_str() == "CantApply" && failure.message.contains(text), "{failure:?}");
            ensure!(status.current_version.as_deref() == Some("1.0.0"), "{:?} is current", status.current_version);
        }
        (_, failure) => anyhow::bail!("{failure:?}"),
    }
    assert_untouched(home, &pod).await
}

fn template(home: &ScenarioNamespace<'_>, case: &Case) -> Value {
    let mut app = holder(home);
    app["volumeMounts"] = json!([{"name": "conf", "mountPath": "/etc/app/conf"}]);
    let mut template = opted_in(case.name, &app, &[("notify", "SIGHUP")]);
    let mut volume = json!({"name": "conf", "configMap": {"name": case.name}});
    if !case.items.is_null() {
        volume["configMap"]["items"] = case.items.clone();
    }
    template["spec"]["volumes"] = json!([volume]);
    template
}
