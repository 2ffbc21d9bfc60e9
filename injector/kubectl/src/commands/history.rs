//! `kubectl nudge history`: the last releases of a config, newest first.

use clap::Args;
use nudge_api::{Release, ReleaseOutcome, ReleaseRequester, VersionState, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::ConfigName;

use crate::failure::Failure;
use crate::output::Format;
use crate::output::changes::changes;
use crate::output::rollout_report::{override_text, release_reason};
use crate::output::table::table;
use crate::output::visible;
use crate::session::Session;
use crate::version::stored::readable_contents;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge history game
  kubectl nudge history game --diff
  kubectl nudge history game -o json

The command lists the last 20 releases: which version, who set spec.version to it, when, and how the release ended. For an edit of the \
text that a config follows, it names the field managers of the edit, which nobody has verified. --diff also shows what changed between the \
two versions, as kubectl nudge diff does. The command never shows a value of a key in a Secret.")]
pub(crate) struct History {
    /// The config
    pub(crate) config: ConfigName,
    /// Show what changed with each release
    #[arg(long, conflicts_with = "output")]
    pub(crate) diff: bool,
    /// The output format: the releases as the status has them, oldest first; names are those of versions, newest first
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,
}

const HEADERS: [&str; 8] = ["VERSION", "FROM", "OUTCOME", "BEGAN", "ENDED", "PODS", "REQUESTED-BY", "MESSAGE"];

pub(crate) async fn run(session: &Session, command: &History) -> Result<(), Failure> {
    let name = command.config.as_str();
    let config = session.config(name).await?;
    let releases = config.status.as_ref().map(|status| status.releases.as_slice()).unwrap_or_default();
    match command.output {
        Some(Format::Name) => session.out.lines(releases.iter().rev().map(|release| release.version.clone())),
        Some(format) => session.out.document(&releases, format),
        None if releases.is_empty() => {
            Err(Failure::new(format!("config {name} has no releases yet; see kubectl nudge status {name}")))
        }
        None if command.diff => print_diffs(session, &config, releases).await,
        None => {
            let rows: Vec<Vec<String>> = releases.iter().rev().map(row).collect();
            session.out.print(&table(&HEADERS, &rows))
        }
    }
}

fn row(release: &Release) -> Vec<String> {
    let Release { version, from_version, start_time, end_time, .. } = release;
    let pods = release.steps.last().map_or_else(|| "-".to_owned(), |step| step.pods.to_string());
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let requester = release.requester().to_string();
    let ended = end_time.as_ref().map_or_else(|| "-".to_owned(), |time| time.0.to_string());
    let (outcome, began) = (outcome_word(release).to_owned(), start_time.0.to_string());
    vec![version.clone(), or_dash(from_version), outcome, began, ended, pods, requester, message(release)]
}

fn outcome_word(release: &Release) -> &'static str {
    release.outcome.map_or("Open", ReleaseOutcome::as_str)
}

/// Returns why the release ended so, why all pods got it at once, and who approved it.
fn message(release: &Release) -> String {
    let cause = release_reason(release);
    let at_once = release.overridden.as_ref().map(override_text);
    let users: Vec<&str> = release.approvals.iter().map(|approval| approval.user.as_str()).collect();
    let approved = (!users.is_empty()).then(|| format!("approved by {}", users.join(", ")));
    cause.into_iter().chain(at_once).chain(approved).collect::<Vec<_>>().join("; ")
}

/// Prints the changes of each release, under a line that names the release.
async fn print_diffs(session: &Session, config: &VersionedConfig, releases: &[Release]) -> Result<(), Failure> {
    for (index, release) in releases.iter().rev().enumerate() {
        let text = diff(session, config.status.as_ref(), release).await?;
        let gap = if index == 0 { "" } else { "\n" };
        session.out.print(&format!("{gap}{}\n{text}", heading(release)))?;
    }
    Ok(())
}

