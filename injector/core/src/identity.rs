//! The identity of a config: 128 bits that stay the same when the object is restored from a backup with its status.
//!
//! The identity follows from the uid of the object that first got a status. If a status has no identity, nothing is
//! lost: every replica derives the same identity, and assigns each pod the same version.

use std::fmt;

use nudge_api::VersionedConfig;
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

/// The identity of a config, which is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity([u8; 16]);

impl Identity {
    /// Returns the identity in the status, or the identity that the controller should write there.
    pub fn of(config: &VersionedConfig) -> Self {
        let written = config.status.as_ref().and_then(|status| Self::parse(status.internal.identity.as_deref()?));
        written.unwrap_or_else(|| Self::of_uid(config.metadata.uid.as_deref().unwrap_or_default()))
    }

    /// Reads an identity of 32 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = u128::from_str_radix(text, 16).ok()?;
        let identity = Self(bits.to_be_bytes());
        // One spelling only: no signs and no capitals.
        (identity.to_string() == text).then_some(identity)
    }

    /// Returns the identity of an object with this uid. The API server makes uids of random bits; others are hashed.
    pub fn of_uid(uid: &str) -> Self {
        let of_uuid = Self::parse(&uid.replace('-', "")).filter(|identity| identity.uuid() == uid);
        of_uuid.unwrap_or_else(|| {
            let mut bits = [0; 16];
            bits.copy_from_slice(&digest(&SHA256, uid.as_bytes()).as_ref()[..16]);
            Self(bits)
        })
    }

    /// Returns the identity in the form of a uid.
    pub(crate) fn uuid(self) -> String {
        let text = hex(&self.0);
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::{InternalStatus, VersionedConfigStatus};
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0af7651c-d43b-41d5-8e2f-0123456789ab";

    fn config(uid: &str, identity: Option<&str>) -> VersionedConfig {
        let mut config = VersionedConfig::default();
        config.metadata.uid = Some(uid.to_owned());
        let identity = identity.map(str::to_owned);
        config.status = Some(VersionedConfigStatus {
            internal: InternalStatus { identity, ..InternalStatus::default() },
            ..VersionedConfigStatus::default()
        });
        config
    }

    #[test]
    fn it_is_the_first_uid_and_then_what_the_status_says() {
        let first = Identity::of(&config(UID, None));
        assert_eq!((first.to_string().as_str(), first.uuid().as_str()), ("0af7651cd43b41d58e2f0123456789ab", UID));
        let restored = "11111111-d43b-41d5-8e2f-0123456789ab";
        assert_eq!(Identity::of(&config(restored, Some(&first.to_string()))), first);
        assert_ne!(Identity::of(&config(restored, None)), first);
    }

    #[test]
    fn what_is_no_identity_does_not_count() {
        let first = Identity::of(&config(UID, None));
        for text in ["", "0", "+af7651cd43b41d58e2f0123456789ab", "0AF7651CD43B41D58E2F0123456789AB", UID, "ü"] {
            assert_eq!(Identity::of(&config(UID, Some(text))), first, "{text}");
        }
        assert_ne!(Identity::of_uid("uid"), Identity::of_uid("uid2"));
        assert_ne!(Identity::of_uid(&first.to_string()), first, "not as the API server writes it");
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_is_written(bits: [u8; 16]) {
            let identity = Identity(bits);
            prop_assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
            prop_assert_eq!(Identity::of_uid(&identity.uuid()), identity);
        }
    }
}
