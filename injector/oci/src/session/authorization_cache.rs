//! The authorizations that registries accepted, so that a check of an unchanged artifact takes one request.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hyper::header::HeaderValue;
use nudge_core::remote::OciReference;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::credential::Credential;
use crate::session::Action;

/// The maximum number of authorizations. When there is one more, all are dropped and must be requested again.
const MAX_AUTHORIZATIONS: usize = 256;

/// The owner of an authorization. No credential ever gets the authorization of another.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct AuthorizationKey {
    repository: String,
    action: Action,
    credential_hash: [u8; 32],
}

impl AuthorizationKey {
    pub(super) fn new(reference: &OciReference, action: Action, credential: &Credential) -> Self {
        let encoded = credential.encoded();
        let hash = digest(&SHA256, encoded.as_ref().map(|text| text.as_bytes()).unwrap_or_default());
        let mut credential_hash = [0; 32];
        credential_hash.copy_from_slice(hash.as_ref());
        Self { repository: reference.to_string(), action, credential_hash }
    }
}

/// The authorizations by their owner. The registry's answer shows whether one has expired.
#[derive(Clone, Default)]
pub(super) struct AuthorizationCache(Arc<Mutex<HashMap<AuthorizationKey, HeaderValue>>>);

impl AuthorizationCache {
    pub(super) fn get(&self, key: &AuthorizationKey) -> Option<HeaderValue> {
        self.0.lock().get(key).cloned()
    }

    pub(super) fn set(&self, key: AuthorizationKey, value: HeaderValue) {
        let mut authorizations = self.0.lock();
        if authorizations.len() >= MAX_AUTHORIZATIONS && !authorizations.contains_key(&key) {
            authorizations.clear();
        }
        authorizations.insert(key, value);
    }
}

impl fmt::Debug for AuthorizationCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AuthorizationCache")
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn nobody_gets_what_another_credential_got() {
        let [one, two] = ["oci://r/a", "oci://r/b"].map(|it| OciReference::parse(it).unwrap());
        let basic = |password: &str| Credential::Basic {
            username: "a".to_owned(),
            password: Zeroizing::new(password.to_owned()),
        };
        let cache = AuthorizationCache::default();
        cache.set(AuthorizationKey::new(&one, Action::Pull, &basic("right")), HeaderValue::from_static("hidden"));
        assert!(cache.get(&AuthorizationKey::new(&one, Action::Pull, &basic("right"))).is_some());
        for (reference, action, credential) in [
            (&one, Action::Pull, basic("wrong")),
            (&one, Action::Pull, Credential::Anonymous),
            (&one, Action::Push, basic("right")),
            (&two, Action::Pull, basic("right")),
        ] {
            assert!(cache.get(&AuthorizationKey::new(reference, action, &credential)).is_none());
        }
        assert!(!format!("{cache:?}").contains("hidden"));
        for n in 0..=MAX_AUTHORIZATIONS {
            cache.set(AuthorizationKey::new(&one, Action::Pull, &basic(&n.to_string())), HeaderValue::from_static("x"));
            assert!(cache.0.lock().len() <= MAX_AUTHORIZATIONS);
        }
    }
}
