//! The acts of the page. Each is a command of `kubectl nudge`, which the page shows before it runs it.

use nudge_api::VersionedConfig;
use nudge_protocol::{ConfigName, VersionName};
use serde::Serialize;

use crate::failure::Failure;
use crate::version::digest::Digest;

/// A right that an act needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A verb on the `VersionedConfig`.
    Config(&'static str),
    /// The right to create a `VersionApproval`, and to delete another of the user's own.
    Decide,
    /// The right to activate a version. Admission requires the right to update the published ConfigMap.
    Activate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActSubject {
    Config,
    Version,
    /// Exactly the content of a version that the page has shown.
    ShownContent,
}

/// An act on a config.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    /// The name in requests.
    pub(crate) name: &'static str,
    /// The first word of the command.
    pub(crate) command: &'static str,
    /// The flags of the command.
    pub(crate) flags: &'static [&'static str],
    /// The text of the button.
    pub(crate) label: &'static str,
    /// The effect, as people read it.
    pub(crate) effect: &'static str,
    /// The rights that a user needs to see the button. The API server decides whether the act is allowed.
    pub(crate) needs: &'static [Need],
    pub(crate) subject: ActSubject,
    /// The question for the reason, if the act takes a reason.
    pub(crate) reason: Option<&'static str>,
    /// Whether the act has an effect on the config as it is.
    pub(crate) applies: fn(&VersionedConfig) -> bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ActArguments {
    pub(crate) config: ConfigName,
    pub(crate) version: Option<VersionName>,
    /// The digest of the version, as the page has shown it.
    pub(crate) digest: Option<Digest>,
    pub(crate) reason: Option<String>,
}

/// The maximum size of a reason.
const MAX_REASON_BYTES: usize = 1024;

impl Act {
    /// Returns the words of the command after `kubectl nudge`. Names can't begin like a flag, and a reason stands in
    /// the word of its flag.
    pub(crate) fn words(&self, arguments: &ActArguments) -> Result<Vec<String>, Failure> {
        let mut words = vec![self.command.to_owned(), arguments.config.to_string()];
        if self.subject != ActSubject::Config {
            let version = arguments.version.as_ref().ok_or_else(|| Failure::usage("choose a version"))?;
            words.push(version.to_string());
        }
        if self.subject == ActSubject::ShownContent {
            let missing = || Failure::usage("the request has no digest of the content that the page has shown");
            words.push(format!("--digest={}", arguments.digest.as_ref().ok_or_else(missing)?));
        }
        words.extend(self.flags.iter().map(|&flag| flag.to_owned()));
        match arguments.reason.as_deref().map(str::trim).filter(|_| self.reason.is_some()) {
            Some(reason) if reason.len() > MAX_REASON_BYTES => return Err(Failure::usage("the reason is too long")),
            Some(reason) if !reason.is_empty() => words.push(format!("--reason={reason}")),
            _ if self.reason.is_some() => return Err(Failure::usage("give a reason")),
            Some(_) | None => {}
        }
        Ok(words)
    }
}

/// Returns the command as it can be typed.
pub(crate) fn command_line(words: &[String], namespace: &str, flags: &[String]) -> String {
    let namespace = ["-n".to_owned(), namespace.to_owned()];
    let words = words.iter().chain(&namespace).chain(flags).map(|word| quote(word));
    ["kubectl nudge".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell.
fn quote(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_=./:,@%+".contains(char);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// An act, and whether the user may do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermittedAct {
    name: &'static str,
    label: &'static str,
    effect: &'static str,
    /// Whether the user chooses a version.
    version: bool,
    reason: Option<&'static str>,
    allowed: bool,
}

impl PermittedAct {
    pub(crate) fn new(act: &Act, allowed: bool) -> Self {
        let Act { name, label, effect, subject, reason, .. } = *act;
        Self { name, label, effect, version: subject != ActSubject::Config, reason, allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::digest;

    const APPROVE: Act = Act {
        name: "approve-now",
        command: "approve",
        flags: &["--now"],
        label: "Approve",
        effect: "",
        needs: &[],
        subject: ActSubject::ShownContent,
        reason: Some("Why"),
        applies: |_| true,
    };

    fn arguments(version: Option<&str>, reason: Option<&str>) -> ActArguments {
        ActArguments {
            config: ConfigName::new("shop").unwrap(),
            version: version.map(|version| VersionName::new(version).unwrap()),
            digest: digest::parse("sha256:4967c54464734967c54464734967c544").ok(),
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn an_act_is_a_command() {
        let words = APPROVE.words(&arguments(Some("1.0.2"), Some(" it's fine --now "))).unwrap();
        assert_eq!(
            words,
            [
                "approve",
                "shop",
                "1.0.2",
                "--digest=4967c54464734967c54464734967c544",
                "--now",
                "--reason=it's fine --now"
            ]
        );
        let line = command_line(&words, "team", &["--context=my cluster".to_owned()]);
        assert_eq!(
            line,
            r"kubectl nudge approve shop 1.0.2 --digest=4967c54464734967c54464734967c544 --now '--reason=it'\''s fine --now' -n team '--context=my cluster'"
        );
        assert!(APPROVE.words(&arguments(None, Some("x"))).is_err());
        assert!(APPROVE.words(&ActArguments { digest: None, ..arguments(Some("1"), Some("x")) }).is_err());
        assert!(
            APPROVE.words(&arguments(Some("1"), Some(" "))).is_err()
                && APPROVE.words(&arguments(Some("1"), None)).is_err()
        );
        assert!(APPROVE.words(&arguments(Some("1"), Some(&"x".repeat(MAX_REASON_BYTES + 1)))).is_err());
        let plain = Act { subject: ActSubject::Config, reason: None, flags: &[], ..APPROVE };
        assert_eq!(plain.words(&arguments(Some("1"), Some("x"))).unwrap(), ["approve", "shop"]);
    }

    #[test]
    fn a_shell_reads_the_words_that_are_run() {
        for word in ["", "a b", "'", "$(id)", "`id`", "a\nb", "--reason=x;y", "plain", "a\\b", "*", "é"] {
            let out =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quote(word))]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }
}
