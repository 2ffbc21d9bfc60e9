//! The crates stand in layers: each may use those below it and no other.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Each crate with what it may use of the workspace. ARCHITECTURE.md draws the same picture.
const LAYERS: [(&str, &[&str]); 23] = [
    ("nudge-protocol", &[]),
    ("nudge-server", &["nudge-protocol"]),
    ("nudge-agent", &["nudge-protocol", "nudge-server"]),
    ("nudge-api", &["nudge-protocol"]),
    ("nudge-validation", &["nudge-api", "nudge-protocol"]),
    ("nudge-core", &["nudge-api", "nudge-protocol"]),
    ("nudge-cluster", &["nudge-api", "nudge-core", "nudge-protocol"]),
    ("nudge-certs", &["nudge-cluster", "nudge-core", "nudge-protocol", "nudge-server"]),
    ("nudge-hub", &["nudge-api", "nudge-cluster", "nudge-core", "nudge-protocol", "nudge-server"]),
    (
        "nudge-admission",
        &["nudge-api", "nudge-cluster", "nudge-core", "nudge-protocol", "nudge-server", "nudge-validation"],
    ),
    (
        "nudge-controller",
        &["nudge-api", "nudge-authoring", "nudge-cluster", "nudge-core", "nudge-protocol", "nudge-validation"],
    ),
    (
        "nudge-sources",
        &[
            "nudge-api",
            "nudge-authoring",
            "nudge-cluster",
            "nudge-core",
            "nudge-git",
            "nudge-oci",
            "nudge-outbound",
            "nudge-protocol",
            "nudge-validation",
        ],
    ),
    ("nudge-outbound", &["nudge-core"]),
    ("nudge-git", &["nudge-core", "nudge-outbound", "nudge-protocol"]),
    ("nudge-oci", &["nudge-core", "nudge-outbound", "nudge-protocol"]),
    ("nudge-analysis", &["nudge-api", "nudge-cluster", "nudge-core", "nudge-outbound", "nudge-protocol"]),
    ("nudge-authoring", &["nudge-api", "nudge-core", "nudge-protocol"]),
    (
        "kubectl-nudge",
        &[
            "nudge-api",
            "nudge-authoring",
            "nudge-cluster",
            "nudge-core",
            "nudge-git",
            "nudge-oci",
            "nudge-outbound",
            "nudge-protocol",
            "nudge-validation",
        ],
    ),
    (
        "nudge-injector",
        &[
            "nudge-admission",
            "nudge-analysis",
            "nudge-api",
            "nudge-certs",
            "nudge-cluster",
            "nudge-controller",
            "nudge-core",
            "nudge-git",
            "nudge-hub",
            "nudge-outbound",
            "nudge-protocol",
            "nudge-server",
            "nudge-sources",
        ],
    ),
    ("nudge-tests", &["nudge-api", "nudge-core", "nudge-protocol"]),
    // The simulator drives the functions that decide.
    ("nudge-bench", &["nudge-api", "nudge-core", "nudge-protocol", "nudge-tests"]),
    ("nudge-fuzz-replay", &[]),
    ("nudge-example-rust", &[]),
];

/// Libraries that these crates must not use, at any depth: they decide, and do nothing.
const PURE: [(&str, &[&str]); 5] = [
    ("nudge-protocol", &["tokio", "hyper", "kube-client", "rustls"]),
    ("nudge-api", &["tokio", "hyper", "kube-client", "rustls"]),
    ("nudge-core", &["tokio", "hyper", "kube-client", "rustls"]),
    ("nudge-validation", &["tokio", "hyper", "kube-client", "rustls", "reqwest"]),
    ("nudge-authoring", &["tokio", "hyper", "kube-client", "rustls"]),
];

/// The agent is paid for once per pod.
const NOT_IN_AGENT: [&str; 4] = ["kube", "kube-core", "k8s-openapi", "schemars"];

#[test]
fn no_dependency_points_up() -> Result<()> {
    let allowed: BTreeMap<&str, &[&str]> = LAYERS.into_iter().collect();
    let crates = workspace(false)?;
    let named: BTreeSet<&str> = crates.keys().map(String::as_str).collect();
    let known_names: BTreeSet<&str> = allowed.keys().copied().collect();
    ensure!(named == known_names, "the workspace has {named:?} and the layers {known_names:?}");
    for (name, uses) in &crates {
        for used in uses.iter().filter(|used| crates.contains_key(*used)) {
            ensure!(allowed[name.as_str()].contains(&used.as_str()), "{name} must not use {used}");
        }
    }
    Ok(())
}

#[test]
fn what_decides_does_nothing() -> Result<()> {
    for (name, refused) in PURE {
        let used = tree(name)?;
        for library in refused {
            ensure!(!used.contains(*library), "{name} must not use {library}");
        }
    }
    let used = tree("nudge-agent")?;
    ensure!(
        NOT_IN_AGENT.iter().all(|library| !used.contains(*library)),
        "the agent uses a library of the control plane"
    );
    Ok(())
}

/// The tests know the programs from the outside, and the pure crates' own tests stay light.
#[test]
fn tests_use_no_more_than_the_layers_below() -> Result<()> {
    let (normal, all) = (workspace(false)?, workspace(true)?);
    for name in PURE.map(|(name, _)| name).into_iter().chain(["nudge-tests"]) {
        let surplus: Vec<_> = all[name].iter().filter(|used| all.contains_key(*used)).collect();
        let surplus: Vec<_> = surplus.into_iter().filter(|used| !normal[name].contains(used)).collect();
        ensure!(surplus.is_empty(), "the tests of {name} must not use {surplus:?}");
    }
    Ok(())
}

/// Returns each crate of the workspace with its dependencies, those of its tests among them where requested.
fn workspace(tests: bool) -> Result<BTreeMap<String, Vec<String>>> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("no name");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().context("no dependencies")?;
            let normal = dependencies.iter().filter(|one| tests || one["kind"].as_str() != Some("dev"));
            Ok((name(package)?, normal.map(name).collect::<Result<_>>()?))
        })
        .collect()
}

/// Returns all that a crate's program or library holds.
fn tree(name: &str) -> Result<BTreeSet<String>> {
    let arguments = ["tree", "--package", name, "--edges", "normal,no-proc-macro", "--prefix", "none", "--locked"];
    let lines = cargo(&arguments)?;
    Ok(lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

fn cargo(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = command.args(arguments).arg("--offline").current_dir(root).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
