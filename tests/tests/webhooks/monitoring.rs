//! `deploy/components/monitoring` uses only metrics that a running replica and a running agent have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nudge_tests::agent::IDLE;
use nudge_tests::cluster::installation::deploy;
use nudge_tests::{AgentUnderTest, Installation, tools};
use serde_json::Value;

use crate::config_sources::scene::sources;

/// A metric that shows only outcomes that occurred, and no review fails here.
const SHOWS_WHAT_HAPPENED: &str = "nudge_admission_reviews_total";

/// Names of series, and of each the values of its labels.
type Series = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A selector of an expression: a series, and of labels the values it names.
type Selector = (String, Vec<(String, Vec<String>)>);

fn file(name: &str) -> Result<String> {
    let path: PathBuf = deploy().join("components/monitoring").join(name);
    fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))
}

/// Collects all strings under a key, at any depth.
fn under(value: &Value, key: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| match value {
            Value::String(text) if name == key => into.push(text.clone()),
            _ => under(value, key, into),
        }),
        Value::Array(all) => all.iter().for_each(|value| under(value, key, into)),
        _ => {}
    }
}

fn labels(text: &str) -> Vec<(String, Vec<String>)> {
    let mut parts = text.split('"');
    let mut names = Vec::new();
    while let (Some(before), Some(value)) = (parts.next(), parts.next()) {
        let name = before.trim_start_matches([',', ' ']).trim_end_matches(['=', '~', '!']);
        names.push((name.to_owned(), value.split('|').map(str::to_owned).collect()));
    }
    names
}

/// Returns the selectors in an expression or a page of metrics.
fn selectors(text: &str) -> Vec<Selector> {
    let is_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("nudge_") {
        let name: String = rest[at..].chars().take_while(|&byte| is_name(byte)).collect();
        rest = &rest[at + name.len()..];
        let inner = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(inner, _)| inner);
        found.push((name, labels(inner.unwrap_or_default())));
    }
    found
}

fn add(series: &mut Series, page: &str) {
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        for (name, labels) in selectors(line) {
            let known_labels = series.entry(name).or_default();
            for (label, values) in labels {
                known_labels.entry(label).or_default().extend(values);
            }
        }
    }
}

/// Returns what the expressions use and no page shows.
fn missing_series(series: &Series, expressions: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, labels) in expressions.iter().flat_map(|expression| selectors(expression)) {
        let Some(known) = series.get(&name) else {
            missing.push(name);
            continue;
        };
        for (label, values) in labels {
            let seen = known.get(&label);
            let absent =
                |value: &&String| seen.is_none_or(|seen| !seen.contains(*value) && name != SHOWS_WHAT_HAPPENED);
            missing.extend(values.iter().filter(absent).map(|value| format!("{name}{{{label}={value:?}}}")));
        }
    }
    missing
}

#[test]
fn a_missing_series_or_value_is_found() {
    let mut series = Series::new();
    add(&mut series, "# TYPE nudge_other gauge\nnudge_configs{state=\"Failed\",a=\"b\"} 2\nnudge_queue 1");
    let find = |text: &str| missing_series(&series, &[text.to_owned()]);
    assert!(find("max(nudge_configs{state=~\"Failed\"}) > nudge_queue").is_empty());
    assert_eq!(find("rate(nudge_other[5m])"), ["nudge_other"]);
    assert_eq!(find("nudge_configs{state=~\"Failed|Broken\"}"), ["nudge_configs{state=\"Broken\"}"]);
    assert_eq!(find("nudge_queue{state!=\"x\"}"), ["nudge_queue{state=\"x\"}"]);
}

#[tokio::test]
async fn dashboard_and_rules_use_metrics_that_exist() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let sources = sources(installation).await?;
    let mut series = Series::new();
    add(&mut series, &replica.get("/metrics").await?.1);
    add(&mut series, &sources.get("/metrics").await?.1);
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let page = agent.client.get("/metrics").await?;
    add(&mut series, std::str::from_utf8(&page.body)?);
    // None of them holds names that users choose, so the number of series is bounded.
    let external_series = [
        "condition",
        "kind",
        "reason",
        "state",
        "trust",
        "outcome",
        "reason",
        "result",
        "watch",
        "path",
        "channel",
        "runtime",
        "code",
        "le",
        "version",
        // Of the one series about the features of the cluster.
        "env_files",
        "ipv6",
        "native_sidecars",
        "restart_in_place",
    ];
    for (name, labels) in &series {
        let strange: Vec<_> = labels.keys().filter(|label| !external_series.contains(&label.as_str())).collect();
        ensure!(strange.is_empty(), "{name} has labels that may be unbounded: {strange:?}");
    }

    let dashboard: Value = serde_json::from_str(&file("dashboard.json")?)?;
    let rules: Value = serde_saphyr::from_str(&file("rules.yaml")?)?;
    for (what, value) in [("the dashboard", &dashboard), ("the rules", &rules)] {
        let mut expressions = Vec::new();
        under(value, "expr", &mut expressions);
        ensure!(expressions.len() > 10, "{what} has few expressions: {expressions:?}");
        let missing = missing_series(&series, &expressions);
        ensure!(missing.is_empty(), "{what} uses series that do not exist: {missing:?}");
    }
    Ok(())
}

#[test]
fn the_dashboard_is_complete_and_every_rule_says_what_to_do() -> Result<()> {
    let dashboard: Value = serde_json::from_str(&file("dashboard.json")?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let ids: BTreeSet<_> = panels.iter().filter_map(|panel| panel["id"].as_i64()).collect();
    ensure!(ids.len() == panels.len(), "panels share an id");
    let rules: Value = serde_saphyr::from_str(&file("rules.yaml")?)?;
    let groups = rules["spec"]["groups"].as_array().context("no groups")?;
    let mut names = BTreeSet::new();
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
        let name = rule["alert"].as_str().context("a rule without a name")?;
        ensure!(names.insert(name), "{name} is there twice");
        for field in ["summary", "description"] {
            let text = rule["annotations"][field].as_str().unwrap_or_default();
            ensure!(text.len() > 20, "{name} has no {field}");
        }
        ensure!(rule["labels"]["severity"].is_string(), "{name} has no severity");
        // A config that stays failed would hide that another one fails.
        if name == "NudgeRolloutFailed" {
            let expression = rule["expr"].as_str().unwrap_or_default();
            ensure!(expression.contains("increase(nudge_rollouts_total{outcome=\"failed\"}["), "{expression}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn kustomize_makes_the_component() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let component = deploy().join("components/monitoring").canonicalize()?;
    // Kustomize takes no absolute paths.
    let up = "../".repeat(folder.path().canonicalize()?.components().count() - 1);
    let text = format!("components: [{up}{}]\n", component.display().to_string().trim_start_matches('/'));
    fs::write(folder.path().join("kustomization.yaml"), text)?;
    let path = folder.path().to_str().context("a path")?;
    let Some(made) = installation.cluster.kubectl(&["kustomize", path]).await? else {
        tools::skipped("kustomize comes with kubectl");
        return Ok(());
    };
    if made.code != Some(0) && made.stderr.contains("omponent") {
        tools::skipped("this kubectl's kustomize knows no components");
        return Ok(());
    }
    ensure!(made.code == Some(0), "{}", made.stderr);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&made.stdout)?;
    let kinds: BTreeSet<_> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    ensure!(kinds == ["ConfigMap", "PodMonitor", "PrometheusRule"].into(), "{kinds:?}");
    Ok(())
}
