//! Annotations of workloads and pods about restarts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::injection::annotations::RESTART;

/// Annotation of a template: the digest of the content that its pods start with, from published ConfigMaps and from an agent.
pub const DIGEST: &str = "nudge.dev/config-digest";
/// Annotation of a workload (not of its template): when Nudge last restarted it, with which digest, and whether it was well then.
pub const RESTARTED: &str = "nudge.dev/restarted";

/// What a mark's field begins with that says how many pods were available before.
const BEFORE: &str = "available:";

/// The last restart of a workload by Nudge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// When the template was written.
    pub at: Timestamp,
    /// The digest that was written.
    pub digest: String,
    /// What the template was like, but for the digest.
    pub template: String,
    /// Whether the workload was not well before, so the restart is not waited for.
    pub unwell: bool,
    /// How many pods were available before, where that were not all. A version that takes none of them is not to blame.
    pub before: Option<i32>,
}

impl Restarted {
    /// Returns the annotation's value.
    pub fn text(&self) -> String {
        let unwell = if self.unwell { " unwell" } else { "" };
        let before = self.before.map_or_else(String::new, |before| format!(" {BEFORE}{before}"));
        format!("{} {} {}{unwell}{before}", self.at, self.digest, self.template)
    }

    /// Reads the annotation's value. Only Nudge writes it; anything else counts as none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let (at, digest) = (fields.next()?.parse().ok()?, fields.next()?.to_owned());
        let mut mark = Self { at, digest, template: fields.next()?.to_owned(), unwell: false, before: None };
        for field in fields {
            match field.strip_prefix(BEFORE) {
                Some(before) => mark.before = Some(before.parse().ok()?),
                None if field == "unwell" => mark.unwell = true,
                None => return None,
            }
        }
        Some(mark)
    }
}

/// Returns whether the metadata say that no version is a reason to restart the pods, which have no agent.
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
        for unwell in [false, true] {
            for before in [None, Some(0), Some(97)] {
                let (digest, template) = ("d".to_owned(), "t".to_owned());
                let one = Restarted { at: Timestamp::UNIX_EPOCH, digest, template, unwell, before };
                assert_eq!(Restarted::parse(&one.text()), Some(one));
            }
        }
        let at = Timestamp::UNIX_EPOCH;
        for other in
            ["yesterday d t".to_owned(), format!("{at} d"), format!("{at} d t x"), format!("{at} d t available:x")]
        {
            assert_eq!(Restarted::parse(&other), None, "{other}");
        }
    }
}
