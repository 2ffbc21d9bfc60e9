//! `kubectl nudge use`: moves pods to a version.

use clap::Args;
use nudge_api::VersionedConfig;
use nudge_protocol::plural::counted;
use nudge_protocol::{ConfigName, VersionName};
use tokio::time::{Instant, sleep};

use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::reason;
use crate::rollout::switch::{CONTROL_PLANE_TIMEOUT, READ_INTERVAL, switch};
use crate::rollout::wait::Wait;
use crate::session::Session;
use crate::version::stored::{objects, sealed};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge use game 1.0.1
  kubectl nudge use game 1.0.1 --wait --timeout=10m || echo 'not current'
  kubectl nudge use game 1.0.2 --now --reason='the old password is revoked'

A version that failed is tried again when you use it again.

--now assigns the version to every pod in one write: without steps, also where the config is on hold or waits for another one. \
Nothing is tried out, and no pod is left to compare with, so a bad version reaches every pod before it is rolled back. Use it when \
waiting does more harm than a bad version would, such as when a password was revoked. The assignment holds for an hour: \
then spec.rollout.override has no effect any more, and pods keep what they run. If you run the command again before the version is current, it only moves the end. To go back, use kubectl nudge rollback, which needs no --now.")]
pub(crate) struct Use {
    /// The config
    pub(crate) config: ConfigName,
    /// The version, which must be complete
    pub(crate) version: VersionName,
    /// Assign the version to every pod at once, without steps; holds for an hour
    #[arg(long, requires = "reason")]
    pub(crate) now: bool,
    /// Why the rollout can't wait for its steps; it is kept in spec.rollout.override (with --now)
    #[arg(long, requires = "now", value_name = "TEXT", value_parser = reason::parse)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Use) -> Result<(), Failure> {
    let version = command.version.as_str();
    let config = wait_until_complete(session, command.config.as_str(), version).await?;
    switch(session, &config, version, command.reason.as_deref(), command.wait, command.dry.dry_run).await
}

/// Waits until the version is complete, and returns the config. Refuses a version without objects at once.
async fn wait_until_complete(session: &Session, name: &str, version: &str) -> Result<VersionedConfig, Failure> {
    let deadline = Instant::now() + CONTROL_PLANE_TIMEOUT;
    loop {
        let config = session.config(name).await?;
        let Err(refusal) = sealed(&config, version) else { return Ok(config) };
        let (objects, _) = objects(session, name, Some(version)).await?;
        if objects.is_empty() {
            return Err(refusal);
        }
        if Instant::now() >= deadline {
            let (parts, namespace) = (counted(objects.len(), "object"), &session.namespace);
            return Err(Failure::new(format!(
                "version {version} of config {name} has {parts} and is not complete; see kubectl nudge versions {name}, and \
                 check that namespace {namespace} is enabled and that Nudge runs"
            )));
        }
        sleep(READ_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::arguments::{Arguments, Command};

    fn parse(flags: &[&str]) -> Result<Option<String>, clap::error::ErrorKind> {
        let arguments = ["kubectl-nudge", "use", "game", "2"].into_iter().chain(flags.iter().copied());
        match Arguments::try_parse_from(arguments).map_err(|error| error.kind())?.command {
            Command::Use(command) => Ok(command.reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_help_says_when_the_override_ends() {
        let mut command = <Arguments as clap::CommandFactory>::command();
        let help = command.find_subcommand_mut("use").unwrap().render_long_help().to_string();
        assert_eq!(crate::rollout::switch::OVERRIDE_SECONDS, 3600);
        assert_eq!(help.matches("for an hour").count(), 2, "{help}");
    }

    #[test]
    fn now_and_its_reason_come_together() {
        use clap::error::ErrorKind::{MissingRequiredArgument, ValueValidation};
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&["--now", "--reason", " leaked key "]), Ok(Some("leaked key".to_owned())));
        for alone in [&["--now"][..], &["--reason=x"]] {
            assert_eq!(parse(alone), Err(MissingRequiredArgument), "{alone:?}");
        }
        let longest = "é".repeat(reason::MAX_CHARACTERS);
        assert_eq!(parse(&["--now", "--reason", &longest]), Ok(Some(longest.clone())));
        for bad in [" ", &format!("{longest}x")] {
            assert_eq!(parse(&["--now", "--reason", bad]), Err(ValueValidation), "{bad:?}");
        }
    }
}
