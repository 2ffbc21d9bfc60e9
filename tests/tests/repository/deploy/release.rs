//! The parts of `.ci/release` that need no build: images without a container engine, the table of sizes, and the
//! refusal of programs that are not static.

use std::env;
use std::fs;
use std::iter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::installation::deploy;
use nudge_tests::{Finished, tools};
use serde_json::Value;

use crate::deploy::manifests::{documents, read};

fn repository() -> PathBuf {
    deploy().join("..")
}

fn run(command: &mut Command) -> Result<Finished> {
    let finished = Finished::of(command)?;
    ensure!(finished.code == Some(0), "{command:?}: {finished:?}");
    Ok(finished)
}

/// Returns an image for two architectures, made in this folder: its archive and its digest.
fn image(folder: &Path) -> Result<(Vec<u8>, String)> {
    let program = folder.join("program");
    fs::write(&program, "a program")?;
    let parts = ["amd64", "arm64"].map(|arch| folder.join(arch));
    for part in &parts {
        let arch = part.file_name().context("no name")?;
        let file = format!("{}=/program:0111:cap_kill", program.display());
        let mut make = Command::new(repository().join("tests/node/make-image"));
        make.arg(part).args(["program:1.0.0", "--file", &file, "--user", "65532:65532", "--architecture"]).arg(arch);
        run(&mut make)?;
    }
    let out = folder.join("out.tar");
    let mut layout = Command::new(repository().join("deploy/images/layout"));
    let finished = run(layout.arg(&out).arg("program:1.0.0").args(&parts))?;
    Ok((fs::read(out)?, finished.stdout.trim().to_owned()))
}

#[test]
fn an_image_of_two_architectures_is_the_same_in_every_folder() -> Result<()> {
    if tools::find("python3")?.is_none() {
        return Ok(());
    }
    let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let ((bytes, digest), again) = (image(one.path())?, image(two.path())?);
    ensure!((bytes, digest.clone()) == again);

    // The digest is that of the index, and the index names both.
    let blob = |digest: &str| {
        let name = format!("blobs/{}", digest.replace(':', "/"));
        let mut tar = Command::new("tar");
        run(tar.arg("xOf").arg(one.path().join("out.tar")).arg(name)).map(|finished| finished.stdout)
    };
    let index: Value = serde_json::from_str(&blob(&digest)?)?;
    let manifests = index["manifests"].as_array().context("no manifests")?;
    let architectures: Vec<_> = manifests.iter().map(|manifest| &manifest["platform"]["architecture"]).collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    for manifest in manifests {
        let manifest: Value = serde_json::from_str(&blob(manifest["digest"].as_str().context("no digest")?)?)?;
        let config = blob(manifest["config"]["digest"].as_str().context("no digest")?)?;
        let config: Value = serde_json::from_str(&config)?;
        assert_eq!(config["config"]["User"], "65532:65532");
    }
    Ok(())
}

/// With a cargo that copies what is there: `deploy/images/build` takes what is static, starts and is small enough.
#[test]
fn what_is_released_is_static_starts_and_is_small() -> Result<()> {
    if tools::find("cc")?.is_none() || tools::find("readelf")?.is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    fs::write(at("main.c"), "int main(void) { return CODE; }")?;
    let cargo = r#"#!/bin/sh
        while [ "$1" != --target ]; do shift; done
        mkdir -p "$CARGO_TARGET_DIR/$2/release"
        for name in nudge-agent nudge-injector; do cp "$PROGRAM" "$CARGO_TARGET_DIR/$2/release/$name"; done"#;
    fs::write(at("cargo"), cargo)?;
    fs::set_permissions(at("cargo"), fs::Permissions::from_mode(0o755))?;
    let search = env::var_os("PATH").unwrap_or_default();
    let search = env::join_paths(iter::once(folder.path().to_owned()).chain(env::split_paths(&search)))?;
    for (flags, bytes, fault) in [
        (["-static", "-DCODE=0"], 0, None),
        (["-pie", "-DCODE=0"], 0, Some("nudge-agent is not static")),
        (["-static", "-DCODE=1"], 0, Some("nudge-agent does not start")),
        (["-static", "-DCODE=0"], 5_242_881, Some("nudge-agent has 5242881 bytes")),
    ] {
        let program = at("program");
        run(Command::new("cc").args(flags).arg(at("main.c")).arg("-o").arg(&program))?;
        if bytes > 0 && cfg!(target_arch = "x86_64") {
            fs::OpenOptions::new().write(true).open(&program)?.set_len(bytes)?;
        } else if bytes > 0 {
            continue;
        }
        let mut build = Command::new(repository().join("deploy/images/build"));
        build.arg(at("out")).env("PATH", &search).env("PROGRAM", &program).env("CARGO_TARGET_DIR", at("target"));
        let finished = Finished::of(&mut build)?;
        // 3 says that the capability can't be set here.
        assert_eq!(matches!(finished.code, Some(0 | 3)), fault.is_none(), "{flags:?}: {finished:?}");
        ensure!(finished.stderr.contains(fault.unwrap_or_default()), "{flags:?}: {finished:?}");
    }
    Ok(())
}

