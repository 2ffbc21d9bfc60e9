//! `nudge-agent use`: makes another version current.

use std::path::PathBuf;
use std::process::ExitCode;

use nudge_protocol::error_chain::message;
use nudge_protocol::{ConfigName, VersionName};

use super::output::{fail, print};
use crate::source::dir::switch_current;

/// Make a version current
///
/// Checks the version first: one that can't be read completely does not become current. The switch is one atomic step,
/// which every running `nudge-agent exec` on the same folder sees at once.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the configuration
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The config
    config: ConfigName,
    /// The version, the name of a folder in DIR/CONFIG
    version: VersionName,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let Args { dir, config, version } = args;
    match switch_current(dir, config, version) {
        Err(error) => fail(&message(&error)),
        Ok(Some(before)) if before == *version => print(format!("{config}: {version} is current already\n").as_bytes()),
        Ok(Some(before)) => print(format!("{config}: {before} -> {version}\n").as_bytes()),
        Ok(None) => print(format!("{config}: {version} is current\n").as_bytes()),
    }
}
