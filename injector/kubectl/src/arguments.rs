//! Commands and flags; the help texts are their documentation.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use nudge_protocol::{ConfigName, VersionName};

use super::output::Format;
use super::period;
use super::restart::Workload;
use super::session::Connection;

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

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the rollout that was waited for failed, or was
rolled back; 124 it was still on when --timeout was over; 130 whoever waited pressed Ctrl-C."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Let Nudge work in a namespace
    Enable(Enable),
    /// Create a version of a config; the config too where it is not there
    Create(Create),
    /// Move pods to a version
    Use(Use),
    /// Move pods back to the version before, or away from one that is not proven
    Rollback(Rollback),
    /// List the versions of a config
    #[command(visible_alias = "history")]
    Versions(OfConfigs),
    /// Compare two versions key by key
    Diff(Diff),
    /// Show configs, and which pod runs what and why not what it should
    Status(Status),
    /// Print the version that is current
    Current(Named),
    /// Hold a rollout where it is
    Pause(Change),
    /// Let a rollout that was held go on
    Resume(Change),
    /// Delete a version, or a config with all of its versions
    Delete(Delete),
    /// Make plain ConfigMaps version 1.0.0 of configs of their names
    Baseline(Baseline),
    /// Restart the pods of a workload by its own rolling update
    Restart(Restart),
    /// Print the dictionary that a pod would see, or that of a config
    Get(Get),
    /// Print the script that makes kubectl complete these commands
    #[command(after_help = "Example:
  kubectl nudge completion > ~/.local/bin/kubectl_complete-nudge
  chmod +x ~/.local/bin/kubectl_complete-nudge")]
    Completion,
    /// What the script asks
    #[command(name = "__complete", hide = true)]
    Complete {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// Whether anything is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum DryRun {
    /// Do it
    #[default]
    None,
    /// Say what would be done; send no change
    Client,
    /// Let the API server check it, admission included, and store nothing
    Server,
}

