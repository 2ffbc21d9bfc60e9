//! Helm as users run it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use crate::{Finished, python, tools};

/// The program helm, or else its library, which Python has.
pub struct Helm(Vec<PathBuf>);

impl Helm {
    /// Finds the program, or installs the library in this folder. `None` where neither can be had, and the test is to
    /// be skipped.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        if let Some(helm) = tools::look("helm") {
            return Ok(Some(Self(vec![helm])));
        }
        // Debian has no helm, and the library only for amd64.
        if std::env::consts::ARCH != "x86_64" {
            tools::skipped("there is no helm");
            return Ok(None);
        }
        let python = python::environment(folder, "helm")?;
        Ok(python.map(|python| Self(vec![python, tools::client("helm/helm.py")])))
    }

    /// Runs a command with these values.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: &[A], values: &Value) -> Result<Finished> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), values.to_string())?;
        Finished::of(self.command(arguments).arg("-f").arg(file.path()))
    }

    /// Runs a command that takes no values.
    pub fn run_with_defaults<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Finished> {
        Finished::of(&mut self.command(arguments))
    }

    fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).args(arguments);
        command
    }
}