fn heading(release: &Release) -> String {
    let origin_words =
        release.from_version.as_ref().map_or_else(|| " (the first)".to_owned(), |from| format!(" from {from}"));
    let requester_words = match release.requester() {
        ReleaseRequester::User(user) => format!(", requested by {user}"),
        managers @ ReleaseRequester::Managers(_) => format!(", written by {managers}"),
        ReleaseRequester::Unknown => String::new(),
    };
    let line = format!(
        "{}{origin_words}: {}, {}{requester_words}",
        release.version,
        outcome_word(release),
        release.start_time.0
    );
    visible::line(&line).into_owned()
}

/// Returns the changes, or why they can't be shown.
async fn diff(session: &Session, status: Option<&VersionedConfigStatus>, release: &Release) -> Result<String, Failure> {
    let Some(from) = &release.from_version else { return Ok(String::new()) };
    let mut sides = Vec::new();
    for name in [from, &release.version] {
        let missing_message = || format!("version {} does not exist any more\n", visible::line(name));
        let Some(version) = status.and_then(|status| status.version(name)) else { return Ok(missing_message()) };
        if version.state == VersionState::Broken {
            return Ok(format!("an object of version {} is gone or was replaced\n", visible::line(name)));
        }
        sides.push(readable_contents(session, version).await?);
    }
    let (Some(new), Some(old)) = (sides.pop(), sides.pop()) else { return Ok(String::new()) };
    let text = changes(old, new, (from, &release.version));
    Ok(if text.is_empty() { "nothing changed\n".to_owned() } else { text })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn release(change: &Value) -> Release {
        let mut value = json!({"version": "1.0.1", "fromVersion": "1.0.0", "startTime": "2026-11-24T00:00:00Z"});
        value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_row_says_what_became_of_it() {
        let open = release(&json!({"fromVersion": null}));
        assert_eq!(row(&open), ["1.0.1", "-", "Open", "2026-11-24T00:00:00Z", "-", "-", "<unknown>", ""]);
        let failed = release(&json!({
            "endTime": "2026-11-24T01:03:05Z", "outcome": "RolledBack", "requestedBy": "alice", "reason": "PodNotReady",
            "message": "pod a", "steps": [{"startTime": "2026-11-24T00:00:01Z", "pods": 1}, {"startTime": "2026-11-24T00:00:09Z", "pods": 8}],
            "override": {"reason": "outage", "requestedBy": "bob"}
        }));
        assert_eq!(row(&failed)[2..7], ["RolledBack", "2026-11-24T00:00:00Z", "2026-11-24T01:03:05Z", "8", "alice"]);
        assert_eq!(row(&failed)[7], "PodNotReady: pod a; at once for bob: outage");
        let approval = |user: &str| json!({"user": user, "approvalTime": "2026-11-24T00:00:00Z"});
        let approved = release(&json!({"outcome": "Current", "approvals": [approval("bob"), approval("carol")]}));
        assert_eq!(row(&approved)[7], "approved by bob, carol");
        assert_eq!(heading(&failed), "1.0.1 from 1.0.0: RolledBack, 2026-11-24T00:00:00Z, requested by alice");
        let edited = release(&json!({"unverifiedManagers": ["kubectl-edit", "helm"]}));
        assert_eq!(row(&edited)[6], "kubectl-edit, helm (not verified)");
        assert_eq!(
            heading(&edited),
            "1.0.1 from 1.0.0: Open, 2026-11-24T00:00:00Z, written by kubectl-edit, helm (not verified)"
        );
    }

    #[test]
    fn what_a_user_is_called_hides_nothing() {
        let evil = release(&json!({"requestedBy": "a\u{1b}[2J\n1.0.9 from 1.0.8"}));
        assert_eq!(heading(&evil).lines().count(), 1);
        assert!(!heading(&evil).contains('\u{1b}'));
        let evil = release(&json!({"unverifiedManagers": ["a\u{1b}[2J\n1.0.9 from 1.0.8"]}));
        assert!(heading(&evil).lines().count() == 1 && !heading(&evil).contains('\u{1b}'));
    }
}