#[test]
fn more_than_five_percent_is_marked() -> Result<()> {
    if tools::find("python3")?.is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (before, now) = (folder.path().join("before"), folder.path().join("now"));
    fs::write(&before, "agent\tamd64\t1000\ninjector\tamd64\t1000\nplugin\tamd64\t1000\n")?;
    fs::write(&now, "agent\tamd64\t1050\ninjector\tamd64\t1051\nplugin\tamd64\t940\nother\tamd64\t1\n")?;
    let mut sizes = Command::new(repository().join(".ci/sizes"));
    let finished = run(sizes.arg(&now).env("NUDGE_SIZES", &before).env_remove("GITHUB_ACTIONS"))?;
    for row in
        ["| 1050 | 0.0 | +5.0% |", "| 1051 | 0.0 | **+5.1%** |", "| 940 | 0.0 | **-6.0%** |", "| 1 | 0.0 | new |"]
    {
        ensure!(finished.stdout.contains(row), "{row}: {}", finished.stdout);
    }
    assert_eq!(finished.stderr.lines().count(), 2, "{}", finished.stderr);
    Ok(())
}

/// What a release needs to have in common.
#[test]
fn the_chart_has_the_version_of_the_programs() -> Result<()> {
    let chart = read(&deploy().join("chart/Chart.yaml"))?;
    for field in ["version", "appVersion"] {
        ensure!(chart.contains(&format!("\n{field}: {}\n", env!("CARGO_PKG_VERSION"))), "{field}: {chart}");
    }
    Ok(())
}

/// What Artifact Hub shows of the chart.
#[test]
fn the_chart_lists_the_crds_as_they_are() -> Result<()> {
    let chart = documents(&read(&deploy().join("chart/Chart.yaml"))?)?.remove(0);
    let annotation = |name: &str| {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str().context("no annotation")?;
        documents(text).map(|mut all| all.remove(0))
    };
    let mut crds = vec![];
    for file in [
        "base/crd.yaml",
        "base/crd-policies.yaml",
        "base/crd-approvals.yaml",
        "components/sources/crd.yaml",
        "components/analysis/crd.yaml",
    ] {
        crds.extend(documents(&read(&deploy().join(file))?)?);
    }
    let listed = annotation("crds")?;
    let listed = listed.as_array().context("no list")?;
    assert_eq!(listed.len(), crds.len());
    for (listed, crd) in listed.iter().zip(&crds) {
        assert_eq!(listed["name"], crd["metadata"]["name"]);
        assert_eq!(listed["kind"], crd["spec"]["names"]["kind"]);
        assert_eq!(listed["version"], crd["spec"]["versions"][0]["name"]);
    }
    let example = annotation("crdsExamples")?;
    assert_eq!(example[0]["apiVersion"], "nudge.dev/v1alpha1");
    Ok(())
}

fn workflow(name: &str) -> Result<String> {
    read(&repository().join(".github/workflows").join(name))
}

#[test]
fn every_action_is_pinned_by_a_hash() -> Result<()> {
    let mut count = 0;
    for name in ["ci.yml", "release.yml"] {
        for action in workflow(name)?.lines().filter_map(|line| line.split_once("uses: ").map(|(_, action)| action)) {
            let (_, at) = action.split_once('@').with_context(|| format!("{name}: {action}"))?;
            let (hash, version) = at.split_once(" # v").with_context(|| format!("{name}: {action} has no version"))?;
            let hexadecimal = hash.chars().all(|digit| digit.is_ascii_hexdigit());
            ensure!(hash.len() == 40 && hexadecimal && !version.is_empty(), "{name}: {action}");
            count += 1;
        }
    }
    ensure!(count > 10, "{count}");
    Ok(())
}

/// The table of ROADMAP has a date for each minor that still runs in the CI, and nothing of others.
#[test]
fn the_workflow_runs_the_minors_that_are_supported() -> Result<()> {
    let ci = workflow("ci.yml")?;
    let run: Vec<_> = ci.lines().filter_map(|line| line.trim().strip_prefix("- minor: ")).collect();
    let roadmap = read(&repository().join("ROADMAP.md"))?;
    let rows = roadmap.lines().filter_map(|line| line.strip_prefix("| 1.")?.split_once(" | 20"));
    let supported: Vec<_> = rows.map(|(minor, _)| format!("\"1.{minor}\"")).collect();
    assert_eq!(run, supported);
    assert_eq!(run.len(), 4);
    Ok(())
}
