//! What the page can do: each act is a command of `kubectl nudge`, which the page shows before it runs it.

use nudge_api::VersionedConfig;
use nudge_protocol::{ConfigName, VersionName};
use serde::Serialize;

use crate::failure::Failure;
use crate::version::digest::Digest;

/// A verb on an object of the config's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// On the `VersionedConfig`.
    Config(&'static str),
    /// To make a `VersionApproval`, and to take back another of the user's own.
    Decide,
    /// To activate a version, as admission asks for it: to update what is published.
    Activate,
}

/// Something that can be done to a config. A list of them is all that the page can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    /// Its name in requests.
    pub(crate) name: &'static str,
    /// The first word of the command.
    pub(crate) command: &'static str,
    /// The flags of the command.
    pub(crate) flags: &'static [&'static str],
    /// What the button says.
    pub(crate) label: &'static str,
    /// What follows, for people.
    pub(crate) effect: &'static str,
    /// The rights that it needs. Without them there is no button; whether it is allowed, the API server decides.
    pub(crate) needs: &'static [Need],
    /// Whether a version is chosen.
    pub(crate) version: bool,
    /// Whether it is about the content that the page has shown, and no other.
    pub(crate) digest: bool,
    /// What is asked for as the reason; absent where there is none.
    pub(crate) reason: Option<&'static str>,
    /// Whether it does anything to the config as it is.
    pub(crate) applies: fn(&VersionedConfig) -> bool,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) config: ConfigName,
    pub(crate) version: Option<VersionName>,
    /// Digest of the version, as the page has shown it.
    pub(crate) digest: Option<Digest>,
    pub(crate) reason: Option<String>,
}

/// The longest reason, in bytes.
const MAX_REASON_BYTES: usize = 1024;

impl Act {
    /// The words of the command after `kubectl nudge`. Names can't begin like a flag, and a reason stands in the word
    /// of its flag.
    pub(crate) fn words(&self, asked: &Asked) -> Result<Vec<String>, Failure> {
        let mut words = vec![self.command.to_owned(), asked.config.to_string()];
        match (self.version, &asked.version) {
            (true, Some(version)) => words.push(version.to_string()),
            (true, None) => return Err(Failure::usage("choose a version")),
            (false, _) => {}
        }
        match (self.digest, &asked.digest) {
            (true, Some(digest)) => words.push(format!("--digest={digest}")),
            (true, None) => {
                return Err(Failure::usage("the request has no digest of the content that the page has shown"));
            }
            (false, _) => {}
        }
        words.extend(self.flags.iter().map(|&flag| flag.to_owned()));
        match asked.reason.as_deref().map(str::trim).filter(|_| self.reason.is_some()) {
            Some(reason) if reason.len() > MAX_REASON_BYTES => return Err(Failure::usage("the reason is too long")),
            Some(reason) if !reason.is_empty() => words.push(format!("--reason={reason}")),
            _ if self.reason.is_some() => return Err(Failure::usage("give a reason")),
            Some(_) | None => {}
        }
        Ok(words)
    }
}

/// The command as it can be typed.
pub(crate) fn typed(words: &[String], namespace: &str, flags: &[String]) -> String {
    let namespace = ["-n".to_owned(), namespace.to_owned()];
    let all = words.iter().chain(&namespace).chain(flags).map(|word| quoted(word));
    ["kubectl nudge".to_owned()].into_iter().chain(all).collect::<Vec<_>>().join(" ")
}

/// One of the words, for a shell.
fn quoted(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_=./:,@%+".contains(char);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// An act that the user may do, or may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Permitted {
    name: &'static str,
    label: &'static str,
    effect: &'static str,
    version: bool,
    reason: Option<&'static str>,
    /// Whether the user may.
    allowed: bool,
}

impl Permitted {
    pub(crate) fn of(act: &Act, allowed: bool) -> Self {
        let Act { name, label, effect, version, reason, .. } = *act;
        Self { name, label, effect, version, reason, allowed }
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
        version: true,
        digest: true,
        reason: Some("Why"),
        applies: |_| true,
    };

    fn asked(version: Option<&str>, reason: Option<&str>) -> Asked {
        Asked {
            config: ConfigName::new("shop").unwrap(),
            version: version.map(|version| VersionName::new(version).unwrap()),
            digest: digest::parse("sha256:4967c54464734967c54464734967c544").ok(),
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn an_act_is_a_command() {
        let words = APPROVE.words(&asked(Some("1.0.2"), Some(" it's fine --now "))).unwrap();
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
        let line = typed(&words, "team", &["--context=my cluster".to_owned()]);
        assert_eq!(
            line,
            r"kubectl nudge approve shop 1.0.2 --digest=4967c54464734967c54464734967c544 --now '--reason=it'\''s fine --now' -n team '--context=my cluster'"
        );
        assert!(APPROVE.words(&asked(None, Some("x"))).is_err());
        assert!(APPROVE.words(&Asked { digest: None, ..asked(Some("1"), Some("x")) }).is_err());
        assert!(
            APPROVE.words(&asked(Some("1"), Some(" "))).is_err() && APPROVE.words(&asked(Some("1"), None)).is_err()
        );
        assert!(APPROVE.words(&asked(Some("1"), Some(&"x".repeat(MAX_REASON_BYTES + 1)))).is_err());
        let plain = Act { version: false, digest: false, reason: None, flags: &[], ..APPROVE };
        assert_eq!(plain.words(&asked(Some("1"), Some("x"))).unwrap(), ["approve", "shop"]);
    }

    #[test]
    fn a_shell_reads_the_words_that_are_run() {
        for word in ["", "a b", "'", "$(id)", "`id`", "a\nb", "--reason=x;y", "plain", "a\\b", "*", "é"] {
            let out =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }
}
