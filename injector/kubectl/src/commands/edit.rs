//! `kubectl nudge edit`: edits the text that a config follows, in the user's editor.

use clap::Args;
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{Contents, object_name};
use nudge_protocol::ConfigName;
use zeroize::Zeroizing;

use crate::dry_run::DryRun;
use crate::editor::{EditFile, editor};
use crate::failure::Failure;
use crate::followed_objects::{
    ConfigText, WriteError, check_follows, check_text, comments, document, parse, warn_of_other_writers, write,
};
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge edit game
  KUBE_EDITOR='code --wait' kubectl nudge edit game
  kubectl nudge edit game --secret

The editor is that of KUBE_EDITOR, VISUAL or EDITOR, or else vi. It shows the keys and values of the ConfigMap of the config's name, or of \
its Secret, decoded, and nothing else of the object. The file is yours alone, and is removed at the end. If the text can't become a \
version, or breaks the rules of the config, the editor opens again and says why.

The config must follow the text of its objects: spec.version is not set, and spec.objects names the object. A text that stood for 2 s \
becomes a version, which goes out in steps.")]
pub(crate) struct Edit {
    /// The config
    pub(crate) config: ConfigName,
    /// Edit the Secret of the config's name
    #[arg(long)]
    pub(crate) secret: bool,
}

/// Returns the comments above the text.
fn header(object: &PublishedObject, fault: Option<&str>) -> Vec<String> {
    let title = object_name(object.kind, object.name());
    let mut lines = vec![
        format!("Edit the keys and values of {title} below. Comments at the top are left out, and an empty"),
        "file cancels the edit. If the text can't be used, the file is opened again with the reason.".to_owned(),
    ];
    let hidden: Vec<&str> = hidden_keys(object.content.values()).collect();
    if !hidden.is_empty() {
        lines.push(format!(
            "These keys are not shown, and stay, because their values are not text: {}",
            hidden.join(", ")
        ));
    }
    lines.push(String::new());
    if let Some(fault) = fault {
        lines.extend(fault.split('\n').map(|line| format!("error: {line}")));
        lines.push(String::new());
    }
    lines
}

/// Returns the keys whose values are not text.
fn hidden_keys(contents: &Contents) -> impl Iterator<Item = &str> {
    contents.iter().filter(|(_, value)| std::str::from_utf8(value).is_err()).map(|(key, _)| key.as_str())
}

/// Returns the text without the comments at its top.
fn without_header(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, below)| below);
    }
    rest
}

/// Returns the contents that the text stands for, with the keys that are not shown.
fn read_text(text: &str, object: &PublishedObject) -> Result<Contents, String> {
    let mut contents = parse(text)?;
    for key in hidden_keys(object.content.values()) {
        let hidden = object.content.values().get(key).cloned().unwrap_or_default();
        contents.entry(key.to_owned()).or_insert(hidden);
    }
    Ok(contents)
}

