//! `kubectl nudge set`: sets and removes keys of the text that a config follows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use nudge_api::{PartKind, VersionedConfig};
use nudge_authoring::ContentError;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{Contents, object_name};
use nudge_protocol::{ConfigName, Key};
use zeroize::Zeroizing;

use crate::dry_run::{Dry, DryRun};
use crate::failure::Failure;
use crate::followed_objects::{
    ConfigText, WriteError, check_follows, check_text, wait_for_text, warn_of_other_writers, write,
};
use crate::output::changes::changes;
use crate::rollout::switch::wait_if_asked;
use crate::rollout::wait::Wait;
use crate::session::Session;
use crate::version::sources::read_file;

/// The number of attempts if others change the object at the same time.
const MAX_ATTEMPTS: usize = 5;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge set game lives=5 speed=2
  kubectl nudge set game lives=5 --wait
  kubectl nudge set game old-key-
  kubectl nudge set game --from-file=game.properties=game.properties --dry-run
  kubectl nudge set game --secret-from-file=tls.key=/run/keys/game.key

The config must follow the text of its objects: spec.version is not set, and spec.objects names the ConfigMap. The command changes the \
ConfigMap of the config's name with your rights, and only the keys that you name. A text that stood for 2 s becomes a version, which goes \
out in steps. Values of the Secret come from files, because others can read the arguments of a command.")]
pub(crate) struct Set {
    /// The config
    pub(crate) config: ConfigName,
    /// KEY=VALUE sets a key of the ConfigMap, and KEY- removes the key
    #[arg(value_name = "KEY=VALUE|KEY-", required_unless_present_any = ["from_file", "secret_from_file"])]
    pub(crate) changes: Vec<String>,
    /// A file whose content becomes the value of KEY, or of the file's name. Can be repeated
    #[arg(long, value_name = "[KEY=]FILE")]
    pub(crate) from_file: Vec<String>,
    /// Like --from-file, for the Secret of the config's name. Can be repeated
    #[arg(long, value_name = "[KEY=]FILE")]
    pub(crate) secret_from_file: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// The edit of one key.
#[derive(Clone, PartialEq, Eq)]
enum KeyEdit {
    Value(Zeroizing<Vec<u8>>),
    Removal,
}

/// The edits of each object, by key.
type Edits = BTreeMap<PartKind, BTreeMap<String, KeyEdit>>;

/// Parses an argument. The error omits the text, which may be a secret.
fn parse_change(text: &str) -> Result<(String, KeyEdit), String> {
    let edit = match text.split_once('=') {
        Some((key, value)) => Some((key, KeyEdit::Value(Zeroizing::new(value.as_bytes().to_vec())))),
        None => text.strip_suffix('-').map(|key| (key, KeyEdit::Removal)),
    };
    let (key, edit) = edit
        .filter(|(key, _)| !key.is_empty())
        .ok_or("an argument is neither KEY=VALUE, which sets a key, nor KEY-, which removes a key")?;
    Ok((key.to_owned(), edit))
}

/// Returns the edits that the command requests.
fn edits(command: &Set) -> Result<Edits, String> {
    let mut edits = Edits::new();
    let mut add = |kind, (key, edit): (String, KeyEdit)| {
        Key::new(&key).map_err(|error| error.to_string())?;
        match edits.entry(kind).or_default().insert(key.clone(), edit) {
            None => Ok(()),
            Some(_) => Err(ContentError::Twice(key).to_string()),
        }
    };
    for text in &command.changes {
        add(PartKind::ConfigMap, parse_change(text)?)?;
    }
    for (flag, kind, files) in [
        ("--from-file", PartKind::ConfigMap, &command.from_file),
        ("--secret-from-file", PartKind::Secret, &command.secret_from_file),
    ] {
        for text in files {
            let (key, value) = read_file(text).map_err(|error| format!("{flag}: {error}"))?;
            add(kind, (key, KeyEdit::Value(value))).map_err(|error| format!("{flag}: {error}"))?;
        }
    }
    Ok(edits)
}

/// Returns the contents after these edits.
fn apply(contents: &Contents, edits: &BTreeMap<String, KeyEdit>) -> Contents {
    let mut contents = contents.clone();
    for (key, edit) in edits {
        match edit {
            KeyEdit::Value(value) => contents.insert(key.clone(), value.clone()),
            KeyEdit::Removal => contents.remove(key),
        };
    }
    contents
}

/// Refuses edits of the ConfigMap that name a key of the Secret.
fn check_keys(name: &str, secret: Option<&PublishedObject>, edits: &Edits) -> Result<(), Failure> {
    let (Some(secret), Some(edits)) = (secret, edits.get(&PartKind::ConfigMap)) else { return Ok(()) };
    match edits.keys().find(|key| secret.content.values().contains_key(*key)) {
        None => Ok(()),
        Some(key) => Err(Failure::new(format!(
            "key {key} is in Secret {name}; change it with --secret-from-file={key}=FILE, or edit the Secret with kubectl nudge edit {name} \
             --secret"
        ))),
    }
}

pub(crate) async fn run(session: &Session, command: &Set) -> Result<(), Failure> {
    let began = Instant::now();
    let (name, dry) = (command.config.as_str(), command.dry.dry_run);
    let edits = edits(command).map_err(Failure::usage)?;
    let config = session.config(name).await?;
    for kind in edits.keys() {
        check_follows(&config, *kind)?;
    }
    let text = edit_objects(session, &config, &edits, dry).await?;
    if !command.wait.wait || dry != DryRun::None {
        return Ok(());
    }
    let (version, generation) = wait_for_text(session, name, &text, command.wait.timeout).await?;
    let wait = Wait { timeout: remaining(command.wait.timeout, began.elapsed()), ..command.wait };
    wait_if_asked(session, name, &version, generation, wait, dry).await
}

/// Returns what is left of a limit; zero means no limit.
fn remaining(limit: Duration, elapsed: Duration) -> Duration {
    if limit.is_zero() { limit } else { limit.saturating_sub(elapsed).max(Duration::from_millis(1)) }
}

/// Edits the objects of the config, and edits them again as long as others change them at the same time. Returns the
/// text after that.
async fn edit_objects(
    session: &Session,
    config: &VersionedConfig,
    edits: &Edits,
    dry: DryRun,
) -> Result<BTreeMap<PartKind, Contents>, Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    for attempt in 1..=MAX_ATTEMPTS {
        let before = ConfigText::read(session, config).await?;
        check_keys(name, before.objects.get(&PartKind::Secret), edits)?;
        if attempt == 1 {
            warn(session, name, &before, edits);
        }
        let mut after = before.contents();
        for (kind, edits) in edits {
            after.insert(*kind, apply(before.object(*kind, name)?.content.values(), edits));
        }
        check_text(session, config, &after, before.lacks_secret).await?;
        match write_objects(session, &before, &after, edits, dry).await {
            Ok(()) => return Ok(after),
            Err(WriteError::Conflict) => {}
            Err(WriteError::Failed(failure)) => return Err(failure),
        }
    }
    Err(Failure::new(format!("the objects of config {name} were changed by others at each attempt; try again")))
}

