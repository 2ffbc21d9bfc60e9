//! The crates stand in layers: each may use those below it and no other. So do the modules directly below the root of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

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
    ("nudge-controller", &["nudge-api", "nudge-cluster", "nudge-core", "nudge-protocol", "nudge-validation"]),
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
    let known: BTreeSet<&str> = allowed.keys().copied().collect();
    ensure!(named == known, "the workspace has {named:?} and the layers {known:?}");
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
        let more: Vec<_> = all[name].iter().filter(|used| all.contains_key(*used)).collect();
        let more: Vec<_> = more.into_iter().filter(|used| !normal[name].contains(used)).collect();
        ensure!(more.is_empty(), "the tests of {name} must not use {more:?}");
    }
    Ok(())
}

#[test]
fn no_modules_of_a_crate_use_each_other() -> Result<()> {
    for root in roots()? {
        let mut uses = BTreeMap::new();
        for module in declared(&product(&root)?) {
            let mut used = BTreeSet::new();
            collect(root.parent().context("no folder")?, &module, 1, &mut used)?;
            used.remove(&module);
            uses.insert(module, used);
        }
        let cycle = cycle(uses);
        ensure!(cycle.is_empty(), "{}: modules use each other: {}", root.display(), cycle.join(" -> "));
    }
    Ok(())
}

/// The root files of all programs and libraries.
fn roots() -> Result<Vec<PathBuf>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"])?)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let built = |kind: &Value| kind == &json!(["lib"]) || kind == &json!(["bin"]);
    let paths = targets.filter(|target| built(&target["kind"])).map(|target| target["src_path"].as_str());
    paths.map(|path| path.map(PathBuf::from).context("no path")).collect()
}

/// A file without comments and tests.
fn product(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            // To the item's end.
            lines.find(|line| *line == "}" || !line.starts_with(' ') && line.ends_with(';'));
        } else {
            kept.push(line);
        }
    }
    Ok(kept.join("\n"))
}

/// The modules that a file declares, which are files of their own.
fn declared(text: &str) -> Vec<String> {
    let declared = text.lines().filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod "));
    declared
        .filter(|(public, _)| public.is_empty() || public.starts_with("pub"))
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Adds the names below the root of the crate that a module and those inside of it use. The module is in `folder`, `depth` below the root.
fn collect(folder: &Path, module: &str, depth: usize, used: &mut BTreeSet<String>) -> Result<()> {
    let (file, inside) = (folder.join(format!("{module}.rs")), folder.join(module));
    let text = product(&if file.exists() { file } else { inside.join("mod.rs") })?;
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        let at = text.match_indices(&root).filter(|(at, _)| !text[..*at].ends_with(is_path));
        used.extend(at.flat_map(|(at, _)| names(&text[at + root.len()..])));
    }
    declared(&text).iter().try_for_each(|module| collect(&inside, module, depth + 1, used))
}

/// The first names of the rest of a path, such as `a` and `b` of `{a::A, b}`.
fn names(rest: &str) -> Vec<String> {
    let first = |text: &str| text.trim_start().chars().take_while(|&letter| is_path(letter)).collect::<String>();
    let first = |text: &str| first(text).split(':').next().unwrap_or_default().to_owned();
    let Some(group) = rest.strip_prefix('{') else { return vec![first(rest)] };
    let (mut names, mut depth) = (vec![first(group)], 1);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(first(&group[at + 1..])),
            _ => {}
        }
    }
    names
}

fn is_path(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == ':'
}

/// Modules each of which uses the next, the first one again at the end; empty where there is no cycle.
fn cycle(mut uses: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    // What uses none of the others is in no cycle.
    loop {
        let left = uses.len();
        let names: BTreeSet<String> = uses.keys().cloned().collect();
        uses.retain(|_, used| !used.is_disjoint(&names));
        if uses.len() == left {
            break;
        }
    }
    let mut cycle: Vec<String> = uses.keys().next().cloned().into_iter().collect();
    while let Some(next) = cycle.last().and_then(|last| uses[last].iter().find(|used| uses.contains_key(*used))) {
        let known = cycle.iter().position(|name| name == next);
        cycle.push(next.clone());
        if let Some(start) = known {
            return cycle.split_off(start);
        }
    }
    cycle
}

/// Each crate of the workspace with its dependencies, those of its tests among them where asked for.
fn workspace(tests: bool) -> Result<BTreeMap<String, Vec<String>>> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("no name");
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().context("no dependencies")?;
            let normal = all.iter().filter(|one| tests || one["kind"].as_str() != Some("dev"));
            Ok((name(package)?, normal.map(name).collect::<Result<_>>()?))
        })
        .collect()
}

/// All that a crate's program or library holds.
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
