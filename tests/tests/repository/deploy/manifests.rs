//! What is in `deploy/`, read from its files or rendered by kubectl.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::installation::deploy;
use nudge_tests::{Finished, tools};
use serde_json::{Value, json};

/// The oldest kubectl that README requires: with an older one `-k` does not know all that is used.
const OLDEST_KUBECTL: u64 = 27;

/// Returns the objects of a text, in its order.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    let parsed_documents = serde_saphyr::from_multiple::<Value>(text)?;
    Ok(parsed_documents.into_iter().filter(|document| !document.is_null()).map(with_whole_numbers).collect())
}

/// Returns the same with whole numbers for such as 1.0, which kustomize writes otherwise.
fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, with_whole_numbers(value))).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => {
                format!("{float:.0}").parse().map_or(Value::Number(number), Value::Number)
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

/// Nothing where both hold the same objects, else the titles of those that differ: the whole of both would be pages.
pub(crate) fn difference<'a>(one: &'a BTreeMap<String, Value>, other: &'a BTreeMap<String, Value>) -> Vec<&'a String> {
    one.keys().chain(other.keys()).filter(|title| one.get(*title) != other.get(*title)).collect()
}

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))
}

/// Returns the title of an object, as `Kind/name`.
pub(crate) fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Returns objects by kind and name; no two have the same.
pub(crate) fn by_title(objects: Vec<Value>) -> Result<BTreeMap<String, Value>> {
    let mut collected = BTreeMap::new();
    for object in objects {
        // A role and its binding, in the namespace and for the cluster, have one name but not one kind.
        let title = title(&object);
        ensure!(collected.insert(title.clone(), object).is_none(), "{title} is there twice");
    }
    Ok(collected)
}

/// The webhooks that the API server calls about every namespace: an object there may be older than the label of its
/// namespace, and the first contact is made before any is enabled.
pub(crate) const EVERYWHERE: [&str; 4] =
    ["analyses.nudge.dev", "contact.nudge.dev", "policies.nudge.dev", "sources.nudge.dev"];

/// Returns the webhooks of an installation whose selector takes every namespace.
pub(crate) fn everywhere(objects: &BTreeMap<String, Value>) -> Result<Vec<&str>> {
    let configurations = objects.iter().filter(|(title, _)| title.ends_with("WebhookConfiguration/nudge-injector"));
    let mut names = Vec::new();
    for webhook in configurations.flat_map(|(_, object)| object["webhooks"].as_array().into_iter().flatten()) {
        if webhook["namespaceSelector"] == json!({}) {
            names.push(webhook["name"].as_str().context("a webhook without a name")?);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the files of the base, in the order in which they are applied, as one text. With kubectl of Kubernetes 1.20
/// there is no other way.
pub(crate) fn base() -> Result<String> {
    let kustomization = documents(&read(&deploy().join("base/kustomization.yaml"))?)?.remove(0);
    let files = kustomization["resources"].as_array().context("no resources")?;
    let texts = files.iter().map(|file| read(&deploy().join("base").join(file.as_str().context("no name")?)));
    Ok(texts.collect::<Result<Vec<_>>>()?.join("\n---\n"))
}

/// Returns what `kubectl kustomize` makes of a folder. `None` without a kubectl that can, and so the test is to be
/// skipped.
pub(crate) fn render(folder: &Path) -> Result<Option<String>> {
    let Some(kubectl) = kubectl()? else { return Ok(None) };
    let finished = Finished::of(Command::new(kubectl).arg("kustomize").arg(folder))?;
    ensure!(finished.code == Some(0), "{} can't be rendered: {}", folder.display(), finished.stderr);
    ensure!(finished.stderr.is_empty(), "{}: {}", folder.display(), finished.stderr);
    Ok(Some(finished.stdout))
}

/// Returns what `kubectl kustomize` makes of these folders of `deploy/`, as a platform team names them in a
/// kustomization of its own.
pub(crate) fn installed(resource: &str, components: &[&str]) -> Result<Option<BTreeMap<String, Value>>> {
    let home = tempfile::tempdir()?;
    std::os::unix::fs::symlink(deploy().canonicalize()?, home.path().join("deploy"))?;
    let folder = home.path().join("site");
    fs::create_dir(&folder)?;
    let components: Vec<String> = components.iter().map(|name| format!("../deploy/components/{name}")).collect();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [format!("../deploy/{resource}")], "components": components,
    });
    fs::write(folder.join("kustomization.yaml"), kustomization.to_string())?;
    render(&folder)?.map(|text| by_title(documents(&text)?)).transpose()
}

/// Returns a kubectl that is new enough: that of the tests' cluster, or else any.
fn kubectl() -> Result<Option<PathBuf>> {
    let named = std::env::var_os("KUBEBUILDER_ASSETS").map(|folder| PathBuf::from(folder).join("kubectl"));
    for kubectl in named.into_iter().filter(|file| file.is_file()).chain(tools::look("kubectl")) {
        let finished = Finished::of(Command::new(&kubectl).args(["version", "--client", "--output", "json"]))?;
        let version: Value = serde_json::from_str(&finished.stdout)?;
        let minor = version["clientVersion"]["minor"].as_str().unwrap_or_default().trim_end_matches('+').parse();
        if minor.is_ok_and(|minor: u64| minor >= OLDEST_KUBECTL) {
            return Ok(Some(kubectl));
        }
    }
    // Not a tool that tests/run could install: Debian has no newer one.
    tools::skipped(&format!("rendering deploy/ needs kubectl 1.{OLDEST_KUBECTL} or newer"));
    Ok(None)
}
