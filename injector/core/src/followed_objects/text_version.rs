use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionedConfigStatus;

use crate::baseline::FIRST_VERSION;
use crate::keys::PartMeta;
use crate::versions::{ContentDigests, Seals};

/// How long a text must stay unchanged before it becomes a version.
pub const TEXT_DEBOUNCE: Duration = Duration::from_secs(2);

/// The version that a text is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// The name of the version.
    pub version: String,
    /// Whether the version's objects must be created.
    pub is_new: bool,
}

impl TextRequest {
    /// Returns the version of the text with these digests. `parts` are the objects of all versions of the config.
    ///
    /// The first version of a config is called `1.0.0`, unless objects of that name have another content. Another text
    /// is the sealed version that has its content, or a version whose name is its digest.
    pub fn of(
        digests: &ContentDigests,
        status: &VersionedConfigStatus,
        parts: &[Arc<PartMeta>],
        first: FirstVersion,
        seals: &Seals,
    ) -> Self {
        if let Some(sealed) = digests.find_version(status, seals) {
            return Self { version: sealed.to_owned(), is_new: false };
        }
        let is_first = status.versions.is_empty() && status.internal.retired.is_empty();
        let is_free = match first {
            FirstVersion::Made => true,
            FirstVersion::Taken => false,
            FirstVersion::Unmade => parts.is_empty(),
        };
        let version = if is_first && is_free { FIRST_VERSION.to_owned() } else { digests.text_version(seals) };
        let count = parts.iter().filter(|part| part.version == version && !part.terminating).count();
        Self { version, is_new: count < digests.count() }
    }
}

/// What this leader knows of the objects of version `1.0.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstVersion {
    /// This leader has made none of the objects.
    #[default]
    Unmade,
    /// This leader has made the objects of the present text.
    Made,
    /// Another object has the name of one of the objects.
    Taken,
}

#[cfg(test)]
mod tests {
    use nudge_api::{PartKind, RetiredVersion};
    use zeroize::Zeroizing;

    use super::*;
    use crate::versions::{Contents, part, seals};

    fn digests(kinds: &[PartKind]) -> ContentDigests {
        let content: Contents = [("pin".to_owned(), Zeroizing::new(b"4".to_vec()))].into();
        ContentDigests::of(kinds.iter().map(|kind| (*kind, &content)), &seals())
    }

    fn parts(versions: &[&str]) -> Vec<Arc<PartMeta>> {
        versions.iter().map(|version| Arc::new(part(PartKind::ConfigMap, version, version))).collect()
    }

    fn request(status: &VersionedConfigStatus, versions: &[&str], first: FirstVersion) -> (String, bool) {
        let TextRequest { version, is_new } =
            TextRequest::of(&digests(&[PartKind::ConfigMap]), status, &parts(versions), first, &seals());
        (version, is_new)
    }

    #[test]
    fn the_first_text_is_1_0_0_and_others_are_named_by_their_content() {
        let mut status = VersionedConfigStatus::default();
        assert_eq!(request(&status, &[], FirstVersion::Unmade), (FIRST_VERSION.to_owned(), true));
        assert_eq!(request(&status, &["1.0.0"], FirstVersion::Made), (FIRST_VERSION.to_owned(), false));
        let (named, is_new) = request(&status, &["1.0.0"], FirstVersion::Unmade);
        assert!(named.starts_with("txt-") && is_new, "{named}: 1.0.0 may have other content");
        assert_eq!(request(&status, &[], FirstVersion::Taken), (named.clone(), true));
        assert_eq!(request(&status, &["2", &named], FirstVersion::Unmade), (named.clone(), false));
        status.internal.retired = vec![RetiredVersion { version: "1.0.0".to_owned(), digests: Vec::new() }];
        assert_eq!(request(&status, &[], FirstVersion::Unmade), (named, true), "1.0.0 had other content");
    }

    #[test]
    fn a_version_is_made_until_all_of_its_objects_exist() {
        let (status, both) = (VersionedConfigStatus::default(), digests(&[PartKind::ConfigMap, PartKind::Secret]));
        let is_new =
            |parts: &[Arc<PartMeta>]| TextRequest::of(&both, &status, parts, FirstVersion::Taken, &seals()).is_new;
        let named = both.text_version(&seals());
        assert!(is_new(&[]) && is_new(&parts(&[&named])) && !is_new(&parts(&[&named, &named])));
        let mut ending = part(PartKind::Secret, "b", &named);
        ending.terminating = true;
        assert!(is_new(&[parts(&[&named]), vec![Arc::new(ending)]].concat()));
    }
}
