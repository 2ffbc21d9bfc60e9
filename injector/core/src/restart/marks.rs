//! What Nudge writes on workloads it restarts and pods, and what users write there about it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

/// Annotation of a template: stands for the content that its pods start with, of plain ConfigMaps and of what an agent gives them.
pub const DIGEST: &str = "nudge.dev/config-digest";
/// Annotation of a workload (not of its template): when it was last restarted, with which digest, and whether it was well then.
pub const RESTARTED: &str = "nudge.dev/restarted";
/// Annotation of a pod whose volumes the kubelet is to read again: the version that was published.
pub const REFRESHED: &str = "nudge.dev/refreshed";
/// Annotation of a template without an agent: the kubelet is to refresh its volumes at once.
pub const REFRESH: &str = "nudge.dev/refresh";

/// The last restart of a workload by us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// When it was asked for.
    pub at: Timestamp,
    /// The digest that was written.
    pub digest: String,
    /// It was not well even before, so it is not waited for.
    pub unwell: bool,
}

impl Restarted {
    /// As it stands in the annotation.
    pub fn text(&self) -> String {
        format!("{} {}{}", self.at, self.digest, if self.unwell { " unwell" } else { "" })
    }

    /// Of the annotation; what nobody but us writes and can't be read counts as none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let (at, digest) = (fields.next()?.parse().ok()?, fields.next()?.to_owned());
        Some(Self { at, digest, unwell: fields.next() == Some("unwell") })
    }
}

pub(super) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    found(meta.annotations.as_ref(), name)
}

pub(super) fn found<'a>(map: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    map?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for unwell in [false, true] {
            let one = Restarted { at: Timestamp::from_second(1_700_000_000).unwrap(), digest: "d".to_owned(), unwell };
            assert_eq!(Restarted::parse(&one.text()), Some(one));
        }
        assert_eq!(Restarted::parse("yesterday d"), None);
    }
}
