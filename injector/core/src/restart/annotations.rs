//! The annotations of workloads and pods about restarts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::injection::annotations::RESTART;

/// The annotation of a template with the digest of the content that its pods start with, from published ConfigMaps and
/// from an agent.
pub const DIGEST_ANNOTATION: &str = "nudge.dev/config-digest";
/// The annotation of a workload, not of its template, with the mark of the last restart by Nudge.
pub const MARK_ANNOTATION: &str = "nudge.dev/restarted";

/// The prefix of the field of a mark with the number of pods that were available before.
const AVAILABLE_PREFIX: &str = "available:";

/// The digest of the content that pods start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentDigest(Box<str>);

/// The fingerprint of a template, which ignores the annotations that only restart pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFingerprint(Box<str>);

impl ContentDigest {
    /// Returns the digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ContentDigest {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&str> for TemplateFingerprint {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// The last restart of a workload by Nudge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartMark {
    /// The time when the template was written.
    pub at: Timestamp,
    /// The digest that was written.
    pub digest: ContentDigest,
    /// The digest of the same content with all keys of its objects, which needs none of their values.
    pub whole: ContentDigest,
    /// The template that the digest was written into.
    pub template: TemplateFingerprint,
    /// The health of the workload before.
    pub before: HealthBefore,
}

/// The health of a workload before its restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthBefore {
    /// The workload was healthy.
    #[default]
    Well,
    /// Not all pods were available, but this many. A version that takes none of them is not to blame.
    Available(i32),
    /// The workload was not healthy, so nothing waits for the restart.
    Unwell,
}

impl HealthBefore {
    /// Returns the number of pods that were available, if some but not all were.
    pub(super) fn available(self) -> Option<i32> {
        if let Self::Available(pods) = self { Some(pods) } else { None }
    }
}

impl RestartMark {
    /// Returns the annotation's value.
    pub fn text(&self) -> String {
        let before = match self.before {
            HealthBefore::Well => String::new(),
            HealthBefore::Available(pods) => format!(" {AVAILABLE_PREFIX}{pods}"),
            HealthBefore::Unwell => " unwell".to_owned(),
        };
        format!("{} {} {} {}{before}", self.at, self.digest.0, self.whole.0, self.template.0)
    }

    /// Reads the annotation's value. Only Nudge writes it; anything else counts as none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let time = fields.next()?.parse().ok()?;
        let digest = fields.next()?.into();
        let whole = fields.next()?.into();
        let template = fields.next()?.into();
        let before = match fields.next() {
            None => HealthBefore::Well,
            Some("unwell") => HealthBefore::Unwell,
            Some(field) => HealthBefore::Available(field.strip_prefix(AVAILABLE_PREFIX)?.parse().ok()?),
        };
        fields.next().is_none().then_some(Self { at: time, digest, whole, template, before })
    }
}

/// Returns whether no version is a reason to restart pods with this metadata, which have no agent.
pub(super) fn is_never_restarted(meta: &ObjectMeta) -> bool {
    annotation(meta, RESTART) == Some("never")
}

pub(super) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        use HealthBefore::{Available, Unwell, Well};
        for before in [Well, Available(0), Available(97), Unwell] {
            let (digest, whole, template) = ("d".into(), "w".into(), "t".into());
            let mark = RestartMark { at: Timestamp::UNIX_EPOCH, digest, whole, template, before };
            assert_eq!(RestartMark::parse(&mark.text()), Some(mark));
        }
        let at = Timestamp::UNIX_EPOCH;
        for other in [
            "yesterday d w t".to_owned(),
            format!("{at} d w"),
            format!("{at} d w t x"),
            format!("{at} d w t available:x"),
        ] {
            assert_eq!(RestartMark::parse(&other), None, "{other}");
        }
    }
}
