//! The endpoints about one config: where its versions come from, how two differ, and what can be done.

use std::time::Duration;

use hyper::StatusCode;
use nudge_api::VersionedConfig;
use nudge_core::governance::short_digest;
use nudge_protocol::{ConfigName, VersionName};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::Page;
use super::act::{Act, Asked, typed};
use super::creation;
use super::permitted_acts::permitted;
use super::reply::{Answer, Refusal, json as reply};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::changes::{Change, list};
use crate::session::Session;
use crate::version::digest;
use crate::version::stored::{readable_contents, sealed};

/// The most of the text of a key's change that is sent, in bytes. The command shows the rest.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// How long a command may take. Another one has to wait for it.
const ACT_LIMIT: Duration = Duration::from_mins(1);
/// The most of the texts of all changes together.
const MAX_TEXTS: usize = 2 * 1024 * 1024;

/// A config that the page shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    namespace: String,
    config: String,
}

/// Two versions of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Two {
    namespace: String,
    config: String,
    old: String,
    new: String,
}

/// An act on it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Doing {
    namespace: String,
    config: String,
    act: String,
    version: Option<String>,
    /// Digest of the version, as the page has shown it.
    digest: Option<String>,
    reason: Option<String>,
    /// What the confirmation showed; absent where it is asked what that would be.
    command: Option<String>,
}

type Asking<T> = Result<T, Refusal>;

fn unprocessable(failure: &Failure) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, &*failure.message)
}

/// The config, if the page shows it: as the watch saw it last.
fn shown(page: &Page, namespace: &str, config: &str) -> Asking<VersionedConfig> {
    let seen = page.feed.seen();
    let key = (namespace.to_owned(), config.to_owned());
    let found = seen.configs.as_ref().and_then(|configs| configs.get(&key)).cloned();
    found.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "the page shows no such config"))
}

/// A session in the namespace, whose output is kept for the page.
fn session(page: &Page, namespace: &str) -> Session {
    Session { client: page.session.client.clone(), namespace: namespace.to_owned(), out: Output::keeping() }
}

/// Where the versions come from.
pub(super) async fn creations(page: &Page, asked: Asking<Of>) -> Answer {
    let Of { namespace, config } = asked?;
    let shown = shown(page, &namespace, &config)?;
    let creations = creation::creations(&session(page, &namespace), &shown).await;
    Ok(reply(StatusCode::OK, &creations.map_err(|failure| unprocessable(&failure))?))
}

/// How two versions differ, by key. Of Secrets nothing leaves but whether a value has changed.
pub(super) async fn diff(page: &Page, asked: Asking<Two>) -> Answer {
    let Two { namespace, config, old, new } = asked?;
    let shown = shown(page, &namespace, &config)?;
    let session = session(page, &namespace);
    let compared = changes(&session, &shown, &old, &new).await;
    let (digests, changes) = compared.map_err(|failure| unprocessable(&failure))?;
    // What may not be read is named there.
    let warnings = session.out.kept();
    Ok(reply(StatusCode::OK, &json!({"digests": digests, "changes": bounded(changes), "warnings": warnings})))
}

/// The digests of both, and the changes.
async fn changes(
    session: &Session,
    config: &VersionedConfig,
    old: &str,
    new: &str,
) -> Result<([String; 2], Vec<Change>), Failure> {
    let (old, new) = (sealed(config, old)?, sealed(config, new)?);
    let names = (old.version.as_str(), new.version.as_str());
    let changes = list(readable_contents(session, old).await?, readable_contents(session, new).await?, names);
    Ok(([old, new].map(short_digest), changes))
}

/// The changes without texts that are too long to be shown.
fn bounded(mut changes: Vec<Change>) -> Vec<Change> {
    let mut left = MAX_TEXTS;
    for change in &mut changes {
        if change.text.len() > MAX_TEXT_BYTES.min(left) {
            change.text.clear();
            change.instead = Some("too long to be shown here; see kubectl nudge diff");
        }
        left -= change.text.len();
    }
    changes
}

/// What can be done, and whether the user may.
pub(super) async fn acts(page: &Page, asked: Asking<Of>) -> Answer {
    let Of { namespace, config } = asked?;
    let shown = shown(page, &namespace, &config)?;
    let permitted = permitted(&page.session, &shown, page.options.acts).await;
    Ok(reply(StatusCode::OK, &permitted.map_err(|failure| unprocessable(&failure))?))
}

/// The words of the command, and how it is typed.
fn words(page: &Page, doing: &Doing) -> Asking<(Vec<String>, String)> {
    let wrong = || Refusal::new(StatusCode::BAD_REQUEST, "there is no such act, config or version");
    let act: &Act = page.options.acts.iter().find(|act| act.name == doing.act).ok_or_else(wrong)?;
    let version = match &doing.version {
        Some(version) => Some(VersionName::new(version).map_err(|_| wrong())?),
        None => None,
    };
    let digest = doing.digest.as_deref().map(digest::parse).transpose().map_err(|_| wrong())?;
    let config = ConfigName::new(&doing.config).map_err(|_| wrong())?;
    let asked = Asked { config, version, digest, reason: doing.reason.clone() };
    let words = act.words(&asked).map_err(|failure| unprocessable(&failure))?;
    let typed = typed(&words, &doing.namespace, &page.options.flags);
    Ok((words, typed))
}

/// The command that an act equals.
pub(super) fn preview(page: &Page, asked: Asking<Doing>) -> Answer {
    let doing = asked?;
    shown(page, &doing.namespace, &doing.config)?;
    let (_, typed) = words(page, &doing)?;
    Ok(reply(StatusCode::OK, &json!({"command": typed})))
}

/// Runs the command, if it is the one that was shown.
pub(super) async fn act(page: &Page, asked: Asking<Doing>) -> Answer {
    let doing = asked?;
    shown(page, &doing.namespace, &doing.config)?;
    let (words, typed) = words(page, &doing)?;
    if doing.command.as_deref() != Some(&typed) {
        return Err(Refusal::new(StatusCode::CONFLICT, "this is not the command that was shown"));
    }
    let Ok(_one) = page.acting.try_acquire() else {
        return Err(Refusal::new(StatusCode::CONFLICT, "another command is running; wait until it ends"));
    };
    page.session.out.note(&typed);
    let session = session(page, &doing.namespace);
    let out = session.out.clone();
    match timeout(ACT_LIMIT, (page.options.run)(session, words)).await {
        Ok(Ok(())) => Ok(reply(StatusCode::OK, &json!({"lines": out.kept()}))),
        Ok(Err(failure)) => Err(unprocessable(&failure)),
        Err(_) => Err(Refusal::new(
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
            |bytes: usize| Change { key: "k".to_owned(), what: "changed", instead: None, text: "x".repeat(bytes) };
        let lengths = |changes: Vec<Change>| bounded(changes).iter().map(|it| it.text.len()).collect::<Vec<_>>();
        assert_eq!(
            lengths(vec![change(MAX_TEXT_BYTES), change(MAX_TEXT_BYTES + 1), change(1)]),
            [MAX_TEXT_BYTES, 0, 1]
        );
        let all = lengths(vec![change(MAX_TEXT_BYTES); 9]);
        assert_eq!(all.iter().sum::<usize>(), MAX_TEXTS);
        assert_eq!(
            bounded(vec![change(MAX_TEXT_BYTES + 1)])[0].instead.map(|why| why.contains("kubectl nudge diff")),
            Some(true)
        );
    }
}
