//! The version that a text is.

use std::time::Duration;

use nudge_api::VersionedConfigStatus;

use crate::versions::{ContentDigests, FIRST_VERSION, Seals};

/// How long a text must stay unchanged before it becomes a version.
pub const TEXT_DEBOUNCE: Duration = Duration::from_secs(2);

/// The version that a text is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// The name of the version.
    pub version: String,
    /// Whether its objects must be created.
    pub is_new: bool,
}

impl TextRequest {
    /// Returns the version of the text with these digests. `made` are the versions whose objects exist.
    ///
    /// The first version of a config is called `1.0.0`. Another text is the sealed version that has its content, or a
    /// version whose name is its digest.
    pub fn of<'a>(
        digests: &ContentDigests,
        status: &VersionedConfigStatus,
        mut made: impl Iterator<Item = &'a str> + Clone,
        seals: &Seals,
    ) -> Self {
        if let Some(sealed) = digests.find_version(status, seals) {
            return Self { version: sealed.to_owned(), is_new: false };
        }
        let is_first = status.versions.is_empty() && status.internal.retired.is_empty();
        let version = if is_first && made.clone().all(|version| version == FIRST_VERSION) {
            FIRST_VERSION.to_owned()
        } else {
            digests.text_version(seals)
        };
        let is_new = made.all(|other| other != version);
        Self { version, is_new }
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::{PartKind, RetiredVersion};
    use zeroize::Zeroizing;

    use super::*;
    use crate::versions::{Contents, seals};

    fn digests(value: &str) -> ContentDigests {
        let content: Contents = [("pin".to_owned(), Zeroizing::new(value.as_bytes().to_vec()))].into();
        ContentDigests::of([(PartKind::ConfigMap, &content)], &seals())
    }

    fn request(status: &VersionedConfigStatus, made: &[&str]) -> TextRequest {
        TextRequest::of(&digests("4"), status, made.iter().copied(), &seals())
    }

    #[test]
    fn the_first_text_is_1_0_0_and_others_are_named_by_their_content() {
        let mut status = VersionedConfigStatus::default();
        assert_eq!(request(&status, &[]), TextRequest { version: FIRST_VERSION.to_owned(), is_new: true });
        assert_eq!(request(&status, &["1.0.0"]), TextRequest { version: FIRST_VERSION.to_owned(), is_new: false });
        let named = request(&status, &["1.0.0", "2"]).version;
        assert!(named.starts_with("txt-"), "{named}");
        assert_eq!(request(&status, &["2", &named]), TextRequest { version: named.clone(), is_new: false });
        status.internal.retired = vec![RetiredVersion { version: "1.0.0".to_owned(), digests: Vec::new() }];
        assert_eq!(request(&status, &[]), TextRequest { version: named, is_new: true }, "1.0.0 had other content");
    }
}
