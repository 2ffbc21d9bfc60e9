//! Resolves revisions by a server's list of refs.

use std::collections::BTreeMap;

use nudge_core::remote::{Revision, is_object_id, is_ref};
use semver::{Version, VersionReq};

/// The commit that a revision stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedRef {
    /// The id of the commit.
    pub commit: String,
    /// The id of the annotated tag.
    pub tag: Option<String>,
    /// The name of the ref, such as `refs/heads/main`, for servers that don't give commits by their id.
    pub name: Option<String>,
}

impl ResolvedRef {
    /// Makes a resolved ref from the id of a commit.
    pub(crate) fn commit(id: &str) -> Self {
        Self { commit: id.to_owned(), tag: None, name: None }
    }

    /// Returns the name of the tag without `refs/tags/`.
    pub(crate) fn tag_name(&self) -> Option<&str> {
        self.name.as_deref()?.strip_prefix("refs/tags/")
    }
}

/// Finds a revision in the output of `git ls-remote`.
pub fn find_revision(revision: &Revision, printed: &[u8]) -> Option<ResolvedRef> {
    let printed = String::from_utf8_lossy(printed);
    let refs: BTreeMap<&str, &str> = printed
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter(|(id, _)| is_object_id(id))
        .map(|(id, name)| (name, id))
        .collect();
    match revision {
        Revision::Head => find_ref(&refs, "HEAD"),
        Revision::Branch(name) => find_ref(&refs, &format!("refs/heads/{name}")),
        Revision::Tag(name) => find_ref(&refs, &format!("refs/tags/{name}")),
        Revision::Semver(range) => {
            let range = VersionReq::parse(range).ok()?;
            let versions = refs.keys().filter_map(|name| {
                let tag = name.strip_prefix("refs/tags/").filter(|tag| is_ref(tag))?;
                let version = Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()?;
                range.matches(&version).then_some((version, *name))
            });
            find_ref(&refs, versions.max()?.1)
        }
        Revision::Commit(id) => Some(ResolvedRef::commit(id)),
    }
}

fn find_ref(refs: &BTreeMap<&str, &str>, name: &str) -> Option<ResolvedRef> {
    let id = (*refs.get(name)?).to_owned();
    let peeled = refs.get(format!("{name}^{{}}").as_str()).map(|commit| (*commit).to_owned());
    let (commit, tag) = peeled.map_or_else(|| (id.clone(), None), |commit| (commit, Some(id.clone())));
    Some(ResolvedRef { commit, tag, name: Some(name.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn listed(refs: &[(char, &str)]) -> Vec<u8> {
        refs.iter().flat_map(|(digit, name)| format!("{}\t{name}\n", id(*digit)).into_bytes()).collect()
    }

    #[test]
    fn a_name_is_found_whole() {
        let listed = listed(&[
            ('0', "HEAD"),
            ('1', "refs/heads/main"),
            ('2', "refs/heads/x/refs/heads/next"),
            ('3', "refs/tags/one"),
            ('4', "refs/tags/one^{}"),
        ]);
        let commit = |revision| find_revision(&revision, &listed).map(|found| found.commit);
        assert_eq!(commit(Revision::Head), Some(id('0')));
        assert_eq!(commit(Revision::Branch("main".to_owned())), Some(id('1')));
        assert_eq!(commit(Revision::Branch("next".to_owned())), None);
        assert_eq!(commit(Revision::Tag("main".to_owned())), None);
        let tag = find_revision(&Revision::Tag("one".to_owned()), &listed).unwrap();
        assert_eq!((tag.commit.clone(), tag.tag.clone(), tag.tag_name()), (id('4'), Some(id('3')), Some("one")));
    }

    #[test]
    fn the_highest_version_in_the_range_is_taken() {
        let listed = listed(&[
            ('1', "refs/tags/v1.2.0"),
            ('2', "refs/tags/1.10.0"),
            ('3', "refs/tags/v2.0.0"),
            ('4', "refs/tags/v1.11.0-rc.1"),
            ('5', "refs/tags/nightly"),
            ('6', "refs/heads/v1.99.0"),
        ]);
        let of = |range: &str| find_revision(&Revision::Semver(range.to_owned()), &listed).map(|found| found.commit);
        assert_eq!(of("1"), Some(id('2')));
        assert_eq!(of(">=1"), Some(id('3')));
        assert_eq!(of(">=1.11.0-rc.0, <1.11.0"), Some(id('4')));
        assert_eq!(of("3"), None);
    }

    #[test]
    fn what_is_no_list_has_no_refs() {
        for bad in [b"x\tHEAD\n".as_slice(), b"\xff\tHEAD", b"", b"0000\tHEAD"] {
            assert_eq!(find_revision(&Revision::Head, bad), None);
        }
    }
}