/// The end of the work in the editor.
enum EditEnd {
    Contents(Contents),
    /// The user changed nothing, or emptied the file.
    Cancelled(&'static str),
}

pub(crate) async fn run(session: &Session, command: &Edit) -> Result<(), Failure> {
    let (name, kind) = (command.config.as_str(), if command.secret { PartKind::Secret } else { PartKind::ConfigMap });
    let config = session.config(name).await?;
    check_follows(&config, kind)?;
    let text = ConfigText::read(session, &config).await?;
    let object = text.object(kind, name)?;
    let first = document(&header(object, None), object.content.values()).map_err(Failure::new)?;
    let file = EditFile::new(name, &first)?;
    // An interrupt is for the editor: it must not end this program, which removes the file.
    #[cfg(unix)]
    let _interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    let result = match edit(session, &config, &text, object, &file, first.clone()).await {
        Ok(EditEnd::Cancelled(cause)) => return session.out.line(&format!("edit cancelled: {cause}")),
        Ok(EditEnd::Contents(contents)) => {
            warn_of_other_writers(session, object);
            write(session, object, &contents, DryRun::None).await
        }
        Err(failure) => Err(WriteError::Failed(failure)),
    };
    match result {
        Ok(()) => session.out.line(&format!("{}/{name} edited", kind.to_string().to_lowercase())),
        Err(WriteError::Conflict) => Err(Failure::new(format!(
            "{} was changed by others meanwhile, so nothing is written; your text is in {}: put your changes into the present text with \
             kubectl nudge edit {name}",
            object_name(kind, name),
            file.keep().display()
        ))),
        Err(WriteError::Failed(failure)) if file.read().is_ok_and(|text| text == first) => Err(failure),
        Err(WriteError::Failed(mut failure)) => {
            failure.message = format!("{}; your text is in {}", failure.message, file.keep().display());
            Err(failure)
        }
    }
}

/// Opens the editor until the text can be used, or the user gives up. `text` is the text of the file.
async fn edit(
    session: &Session,
    config: &VersionedConfig,
    before: &ConfigText,
    object: &PublishedObject,
    file: &EditFile,
    mut text: Zeroizing<String>,
) -> Result<EditEnd, Failure> {
    let editor = editor(|name| std::env::var(name).ok());
    let mut last_fault: Option<String> = None;
    loop {
        file.open(&editor)?;
        let edited_text = file.read()?;
        let body = without_header(&edited_text);
        if body == without_header(&text) {
            return last_fault.map_or(Ok(EditEnd::Cancelled("nothing is changed")), |fault| Err(Failure::new(fault)));
        }
        if body.trim().is_empty() {
            return Ok(EditEnd::Cancelled("the file is empty"));
        }
        let with_fault = |fault: &str| Zeroizing::new(comments(&header(object, Some(fault))) + body);
        // The lines of a fault are those of the file that the editor shows next.
        let fault = match read_text(&with_fault(""), object) {
            Ok(contents) if contents == *object.content.values() => {
                return Ok(EditEnd::Cancelled("nothing is changed"));
            }
            Ok(contents) => {
                let mut after = before.contents();
                after.insert(object.kind, contents.clone());
                match check_text(session, config, &after, before.lacks_secret).await {
                    Ok(()) => return Ok(EditEnd::Contents(contents)),
                    Err(failure) => failure.message,
                }
            }
            Err(fault) => fault,
        };
        text = with_fault(&fault);
        file.write(&text)?;
        // A program in place of an editor would make the same fault again and again.
        if !session.out.is_interactive() {
            return Err(Failure::new(fault));
        }
        last_fault = Some(fault);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn object() -> PublishedObject {
        let map = json!({"metadata": {"name": "game"}, "data": {"lives": "3"}, "binaryData": {"raw": "/w=="}});
        serde_json::from_value::<ConfigMap>(map).unwrap().into()
    }

    #[test]
    fn the_header_says_what_is_edited_and_what_is_wrong() {
        let text =
            document(&header(&object(), Some("key lives: too many\nkey x: bad")), object().content.values()).unwrap();
        for part in [
            "ConfigMap game",
            "not text: raw\n#\n",
            "# error: key lives: too many\n# error: key x: bad\n#\nlives: \"3\"\n",
        ] {
            assert!(text.contains(part), "{}", *text);
        }
        assert_eq!(without_header(&text), "lives: \"3\"\n");
        assert_eq!((without_header("# x"), without_header("a\n# x")), ("", "a\n# x"));
    }

    #[test]
    fn keys_that_are_not_shown_stay() {
        let lives = |text: &str| read_text(text, &object()).unwrap();
        assert_eq!(lives("lives: \"3\""), *object().content.values());
        let contents = lives("speed: \"2\"");
        assert_eq!(contents.keys().collect::<Vec<_>>(), ["raw", "speed"]);
        assert_eq!(lives("raw: text")["raw"].as_slice(), b"text", "a text in its place is the user's");
    }
}
