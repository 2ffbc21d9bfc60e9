//! `kubectl nudge hold` and `unhold`: no version of a config begins or continues for a while.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_protocol::ConfigName;
use serde_json::{Value, json};

use crate::dry_run::{Dry, DryRun};
use crate::failure::Failure;
use crate::session::Session;
use crate::{period, reason};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge hold game --reason='the tournament runs' --for=48h
  kubectl nudge hold game --reason='audit' --until=2026-12-24T18:00:00Z --protected

Nothing begins, no step goes out, and nothing is published. What pods run already is watched, and goes back if it is bad. Roll-backs and \
kubectl nudge use --now do not wait.")]
pub(crate) struct Hold {
    /// The config
    pub(crate) config: ConfigName,
    /// The reason, which users read who wait
    #[arg(long, value_name = "TEXT", value_parser = reason::parse)]
    pub(crate) reason: String,
    /// When the hold ends, such as 2026-12-24T18:00:00Z; by default, with kubectl nudge unhold
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "period")]
    pub(crate) until: Option<Timestamp>,
    /// For how long, such as 48h
    #[arg(long = "for", id = "period", value_name = "PERIOD", value_parser = period::parse)]
    pub(crate) period: Option<Duration>,
    /// Let only users end the hold who may override the config; you need that right, too
    #[arg(long)]
    pub(crate) protected: bool,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge unhold game

The command does not end a hold by a RolloutPolicy: an administrator of the cluster must end it.")]
pub(crate) struct Unhold {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a time; write it as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00"))
}

/// Returns when the hold ends, in whole seconds.
fn hold_end(until: Option<Timestamp>, period: Option<Duration>, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
    let until = match period {
        Some(period) => Some(now.checked_add(period).map_err(|_| Failure::usage("--for: the time is too long"))?),
        None => until,
    };
    let Some(until) = until else { return Ok(None) };
    if until <= now {
        return Err(Failure::usage(format!("the hold would have ended already: it is {now} now; choose a later time")));
    }
    Ok(Timestamp::from_second(until.as_second()).ok())
}

pub(crate) async fn hold(session: &Session, command: &Hold) -> Result<(), Failure> {
    let until = hold_end(command.until, command.period, Timestamp::now())?;
    let mut hold =
        json!({"reason": command.reason, "untilTime": until.map(|until| until.to_string()), "protected": null});
    if command.protected {
        hold["protected"] = true.into();
    }
    let name = command.config.as_str();
    let end_text = until.map_or_else(|| "until kubectl nudge unhold".to_owned(), |until| format!("until {until}"));
    let config = session.config(name).await?;
    set_hold(session, &config, hold, command.dry.dry_run).await?;
    session.out.line(&format!("config {name} on hold {end_text}{}", command.dry.dry_run.suffix()))
}

pub(crate) async fn unhold(session: &Session, command: &Unhold) -> Result<(), Failure> {
    let (name, dry) = (command.config.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    if config.spec.rollout.hold.is_none() {
        return session.out.line(&format!("config {name} is not on hold by its spec"));
    }
    set_hold(session, &config, Value::Null, dry).await?;
    session.out.line(&format!("config {name} not on hold any more{}", dry.suffix()))
}

/// Sets `spec.rollout.hold`, or removes it.
async fn set_hold(session: &Session, config: &VersionedConfig, hold: Value, dry: DryRun) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({"spec": {"rollout": {"hold": hold}}});
    let context = format!("setting spec.rollout.hold of config {name}");
    session.merge::<VersionedConfig>(name, &patch, dry, context).await
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::arguments::Arguments;

    #[test]
    fn a_hold_has_a_reason_and_at_most_one_end() {
        let is_accepted = |flags: &[&str]| {
            let arguments = ["kubectl-nudge", "hold", "game"].into_iter().chain(flags.iter().copied());
            Arguments::try_parse_from(arguments).is_ok()
        };
        assert!(is_accepted(&["--reason=x"]) && is_accepted(&["--reason=x", "--for=48h"]));
        assert!(is_accepted(&["--reason=x", "--until=2026-12-24T18:00:00+01:00"]));
        for bad in [
            &[][..],
            &["--reason= "],
            &["--for=1h"],
            &["--reason=x", "--for=1x"],
            &["--reason=x", "--until=tomorrow"],
            &["--reason=x", "--until=2026-12-24"],
            &["--reason=x", "--for=1h", "--until=2026-12-24T18:00:00Z"],
        ] {
            assert!(!is_accepted(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_end_is_later_than_now() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-11-25T12:00:00.7Z");
        assert_eq!(hold_end(None, None, now), Ok(None));
        assert_eq!(hold_end(None, Some(Duration::from_hours(2)), now), Ok(Some(at("2026-11-25T14:00:00Z"))));
        assert_eq!(hold_end(Some(at("2026-11-26T00:00:00Z")), None, now), Ok(Some(at("2026-11-26T00:00:00Z"))));
        for (until, period) in
            [(Some(at("2026-11-25T12:00:00Z")), None), (None, Some(Duration::ZERO)), (None, Some(Duration::MAX))]
        {
            assert!(hold_end(until, period, now).is_err(), "{until:?} {period:?}");
        }
    }
}
