//! A component of `deploy/components` that is a Deployment of its own, on the cluster.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::installation::deploy;
use serde_json::Value;

use crate::place::Place;

/// A component of the installation.
pub(crate) struct Component {
    /// The folder below `deploy/components`.
    pub(crate) folder: &'static str,
    /// The role's Deployment.
    pub(crate) deployment: &'static str,
}

impl Component {
    /// Returns its objects, with the cluster's names for their images. kubectl of Kubernetes 1.20 knows no components.
    fn objects(&self, place: &Place) -> Result<String> {
        let folder = deploy().join("components").join(self.folder);
        let list: Value = serde_saphyr::from_str(&fs::read_to_string(folder.join("kustomization.yaml"))?)?;
        let files = list["resources"].as_array().context("no resources")?.iter().filter_map(Value::as_str);
        let texts = files.map(|file| fs::read_to_string(folder.join(file))).collect::<Result<Vec<_>, _>>()?;
        Ok(texts.join("\n---\n").replace("image: nudge-", &format!("image: {}nudge-", place.images())))
    }

    fn kubectl(&self, place: &Place, arguments: &[&str]) -> Result<()> {
        let mut command = place.command("kubectl");
        command.args(arguments).args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().context("no input")?.write_all(self.objects(place)?.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Installs the component.
    pub(crate) fn install(&self, place: &Place) -> Result<()> {
        self.kubectl(place, &["apply", "--server-side"])
    }

    /// Removes it, with all objects of its kinds.
    pub(crate) fn remove(&self, place: &Place) -> Result<()> {
        self.kubectl(place, &["delete", "--ignore-not-found"])
    }
}
