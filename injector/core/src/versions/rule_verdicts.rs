//! The verdicts about contents by `spec.validation`: each is made once, for one content and one set of rules, before
//! the version is sealed.

use std::collections::BTreeMap;

use nudge_api::{InvalidVersion, PartKind, PartStatus, Reason, VersionedConfigStatus};
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use super::digest::DIGEST_BYTES;
use super::seal_check::SealCheck;

/// A verdict about the content of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// The digest of the content.
    pub content: String,
    /// The digest of the rules.
    pub rules: String,
    /// The rules that the content breaks, without values; `None` if it breaks none.
    pub message: Option<String>,
}

/// The verdicts by the names of versions.
pub type Verdicts = BTreeMap<String, RuleVerdict>;

/// The rules of a config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RulesState<'a> {
    /// The config has no rules, so every complete version is sealed.
    #[default]
    None,
    /// The rules are not known yet, or can't be used for this reason. No version is sealed.
    NotReady(Option<&'a str>),
    /// The rules can be used. Holds their digest.
    Ready(&'a str),
}

/// The rules and verdicts that judge versions.
#[derive(Clone, Copy, Debug)]
pub struct Judging<'a> {
    /// The rules of `spec.validation`, if they are known.
    pub rules: RulesState<'a>,
    /// The verdicts so far, in addition to the ones in the status.
    pub verdicts: &'a Verdicts,
}

impl Judging<'_> {
    /// The judging of a config without rules.
    pub const NONE: Judging<'static> = Judging { rules: RulesState::None, verdicts: &Verdicts::new() };

    /// Returns the digest of the rules, if the version was judged by them and follows them.
    pub(crate) fn followed_by(&self, version: &str) -> Option<&str> {
        let RulesState::Ready(rules) = self.rules else { return None };
        let verdict = self.verdicts.get(version)?;
        (verdict.rules == rules && verdict.message.is_none()).then_some(rules)
    }
}

/// A complete version without a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The name of the version.
    pub version: String,
    /// The objects of the version, by part number.
    pub objects: Vec<(PartKind, String)>,
    /// The digest of its content.
    pub content: String,
}

/// The reason why a complete version is not sealed.
pub(super) struct SealRefusal {
    pub(super) check: SealCheck,
    /// The record of the version in the status.
    pub(super) invalid: Option<InvalidVersion>,
    pub(super) unjudged: Option<Unjudged>,
}

/// Returns the judgement that keeps a complete version from being sealed: it breaks a rule, or is not judged yet.
pub(super) fn seal_refusal(
    version: &str,
    parts: &[PartStatus],
    status: &VersionedConfigStatus,
    judging: &Judging<'_>,
) -> Option<SealRefusal> {
    let content = content_of(parts);
    let cause = match judging.rules {
        RulesState::None => return None,
        RulesState::NotReady(cause) => cause.map(str::to_owned),
        RulesState::Ready(rules) => match verdict(judging, status, (version, &content, rules)) {
            Some(Ok(())) => return None,
            Some(Err(message)) => {
                let invalid = Some(invalid_version(version, &content, rules, message));
                let check = SealCheck::Refused(format!(
                    "version {version} breaks a rule of spec.validation: {message}; create another version, or change the rules"
                ));
                return Some(SealRefusal { check, invalid, unjudged: None });
            }
            None => None,
        },
    };
    // The record of the version stays until the version is judged again.
    let invalid = status.invalid.iter().find(|record| record.version == version).cloned();
    let objects = parts.iter().map(|part| (part.kind, part.name.clone())).collect();
    let unjudged = Some(Unjudged { version: version.to_owned(), objects, content });
    Some(SealRefusal { check: SealCheck::Unjudged(cause), invalid, unjudged })
}

/// Returns the digest of the content of these parts.
fn content_of(parts: &[PartStatus]) -> String {
    let digests: Vec<&str> = parts.iter().map(|part| part.digest.as_str()).collect();
    hex(&digest(&SHA256, digests.join("\n").as_bytes()).as_ref()[..DIGEST_BYTES / 2])
}

/// Returns the verdict about this content by these rules, if it is known.
fn verdict<'a>(
    judging: &'a Judging<'_>,
    status: &'a VersionedConfigStatus,
    (version, content, rules): (&str, &str, &str),
) -> Option<Result<(), &'a str>> {
    let verdict = judging.verdicts.get(version);
    let verdict = verdict.filter(|verdict| verdict.content == content && verdict.rules == rules);
    let verdict = verdict.map(|verdict| verdict.message.as_deref().map_or(Ok(()), Err));
    let is_about_this =
        |record: &&InvalidVersion| record.version == version && record.content == content && record.rules == rules;
    verdict.or_else(|| status.invalid.iter().find(is_about_this).map(|record| Err(record.message.as_str())))
}

/// Returns the record of a version that breaks a rule.
fn invalid_version(version: &str, content: &str, rules: &str, message: &str) -> InvalidVersion {
    InvalidVersion {
        version: version.to_owned(),
        reason: Reason::Invalid,
        message: message.to_owned(),
        rules: rules.to_owned(),
        content: content.to_owned(),
    }
}

/// Returns the records that the status keeps: the newest, and that of the version that `spec.version` names. Earlier
/// records are older.
pub(super) fn bounded(
    mut records: Vec<InvalidVersion>,
    before: &[InvalidVersion],
    named: Option<&str>,
) -> Vec<InvalidVersion> {
    let place = |version: &str| before.iter().position(|old| old.version == version).unwrap_or(before.len());
    records.sort_by_key(|record| place(&record.version));
    while records.len() > InvalidVersion::MAX_INVALID {
        let oldest = records.iter().position(|record| named != Some(record.version.as_str())).unwrap_or_default();
        records.remove(oldest);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_what_is_wanted() {
        let of = |numbers: std::ops::Range<usize>| -> Vec<InvalidVersion> {
            numbers.map(|number| invalid_version(&number.to_string(), "c", "r", "m")).collect()
        };
        let before = of(0..InvalidVersion::MAX_INVALID);
        let names = |all: Vec<InvalidVersion>| all.into_iter().map(|one| one.version).collect::<Vec<_>>();
        let mut now = of(0..InvalidVersion::MAX_INVALID + 2);
        now.reverse();
        let kept = names(bounded(now.clone(), &before, None));
        let newest = [InvalidVersion::MAX_INVALID, InvalidVersion::MAX_INVALID + 1].map(|number| number.to_string());
        assert!(kept.len() == InvalidVersion::MAX_INVALID && newest.iter().all(|name| kept.contains(name)), "{kept:?}");
        assert_eq!(names(bounded(now, &before, Some("0")))[0], "0");
    }

    #[test]
    fn a_verdict_is_about_one_content_and_one_set_of_rules() {
        let made = RuleVerdict { content: "c".to_owned(), rules: "r".to_owned(), message: None };
        let verdicts: Verdicts = [("1".to_owned(), made)].into();
        let judging = Judging { rules: RulesState::Ready("r"), verdicts: &verdicts };
        let status = VersionedConfigStatus { invalid: vec![invalid_version("2", "c", "r", "m")], ..Default::default() };
        let of = |about| verdict(&judging, &status, about);
        assert_eq!((of(("1", "c", "r")), of(("2", "c", "r"))), (Some(Ok(())), Some(Err("m"))));
        for about in [("1", "d", "r"), ("1", "c", "s"), ("2", "d", "r"), ("2", "c", "s"), ("3", "c", "r")] {
            assert_eq!(of(about), None, "{about:?}");
        }
    }
}