impl DryRun {
    /// Behind what is told of a change.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// The flag that most commands have.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Dry {
    /// Change nothing
    #[arg(long, value_enum, default_value = "none", num_args = 0..=1, require_equals = true, default_missing_value = "client", value_name = "HOW")]
    pub(super) dry_run: DryRun,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge enable shop
  kubectl nudge enable shop --secrets --restart")]
pub(super) struct Enable {
    /// The namespace
    #[arg(value_name = "NAMESPACE")]
    pub(super) name: String,
    /// Let Nudge read and prune the namespace's Secrets, so that versions can have Secret parts
    #[arg(long)]
    pub(super) secrets: bool,
    /// Let Nudge restart workloads that take a version by a restart
    #[arg(long)]
    pub(super) restart: bool,
    /// The account that Nudge runs under
    #[arg(long, default_value = "nudge-system:nudge-injector", value_name = "NAMESPACE:NAME")]
    pub(super) service_account: String,
    #[command(flatten)]
    pub(super) dry: Dry,
}

/// Where the keys and values of a version come from.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Sources {
    /// A file whose name, or KEY, is the key; or a folder of such files. May be given several times
    #[arg(long, value_name = "[KEY=]PATH", help_heading = "Content")]
    pub(super) from_file: Vec<String>,
    /// A key and its value. May be given several times
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Content")]
    pub(super) from_literal: Vec<String>,
    /// A file of KEY=VALUE lines. May be given several times
    #[arg(long, value_name = "FILE", help_heading = "Content")]
    pub(super) from_env_file: Vec<PathBuf>,
    /// As --from-file, kept in a Secret
    #[arg(long, value_name = "[KEY=]PATH", help_heading = "Content")]
    pub(super) secret_from_file: Vec<String>,
    /// As --from-literal, kept in a Secret
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Content")]
    pub(super) secret_from_literal: Vec<String>,
    /// As --from-env-file, kept in a Secret
    #[arg(long, value_name = "FILE", help_heading = "Content")]
    pub(super) secret_from_env_file: Vec<PathBuf>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge create game 1.0.1 --from-file=config/
  kubectl nudge create game 1.0.1 --from-literal=lives=5 --from-env-file=game.env
  kubectl nudge create game 1.0.1 --from-file=config/ --secret-from-file=tls.key=/run/keys/game.key
  kubectl nudge create game 1.0.1 --from-file=config/ --dry-run=client -o yaml > game-1.0.1.yaml

A version can't be changed later. It may be larger than one object: it is then divided into parts, which are created all or not at all.")]
pub(super) struct Create {
    /// The config
    pub(super) config: ConfigName,
    /// The new version's name
    pub(super) version: VersionName,
    #[command(flatten)]
    pub(super) sources: Sources,
    /// Print the objects; not together with Secrets, whose values are never printed
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Format>,
    #[command(flatten)]
    pub(super) dry: Dry,
}

impl Create {
    /// Nothing is asked of any API server.
    pub(super) fn is_offline(&self) -> bool {
        self.dry.dry_run == DryRun::Client
    }
}

/// Whether the command stays until the rollout has ended.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Wait {
    /// Stay until the rollout has ended, and show how it goes
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to stay; 0 is without end
    #[arg(long, value_parser = period::parse, default_value = "0", value_name = "PERIOD", requires = "wait")]
    pub(super) timeout: Duration,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge use game 1.0.1
  kubectl nudge use game 1.0.1 --wait --timeout=10m || echo 'not current'

A version that has failed is tried again when it is named again.")]
pub(super) struct Use {
    /// The config
    pub(super) config: ConfigName,
    /// The version, which must be there and complete
    pub(super) version: VersionName,
    #[command(flatten)]
    pub(super) wait: Wait,
    #[command(flatten)]
    pub(super) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge rollback game --wait

While a rollout is on, and after one that failed, this is the version that is still current; else the one that was current before.")]
pub(super) struct Rollback {
    /// The config
    pub(super) config: ConfigName,
    #[command(flatten)]
    pub(super) wait: Wait,
    #[command(flatten)]
    pub(super) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge versions game
  kubectl nudge versions game -o name")]
pub(super) struct OfConfigs {
    /// The config
    pub(super) config: ConfigName,
    /// How to write it
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Format>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge diff game 1.0.0 1.0.1
  kubectl nudge diff game current 1.0.1

Of keys in Secrets it says that they were added, removed or changed, and never a value.")]
pub(super) struct Diff {
    /// The config
    pub(super) config: ConfigName,
    /// The older version, or `current`
    #[arg(value_name = "VERSION1")]
    pub(super) old: String,
    /// The newer version, or `current`
    #[arg(value_name = "VERSION2")]
    pub(super) new: String,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge status
  kubectl nudge status game
  kubectl nudge status -A -o json")]
pub(super) struct Status {
    /// The config; all of them where absent
    pub(super) config: Option<ConfigName>,
    /// Those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "config")]
    pub(super) all_namespaces: bool,
    /// How to write it
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Format>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge current game")]
pub(super) struct Named {
    /// The config
    pub(super) config: ConfigName,
}

#[derive(Clone, Debug, Args)]
pub(super) struct Change {
    /// The config
    pub(super) config: ConfigName,
    #[command(flatten)]
    pub(super) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge delete game 1.0.0
  kubectl nudge delete game

A version that is current, on its way or the one to go back to stays. A config with pods stays unless forced.")]
pub(super) struct Delete {
    /// The config
    pub(super) config: ConfigName,
    /// The version; without it the config goes with all of its versions
    pub(super) version: Option<VersionName>,
    /// Delete the config although pods use it: they keep what they have until they end
    #[arg(long, conflicts_with = "version")]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge baseline game
  kubectl nudge baseline --all

Not taken over are ConfigMaps of Kubernetes, those with an owner, immutable ones, and objects of versions.")]
pub(super) struct Baseline {
    /// The ConfigMap
    #[arg(required_unless_present = "all")]
    pub(super) name: Option<String>,
    /// All ConfigMaps of the namespace
    #[arg(long, conflicts_with = "name")]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge restart deployment/web
  kubectl nudge restart sts/db")]
pub(super) struct Restart {
    /// deployment/NAME, statefulset/NAME or daemonset/NAME
    #[arg(value_name = "KIND/NAME")]
    pub(super) workload: Workload,
    #[command(flatten)]
    pub(super) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge get web-7d4b9c-x2x7p
  kubectl nudge get game
  kubectl nudge get config/game --version 1.0.0 -o json")]
pub(super) struct Get {
    /// A config, or a pod with an agent; pod/NAME and config/NAME where there are both
    #[arg(value_name = "POD|CONFIG")]
    pub(super) name: String,
    /// This version of the config instead of the current one
    #[arg(long, value_name = "VERSION")]
    pub(super) version: Option<VersionName>,
    /// Print the values of Secrets too
    #[arg(long)]
    pub(super) show_secrets: bool,
    /// How to write it; YAML where absent
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Format>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn kubectl_flags_stand_anywhere() {
        let read = |line: &str| Arguments::try_parse_from(line.split(' ')).map_err(|error| error.to_string());
        let all =
            read("kubectl-nudge use game 1.0.1 --wait --timeout=5m -n shop --context dev --dry-run=server").unwrap();
        assert_eq!(all.connection.namespace.as_deref(), Some("shop"));
        let Command::Use(command) = all.command else { panic!("not use") };
        assert_eq!((command.wait.timeout, command.dry.dry_run), (Duration::from_mins(5), DryRun::Server));
        let Command::Pause(dry) = read("kubectl-nudge pause game --dry-run").unwrap().command else {
            panic!("not pause")
        };
        assert_eq!(dry.dry.dry_run, DryRun::Client);
        for bad in
            ["use game current", "use Game 1", "use game 1 --timeout=1x --wait", "delete game 1 --force", "baseline"]
        {
            assert!(read(&format!("kubectl-nudge {bad}")).is_err(), "{bad}");
        }
    }
}
