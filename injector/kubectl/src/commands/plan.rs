//! `kubectl nudge plan`: what a version would do to the pods of a config.

use std::path::PathBuf;

use clap::Args;
use nudge_protocol::{ConfigName, VersionName};

use crate::failure::{Failure, file_message};
use crate::manifest::read_file;
use crate::output::Format;
use crate::plan::{ConfigChange, Request, plan};
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge plan game
  kubectl nudge plan game 1.0.2
  kubectl nudge plan game -f game.yaml

Without a version, the plan is about the one that the config requests: that of spec.version, or of the text that it follows. With -f it is \
about what applying the file would request: the VersionedConfig of the config's name, the text of its ConfigMap or Secret, or the objects of a \
new version. An object of the file stands for the whole object. No value is printed.

The plan has the pods of each step, what happens to their containers, how long the move takes, and what will hold it: missing approvals \
and rights, windows, holds, rules, another config that is moved first. It is made of the pods that there are now, so it can change when pods \
come and go. What you may not read is named below NOT KNOWN. Nothing is changed.")]
pub(crate) struct PlanVersion {
    /// The config
    pub(crate) config: ConfigName,
    /// The version, which must be complete; by default the one that the config requests
    pub(crate) version: Option<VersionName>,
    /// A file with a VersionedConfig, ConfigMap or Secret of the config; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "version")]
    pub(crate) filename: Option<PathBuf>,
    /// The output format
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,
}

pub(crate) async fn run(session: &Session, command: &PlanVersion) -> Result<(), Failure> {
    let name = command.config.as_str();
    let request = match (&command.filename, &command.version) {
        (Some(path), _) => {
            let text = read_file(path).map_err(|error| Failure::usage(file_message(path, &error)))?;
            let change = ConfigChange::read(&text, name);
            let change = change.map_err(|fault| Failure::usage(format!("{}: {fault}", path.display())))?;
            Request::File(Box::new(change))
        }
        (None, Some(version)) => Request::Named(version.to_string()),
        (None, None) => Request::Requested,
    };
    let plan = Box::pin(plan(session, name, request)).await?;
    match command.output {
        Some(Format::Name) => session.out.line(&format!("versionedconfig.nudge.dev/{}", plan.config)),
        Some(format) => session.out.document(&plan, format),
        None => session.out.print(&plan.text()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::arguments::{Arguments, Command};

    fn parse(line: &str) -> Result<PlanVersion, String> {
        let words = ["kubectl-nudge", "plan"].into_iter().chain(line.split(' '));
        match Arguments::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Plan(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_version_or_a_file_is_planned() {
        assert!(parse("game").unwrap().version.is_none());
        assert_eq!(parse("game 1.0.2 -o json").unwrap().version.unwrap().as_str(), "1.0.2");
        assert_eq!(parse("game -f game.yaml").unwrap().filename, Some(PathBuf::from("game.yaml")));
        for bad in ["game 1 -f game.yaml", "-f game.yaml", "Game", "game current"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