/// Writes the objects that are edited, and prints what became of each.
async fn write_objects(
    session: &Session,
    before: &ConfigText,
    after: &BTreeMap<PartKind, Contents>,
    edits: &Edits,
    dry: DryRun,
) -> Result<(), WriteError> {
    for (&kind, object) in before.objects.iter().filter(|(kind, _)| edits.contains_key(kind)) {
        let Some(contents) = after.get(&kind) else { continue };
        let title = format!("{}/{}", kind.to_string().to_lowercase(), object.name());
        let lines = if contents == object.content.values() {
            format!("{title} has this text already\n")
        } else {
            write(session, object, contents, dry).await?;
            let sides = [object.content.values(), contents].map(|contents| [(kind, contents.clone())]);
            let [old, new] = sides;
            let shown = if dry == DryRun::None { String::new() } else { changes(old, new, ("now", "new")) };
            format!("{shown}{title} edited{}\n", dry.suffix())
        };
        session.out.print(&lines).map_err(WriteError::Failed)?;
    }
    Ok(())
}

/// Warns of keys that can't be removed because they do not exist, of a Secret that can't be read, and of other writers.
fn warn(session: &Session, name: &str, text: &ConfigText, edits: &Edits) {
    if text.lacks_secret {
        session
            .out
            .warn(&format!("you may not read Secret {name}, so it is not checked whether it has one of the keys"));
    }
    for (kind, object) in &text.objects {
        let Some(edits) = edits.get(kind) else { continue };
        warn_of_other_writers(session, object);
        for (key, edit) in edits {
            if *edit == KeyEdit::Removal && !object.content.values().contains_key(key) {
                session.out.warn(&format!("{} has no key {key}", object_name(*kind, name)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;
    use crate::commands::arguments::{Arguments, Command};

    fn parse(words: &[&str]) -> Result<Set, String> {
        let words = ["kubectl-nudge", "set", "game"].iter().chain(words);
        match Arguments::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Set(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    fn contents(pairs: &[(&str, &str)]) -> Contents {
        pairs.iter().map(|&(key, value)| (key.to_owned(), Zeroizing::new(value.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn keys_are_set_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("game.properties");
        std::fs::write(&path, "x=1\n").unwrap();
        let path = path.display();
        let flags = [&format!("--from-file={path}")[..], &format!("--secret-from-file=pin={path}")];
        let command = parse(&["lives=5", "url=a=b", "old-", "a-=", flags[0], flags[1]]).unwrap();
        let edits = edits(&command).unwrap();
        let before = contents(&[("lives", "3"), ("old", "x"), ("same", "s")]);
        let after =
            contents(&[("lives", "5"), ("url", "a=b"), ("a-", ""), ("same", "s"), ("game.properties", "x=1\n")]);
        assert_eq!(apply(&before, &edits[&PartKind::ConfigMap]), after);
        assert_eq!(apply(&Contents::new(), &edits[&PartKind::Secret]), contents(&[("pin", "x=1\n")]));
    }

    #[test]
    fn faulty_arguments_are_refused_without_their_values() {
        assert!(parse(&[]).is_err() && parse(&["--wait"]).is_err());
        for (words, part) in [
            (&["=hidden"][..], "KEY=VALUE"),
            (&["hidden"], "KEY=VALUE"),
            (&["-"], "KEY=VALUE"),
            (&["a=hidden", "a=hidden"], "key a is given twice"),
            (&["a=hidden", "a-"], "key a is given twice"),
            (&["nudge.x=hidden"], "reserved"),
            (&["a b=hidden"], "letters, digits"),
            (&["--from-file=a=/nowhere"], "--from-file: /nowhere: No such file"),
            (&["--secret-from-file=/"], "--secret-from-file: "),
        ] {
            let words: Vec<&str> = if words == ["-"] { vec!["--", "-"] } else { words.to_vec() };
            let fault = edits(&parse(&words).unwrap()).err().unwrap();
            assert!(fault.contains(part) && !fault.contains("hidden"), "{fault}");
        }
    }

    #[test]
    fn keys_of_the_secret_come_from_files() {
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "game"}, "data": {"pin": "MQ=="}})).unwrap();
        let secret = PublishedObject::from(secret);
        let check = |words: &[&str], secret| {
            let edits = edits(&parse(words).unwrap()).unwrap();
            check_keys("game", secret, &edits).err().map(|failure| failure.message)
        };
        for words in ["pin=hidden", "pin-"] {
            let refusal = check(&[words], Some(&secret)).unwrap();
            assert!(refusal.contains("--secret-from-file=pin=FILE") && !refusal.contains("hidden"), "{refusal}");
        }
        assert_eq!((check(&["lives=5"], Some(&secret)), check(&["pin=1"], None)), (None, None));
    }

    #[test]
    fn the_second_wait_has_what_is_left_of_the_limit() {
        let seconds = Duration::from_secs;
        assert_eq!(remaining(Duration::ZERO, seconds(9)), Duration::ZERO);
        assert_eq!(remaining(seconds(10), seconds(3)), seconds(7));
        assert_eq!(remaining(seconds(10), seconds(30)), Duration::from_millis(1), "zero would be no limit");
    }
}
