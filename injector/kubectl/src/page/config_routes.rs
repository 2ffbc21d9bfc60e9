//! The endpoints about one config: the origins of its versions, the difference of two, and the acts.

use std::time::Duration;

use hyper::StatusCode;
use nudge_api::VersionedConfig;
use nudge_core::governance::short_digest;
use nudge_protocol::{ConfigName, VersionName};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::Page;
use super::act::{Act, ActArguments, command_line};
use super::creation;
use super::permitted_acts::permitted_acts;
use super::reply::{PageAnswer, PageRefusal, json as reply};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::changes::{KeyChange, list};
use crate::session::Session;
use crate::version::digest;
use crate::version::stored::{readable_contents, sealed};

/// The maximum size of the text of a key's change. The command shows longer texts.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// The time that a command may take. Another one has to wait for it.
const ACT_TIMEOUT: Duration = Duration::from_mins(1);
/// The maximum size of the texts of all changes together.
const MAX_ALL_TEXTS_BYTES: usize = 2 * 1024 * 1024;

/// A request about a config that the page shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigRequest {
    namespace: String,
    config: String,
}

/// A request for the difference of two versions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffRequest {
    namespace: String,
    config: String,
    old: String,
    new: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActRequest {
    namespace: String,
    config: String,
    act: String,
    version: Option<String>,
    /// The digest of the version, as the page has shown it.
    digest: Option<String>,
    reason: Option<String>,
    /// The command that the confirmation showed; absent in a request for that command.
    command: Option<String>,
}

/// A request that was read, or the refusal.
type Parsed<T> = Result<T, PageRefusal>;

/// Returns the config if the page shows it, as the watch saw it last.
fn shown_config(page: &Page, namespace: &str, config: &str) -> Parsed<VersionedConfig> {
    let key = (namespace.to_owned(), config.to_owned());
    let config = page.feed.state().configs().and_then(|configs| configs.get(&key)).cloned();
    config.ok_or_else(|| PageRefusal::new(StatusCode::NOT_FOUND, "the page shows no such config"))
}

/// Returns a session in the namespace, whose output is kept for the page.
fn session(page: &Page, namespace: &str) -> Session {
    Session { client: page.session.client.clone(), namespace: namespace.to_owned(), out: Output::keeping() }
}

/// Answers with the creation of each version.
pub(super) async fn creations(page: &Page, request: Parsed<ConfigRequest>) -> PageAnswer {
    let ConfigRequest { namespace, config } = request?;
    let config = shown_config(page, &namespace, &config)?;
    Ok(reply(StatusCode::OK, &creation::creations(&session(page, &namespace), &config).await?))
}

/// Answers with the difference of two versions, by key. For a value of a Secret, the answer says only whether it has
/// changed.
pub(super) async fn diff(page: &Page, request: Parsed<DiffRequest>) -> PageAnswer {
    let DiffRequest { namespace, config, old, new } = request?;
    let config = shown_config(page, &namespace, &config)?;
    let page_session = session(page, &namespace);
    let (digests, changes) = changes(&page_session, &config, &old, &new).await?;
    // The warnings name the objects that the user may not read.
    let warnings = page_session.out.kept_lines();
    Ok(reply(StatusCode::OK, &json!({"digests": digests, "changes": bound_texts(changes), "warnings": warnings})))
}

/// Returns the digests of both versions, and the changes.
async fn changes(
    session: &Session,
    config: &VersionedConfig,
    old: &str,
    new: &str,
) -> Result<([String; 2], Vec<KeyChange>), Failure> {
    let (old, new) = (sealed(config, old)?, sealed(config, new)?);
    let names = (old.version.as_str(), new.version.as_str());
    let changes = list(readable_contents(session, old).await?, readable_contents(session, new).await?, names);
    Ok(([old, new].map(short_digest), changes))
}

