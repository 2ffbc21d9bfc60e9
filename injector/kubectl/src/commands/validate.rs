//! `kubectl nudge validate`: checks content by the rules of a config, before it becomes a version.

use std::collections::BTreeMap;

use clap::Args;
use nudge_api::PartKind;
use nudge_protocol::plural::counted;
use nudge_validation::Report;

use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;
use crate::version::rules::{NamedRules, check, is_path, rules_of_config, rules_of_file};
use crate::version::sources::{self, Sources};
use crate::version::stored::{ContentsByKind, labelled};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge validate config/ --rules=game.yaml
  kubectl nudge validate config/ --rules=game
  kubectl nudge validate 1.0.1 --rules=game

With a folder and a file the command sends no request to an API server. A name that has a slash, ends with
.yaml, .yml or .json, or is that of a folder, is a path: write ./config for a folder that may be missing.")]
pub(crate) struct Validate {
    /// A folder or file, as for --from-file of create; or a version
    #[arg(value_name = "DIR|VERSION")]
    pub(crate) what: String,
    /// A file with a VersionedConfig or a list of rules; or a config
    #[arg(long, value_name = "FILE|CONFIG")]
    pub(crate) rules: String,
}

impl Validate {
    /// Returns whether the command sends no request to an API server.
    pub(crate) fn is_offline(&self) -> bool {
        is_path(&self.what) && is_path(&self.rules)
    }
}

/// Checks a folder by a file.
pub(crate) fn run_offline(out: &Output, command: &Validate) -> Result<(), Failure> {
    let rules = rules_of_file(&command.rules)?;
    report(out, &command.what, &rules, &read_folder(&command.what)?)
}

pub(crate) async fn run(session: &Session, command: &Validate) -> Result<(), Failure> {
    let Validate { what, rules } = command;
    let rules = if is_path(rules) {
        rules_of_file(rules)?
    } else {
        rules_of_config(session, &session.config(rules).await?).await?
    };
    if is_path(what) {
        return report(&session.out, what, &rules, &read_folder(what)?);
    }
    let config = rules.config.as_deref().ok_or_else(|| {
        Failure::usage(format!(
            "{what} must be a folder, because --rules {} does not name a config; to check a version, use --rules=CONFIG",
            rules.name
        ))
    })?;
    let parts = labelled(session, config, what).await?;
    report(&session.out, &format!("version {what} of config {config}"), &rules, &parts)
}

fn read_folder(path: &str) -> Result<ContentsByKind, Failure> {
    let sources = Sources { from_file: vec![path.to_owned()], ..Sources::default() };
    let content = sources::read(&sources).map_err(|error| {
        Failure::usage(error.strip_prefix("--from-file: ").map_or_else(|| error.clone(), str::to_owned))
    })?;
    Ok([(PartKind::ConfigMap, content.open)].into())
}

/// Prints the findings, one in each line.
fn report(out: &Output, subject: &str, rules: &NamedRules, parts: &ContentsByKind) -> Result<(), Failure> {
    let NamedRules { name, count, .. } = rules;
    let keys: usize = parts.values().map(BTreeMap::len).sum();
    match check(rules, parts.iter().map(|(kind, content)| (*kind, content))) {
        Ok(()) if *count == 0 => out.line(&format!("{name} has no rules; see spec.validation")),
        Ok(()) => {
            let (keys, rules) = (counted(keys, "key"), counted(*count, "rule"));
            out.line(&format!("{subject} follows the rules of {name} ({keys}, {rules})"))
        }
        Err(Report { findings }) => {
            out.lines(findings.iter().map(ToString::to_string))?;
            Err(Failure::new(format!("{subject} breaks the rules of {name}")))
        }
    }
}
