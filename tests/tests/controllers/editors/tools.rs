//! The tools that write a ConfigMap.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nudge_api::{ConditionType, PartKind};
use nudge_tests::Helm;
use serde_json::{Value, json};

use super::followed::{Followed, Origin, reason};

/// A tool that writes three texts: the first makes the ConfigMap, and the third comes in the middle of the move to the
/// second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Apply,
    ApplyServerSide,
    Replace,
    ReplaceForce,
    Patch,
    /// Deletes the ConfigMap, and makes it anew when Nudge knows that it is gone.
    Recreate,
    /// Makes the ConfigMap immutable in the end.
    Seal,
    HelmUpgrade,
    HelmRollback,
    /// Replaces the ConfigMap, as Helm does with `upgrade --force`. The label by which it is followed is lost each
    /// time.
    HelmForce,
}

impl Tool {
    /// Returns all tools, each with the name of its config.
    pub(super) const ALL: [(Self, &'static str, Origin); 10] = [
        (Self::Apply, "applied", Origin::Baseline),
        (Self::ApplyServerSide, "applied-by-server", Origin::Hand(PartKind::ConfigMap)),
        (Self::Replace, "replaced", Origin::Baseline),
        (Self::ReplaceForce, "replaced-by-force", Origin::Hand(PartKind::ConfigMap)),
        (Self::Patch, "edited", Origin::Hand(PartKind::ConfigMap)),
        (Self::Recreate, "created-again", Origin::Baseline),
        (Self::Seal, "sealed", Origin::Baseline),
        (Self::HelmUpgrade, "upgraded", Origin::Baseline),
        (Self::HelmRollback, "rolled-back", Origin::Hand(PartKind::ConfigMap)),
        (Self::HelmForce, "upgraded-by-force", Origin::Baseline),
    ];

    /// Returns the field manager of its second text. Helm's is the name of its program.
    pub(super) fn manager(self) -> Option<&'static str> {
        match self {
            Self::Apply => Some("kubectl-client-side-apply"),
            Self::ApplyServerSide => Some("kubectl"),
            Self::Replace | Self::ReplaceForce => Some("kubectl-replace"),
            Self::Patch | Self::Recreate | Self::Seal => Some("kubectl-patch"),
            Self::HelmForce => Some("helm"),
            Self::HelmUpgrade | Self::HelmRollback => None,
        }
    }

    /// Returns the texts.
    pub(super) fn texts(self) -> [&'static str; 3] {
        if self == Self::HelmRollback { ["one", "two", "one"] } else { ["one", "two", "three"] }
    }

    /// Writes one of the texts.
    pub(super) async fn write(self, followed: &Followed<'_>, helm: Option<&HelmChart>, index: usize) -> Result<()> {
        let (name, value) = (followed.name, self.texts()[index]);
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"number": value}});
        let verb: &[&str] = match (self, index) {
            (Self::HelmUpgrade | Self::HelmRollback, _) => {
                let chart = helm.context("no helm")?.clone();
                let (kubeconfig, space) = (followed.cluster.kubeconfig(), followed.space.name.clone());
                let run = move || chart.run(self, index, (name, value), &space, &kubeconfig);
                return tokio::task::spawn_blocking(run).await?;
            }
            (Self::Apply, _) => &["apply"],
            (Self::ApplyServerSide, _) => &["apply", "--server-side"],
            (Self::Replace | Self::Patch | Self::Recreate | Self::Seal, 0) => &["create"],
            (Self::Replace, _) => &["replace"],
            (Self::ReplaceForce, _) => &["replace", "--force"],
            // The library of Helm has no such option.
            (Self::HelmForce, 0) => &["create", "--field-manager=helm"],
            (Self::HelmForce, _) => &["replace", "--field-manager=helm"],
            (Self::Recreate, 2) => {
                kubectl(followed, &["delete"], &map).await?;
                followed.wait_for("it is gone", |status| reason(status, ConditionType::Fetched) == "NoText").await?;
                &["create"]
            }
            (Self::Patch | Self::Recreate | Self::Seal, _) => {
                let patch = json!({"data": map["data"], "immutable": (self, index) == (Self::Seal, 2)}).to_string();
                return kubectl(followed, &["patch", "--patch", &patch], &map).await;
            }
        };
        kubectl(followed, verb, &map).await
    }
}

async fn kubectl(followed: &Followed<'_>, verb: &[&str], map: &Value) -> Result<()> {
    let arguments = [verb, &["--namespace", &followed.space.name]].concat();
    followed.cluster.kubectl_on(&arguments, &map.to_string()).await?.context("no kubectl")?;
    Ok(())
}

/// Helm, and a chart that has a ConfigMap.
#[derive(Clone)]
pub(super) struct HelmChart {
    helm: std::sync::Arc<Helm>,
    folder: std::sync::Arc<tempfile::TempDir>,
}

impl HelmChart {
    /// Finds Helm, and writes the chart. `None` without Helm.
    pub(super) fn find() -> Result<Option<Self>> {
        let Some(helm) = Helm::find(Path::new(env!("CARGO_TARGET_TMPDIR")))? else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("templates"))?;
        std::fs::write(folder.path().join("Chart.yaml"), "{apiVersion: v2, name: text, version: 0.1.0}\n")?;
        std::fs::write(
            folder.path().join("templates/map.yaml"),
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Name }}}, data: {number: {{ .Values.number }}}}\n",
        )?;
        Ok(Some(Self { helm: helm.into(), folder: folder.into() }))
    }

    /// Installs or upgrades the release of this name with a value, or rolls it back.
    fn run(&self, tool: Tool, index: usize, (name, value): (&str, &str), space: &str, kubeconfig: &Path) -> Result<()> {
        let (chart, kubeconfig) = (self.folder.path().display().to_string(), kubeconfig.display().to_string());
        let on = ["--namespace", space, "--kubeconfig", &kubeconfig];
        let finished = if (tool, index) == (Tool::HelmRollback, 2) {
            self.helm.run_with_defaults(&[&["rollback", name, "1"], &on[..]].concat())?
        } else {
            let verb = if index == 0 { "install" } else { "upgrade" };
            self.helm.run(&[&[verb, name, &*chart], &on[..]].concat(), &json!({"number": value}))?
        };
        ensure!(finished.code == Some(0), "{tool:?} {index}: {}", finished.stderr);
        Ok(())
    }
}
