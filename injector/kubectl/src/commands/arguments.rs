//! The command line: the list of commands. The doc comments are the help texts.

use clap::{Parser, Subcommand};

use super::{
    approve, baseline, create, current, delete, diff, edit, enable, export, follow, get, history, hold, import, inject,
    plan, push, retry, rollback, set, source, status, ui, use_version, validate, versions,
};
use crate::session::ConnectionOptions;

/// Versioned configuration that running pods pick up without a restart.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-nudge",
    bin_name = "kubectl nudge",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  kubectl nudge enable shop
  kubectl nudge create game 1.0.1 --from-file=config/ --secret-from-literal=password=\"$PASSWORD\"
  kubectl nudge use game 1.0.1 --wait
  kubectl nudge status game
  kubectl nudge rollback game --wait

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the rollout that the command waited for failed or was
rolled back; 124 the rollout was not finished when --timeout ended; 130 you pressed Ctrl-C while the
command waited."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let Nudge work in a namespace
    Enable(enable::Enable),
    /// Take away all that enable gives Nudge in a namespace
    Disable(enable::Disable),
    /// Give the pods of a workload an agent, and show before what that does to them
    Inject(inject::Inject),
    /// Create a version of a config, and the config if it does not exist
    Create(Box<create::Create>),
    /// Push a folder to a registry, as an artifact that versions can be made of
    Push(push::Push),
    /// Check a content by the rules of a config
    Validate(validate::Validate),
    /// Show what a version would do to pods: the steps, the containers, the time, and what holds it
    Plan(plan::PlanVersion),
    /// Move pods to a version
    Use(use_version::Use),
    /// Move pods back to the previous version, or to the current one during a rollout
    Rollback(rollback::Rollback),
    /// Try the version that failed again
    Retry(retry::Retry),
    /// Follow the text of a config's ConfigMap or Secret again: each edit is a version
    Follow(follow::Follow),
    /// Set or remove keys of the text that a config follows
    Set(set::Set),
    /// Edit the text that a config follows, in an editor
    Edit(edit::Edit),
    /// Approve a version, or withdraw the approval
    Approve(approve::Approve),
    /// Deny a version, or withdraw the denial
    Deny(approve::Deny),
    /// List the versions of a config
    Versions(versions::Versions),
    /// List the last releases of a config: which version, who requested it, and how the release ended
    History(history::History),
    /// Compare two versions key by key
    Diff(diff::Diff),
    /// Show configs, or one config with the version of each pod
    Status(status::Status),
    /// Print the current version
    Current(current::Current),
    /// Let no version of a config begin or continue for a while
    Hold(hold::Hold),
    /// End the hold of a config
    Unhold(hold::Unhold),
    /// Delete a version, or a config with all its versions
    Delete(delete::Delete),
    /// Make existing ConfigMaps version 1.0.0 of configs with the same names
    Baseline(baseline::Baseline),
    /// List the sources of configs, sync, suspend or resume them
    Source(source::Source),
    /// Print the dictionary that a pod sees, or the dictionary of a config
    Get(get::Get),
    /// Write configs with their versions and states to a file
    Export(export::Export),
    /// Restore what an export has
    Import(import::Import),
    /// Show configs and their rollouts in the browser
    Ui(ui::Ui),
    /// Print the script that makes kubectl complete these commands
    #[command(after_help = "Example:
  kubectl nudge completion > ~/.local/bin/kubectl_complete-nudge
  chmod +x ~/.local/bin/kubectl_complete-nudge")]
    Completion,
    /// Print completions for the script
    #[command(name = "__complete", hide = true)]
    Complete {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory as _;

    use super::*;
    use crate::dry_run::DryRun;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_export_is_a_file_that_export_and_import_name_alike() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).map(|read| read.command);
        for flag in ["-f nudge.yaml", "--filename=nudge.yaml"] {
            let Command::Export(export) = parse(&format!("kubectl-nudge export {flag}")).unwrap() else {
                panic!("not export")
            };
            let Command::Import(import) = parse(&format!("kubectl-nudge import {flag}")).unwrap() else {
                panic!("not import")
            };
            assert_eq!(export.filename.as_ref(), Some(&import.filename));
        }
        assert!(parse("kubectl-nudge export").is_ok());
        for bad in ["export -o yaml", "export --output=yaml", "import nudge.yaml", "import"] {
            assert!(parse(&format!("kubectl-nudge {bad}")).is_err_and(|error| error.exit_code() == 2), "{bad}");
        }
    }

    #[test]
    fn kubectl_flags_stand_anywhere() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).map_err(|error| error.to_string());
        let all =
            parse("kubectl-nudge use game 1.0.1 --wait --timeout=5m -n shop --context dev --dry-run=server").unwrap();
        assert_eq!(all.connection.namespace.as_deref(), Some("shop"));
        let Command::Use(command) = all.command else { panic!("not use") };
        assert_eq!((command.wait.timeout, command.dry.dry_run), (Duration::from_mins(5), DryRun::Server));
        let Command::Unhold(command) = parse("kubectl-nudge unhold game --dry-run").unwrap().command else {
            panic!("not unhold")
        };
        assert_eq!(command.dry.dry_run, DryRun::Client);
        for bad in
            ["use game current", "use Game 1", "use game 1 --timeout=1x --wait", "delete game 1 --force", "baseline"]
        {
            assert!(parse(&format!("kubectl-nudge {bad}")).is_err(), "{bad}");
        }
    }
}
