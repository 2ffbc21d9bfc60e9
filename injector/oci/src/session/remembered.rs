//! What registries wanted to see the last time, so that a look at an artifact that did not change is one request.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hyper::header::HeaderValue;
use nudge_core::remote::Reference;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::credential::Credential;
use crate::session::Act;

/// The most that is remembered. One more, and all is forgotten: it is asked for again.
const MAX_TOKENS: usize = 256;

/// Whose it is: nobody gets what another credential got.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    repository: String,
    act: Act,
    credential: [u8; 32],
}

impl Key {
    pub(super) fn new(reference: &Reference, act: Act, credential: &Credential) -> Self {
        let encoded = credential.encoded();
        let hash = digest(&SHA256, encoded.as_ref().map(|it| it.as_bytes()).unwrap_or_default());
        let mut credential = [0; 32];
        credential.copy_from_slice(hash.as_ref());
        Self { repository: reference.to_string(), act, credential }
    }
}

/// By whose it is. Expired tokens are known by the registry's answer.
#[derive(Clone, Default)]
pub(super) struct Remembered(Arc<Mutex<HashMap<Key, HeaderValue>>>);

impl Remembered {
    pub(super) fn get(&self, key: &Key) -> Option<HeaderValue> {
        self.0.lock().get(key).cloned()
    }

    pub(super) fn set(&self, key: Key, value: HeaderValue) {
        let mut all = self.0.lock();
        if all.len() >= MAX_TOKENS && !all.contains_key(&key) {
            all.clear();
        }
        all.insert(key, value);
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Remembered")
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn nobody_gets_what_another_credential_got() {
        let [one, two] = ["oci://r/a", "oci://r/b"].map(|it| Reference::parse(it).unwrap());
        let basic = |password: &str| Credential::Basic {
            username: "a".to_owned(),
            password: Zeroizing::new(password.to_owned()),
        };
        let all = Remembered::default();
        all.set(Key::new(&one, Act::Pull, &basic("right")), HeaderValue::from_static("hidden"));
        assert!(all.get(&Key::new(&one, Act::Pull, &basic("right"))).is_some());
        for (reference, act, credential) in [
            (&one, Act::Pull, basic("wrong")),
            (&one, Act::Pull, Credential::Anonymous),
            (&one, Act::Push, basic("right")),
            (&two, Act::Pull, basic("right")),
        ] {
            assert!(all.get(&Key::new(reference, act, &credential)).is_none());
        }
        assert!(!format!("{all:?}").contains("hidden"));
        for n in 0..=MAX_TOKENS {
            all.set(Key::new(&one, Act::Pull, &basic(&n.to_string())), HeaderValue::from_static("x"));
            assert!(all.0.lock().len() <= MAX_TOKENS);
        }
    }
}