/// Removes texts that are too long to be shown.
fn bound_texts(mut changes: Vec<KeyChange>) -> Vec<KeyChange> {
    let mut room = MAX_ALL_TEXTS_BYTES;
    for change in &mut changes {
        if change.text.len() > MAX_TEXT_BYTES.min(room) {
            change.text.clear();
            change.instead = Some("too long to be shown here; see kubectl nudge diff");
        }
        room -= change.text.len();
    }
    changes
}

/// Answers with the acts, and whether the user may do them.
pub(super) async fn acts(page: &Page, request: Parsed<ConfigRequest>) -> PageAnswer {
    let ConfigRequest { namespace, config } = request?;
    let config = shown_config(page, &namespace, &config)?;
    Ok(reply(StatusCode::OK, &permitted_acts(&page.session, &config, page.options.acts).await?))
}

/// The command that does the same as an act.
struct TypedCommand {
    words: Vec<String>,
    /// The whole line, as it can be typed.
    typed: String,
}

fn command(page: &Page, request: &ActRequest) -> Parsed<TypedCommand> {
    let wrong = || PageRefusal::new(StatusCode::BAD_REQUEST, "there is no such act, config or version");
    let act: &Act = page.options.acts.iter().find(|act| act.name == request.act).ok_or_else(wrong)?;
    let version = request.version.as_deref().map(VersionName::new).transpose().map_err(|_| wrong())?;
    let digest = request.digest.as_deref().map(digest::parse).transpose().map_err(|_| wrong())?;
    let config = ConfigName::new(&request.config).map_err(|_| wrong())?;
    let arguments = ActArguments { config, version, digest, reason: request.reason.clone() };
    let words = act.words(&arguments)?;
    let typed = command_line(&words, &request.namespace, &page.options.flags);
    Ok(TypedCommand { words, typed })
}

/// Answers with the command that does the same as an act.
pub(super) fn preview(page: &Page, request: Parsed<ActRequest>) -> PageAnswer {
    let request = request?;
    shown_config(page, &request.namespace, &request.config)?;
    let TypedCommand { typed, .. } = command(page, &request)?;
    Ok(reply(StatusCode::OK, &json!({"command": typed})))
}

/// Runs the command if it is the one that was shown.
pub(super) async fn act(page: &Page, request: Parsed<ActRequest>) -> PageAnswer {
    let request = request?;
    shown_config(page, &request.namespace, &request.config)?;
    let TypedCommand { words, typed } = command(page, &request)?;
    if request.command.as_deref() != Some(&typed) {
        return Err(PageRefusal::new(StatusCode::CONFLICT, "this is not the command that was shown"));
    }
    let Ok(_permit) = page.acting.try_acquire() else {
        return Err(PageRefusal::new(StatusCode::CONFLICT, "another command is running; wait until it ends"));
    };
    page.session.out.note(&typed);
    let page_session = session(page, &request.namespace);
    let out = page_session.out.clone();
    match timeout(ACT_TIMEOUT, (page.options.run)(page_session, words)).await {
        Ok(Ok(())) => Ok(reply(StatusCode::OK, &json!({"lines": out.kept_lines()}))),
        Ok(Err(failure)) => Err(failure.into()),
        Err(_) => Err(PageRefusal::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the API server does not answer; whether the command had an effect is not known: look at the config before you try again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_left_out() {
        let change =
            |bytes: usize| KeyChange { key: "k".to_owned(), what: "changed", instead: None, text: "x".repeat(bytes) };
        let lengths =
            |changes: Vec<KeyChange>| bound_texts(changes).iter().map(|change| change.text.len()).collect::<Vec<_>>();
        assert_eq!(
            lengths(vec![change(MAX_TEXT_BYTES), change(MAX_TEXT_BYTES + 1), change(1)]),
            [MAX_TEXT_BYTES, 0, 1]
        );
        let all = lengths(vec![change(MAX_TEXT_BYTES); 9]);
        assert_eq!(all.iter().sum::<usize>(), MAX_ALL_TEXTS_BYTES);
        assert_eq!(
            bound_texts(vec![change(MAX_TEXT_BYTES + 1)])[0].instead.map(|why| why.contains("kubectl nudge diff")),
            Some(true)
        );
    }
}
