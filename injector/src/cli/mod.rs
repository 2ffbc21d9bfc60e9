//! The command line of `nudge-injector`.

mod analysis;
mod certificates;
mod cluster;
mod config_metrics;
mod content_key;
mod control_plane;
mod controllers;
mod first_contact;
mod health;
mod health_socket;
mod hub;
mod logging;
mod namespace_metrics;
mod open_files;
mod options;
mod probes;
mod roles;
mod serve;
mod serve_error;
mod settings;
mod sources;
mod trust_metrics;
mod waiting;
mod webhooks;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use nudge_api::{ConfigSource, RolloutAnalysis, RolloutPolicy, VersionApproval, VersionedConfig, crd_yaml};
use nudge_protocol::error_chain::chain;

pub use health_socket::{HealthQuestion, HealthSettings};
pub use settings::ServeSettings;

/// Nudge's control plane: versioned configuration that running pods pick up without a restart.
#[derive(Debug, Parser)]
#[command(name = "nudge-injector", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane, or the parts of it that --roles names.
    Serve(Box<ServeSettings>),
    /// Ask the process that serves in this container whether it is healthy; exit status 1 means no. For probes.
    Health(HealthSettings),
    /// Print a custom resource definition.
    Crd {
        /// Of which kind.
        #[arg(default_value = "VersionedConfig")]
        kind: CrdKind,
    },
}

/// The kinds of the API.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "verbatim")]
enum CrdKind {
    VersionedConfig,
    /// Sources of configs.
    ConfigSource,
    /// Policies for the rollouts of namespaces.
    RolloutPolicy,
    /// What users have decided about versions.
    VersionApproval,
    /// What is measured of rollouts.
    RolloutAnalysis,
}

/// Runs the command of this process's arguments.
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(settings) => serve::serve(*settings).map_err(|error| match error.help() {
            Some(help) => format!("{}\nhelp: {help}", chain(&error)),
            None => chain(&error),
        }),
        Command::Health(settings) => health_socket::ask(&settings).map_err(|error| chain(&error)),
        Command::Crd { kind } => {
            let text = match kind {
                CrdKind::VersionedConfig => crd_yaml::<VersionedConfig>(),
                CrdKind::ConfigSource => crd_yaml::<ConfigSource>(),
                CrdKind::RolloutPolicy => crd_yaml::<RolloutPolicy>(),
                CrdKind::VersionApproval => crd_yaml::<VersionApproval>(),
                CrdKind::RolloutAnalysis => crd_yaml::<RolloutAnalysis>(),
            };
            text.map_err(|error| chain(&error)).and_then(|text| {
                std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("standard output: {error}"))
            })
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "nudge-injector: {message}");
            ExitCode::FAILURE
        }
    }
}
