//! Values of Secrets that can be recognised wherever they turn up.

use crate::history::What;
use crate::history::recorder::Recorder;

/// Makes them, and finds them again.
#[derive(Clone)]
pub(crate) struct Canaries {
    mark: String,
}

impl Canaries {
    pub(crate) fn new(seed: u64) -> Self {
        Self { mark: format!("canary-{seed:016x}") }
    }

    /// The secret of a version.
    pub(crate) fn of(&self, config: &str, version: &str) -> String {
        format!("{}-{config}-{version}", self.mark)
    }

    /// Notes where one stands that must not.
    pub(crate) fn look(&self, place: &str, text: &str, recorder: &Recorder) {
        if self.stands_in(text) {
            recorder.note(What::Leaked { place: place.to_owned() });
        }
    }

    fn stands_in(&self, text: &str) -> bool {
        let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &self.mark);
        // What follows the mark changes the last characters.
        text.contains(&self.mark) || text.contains(&encoded[..encoded.len() - 4])
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn a_secret_is_found_as_it_is_and_in_base64() {
        let canaries = Canaries::new(7);
        let secret = canaries.of("shop", "3");
        assert!(canaries.stands_in(&format!("a log with {secret} in it")));
        assert!(canaries.stands_in(&BASE64_STANDARD.encode(&secret)));
        assert!(!canaries.stands_in(&Canaries::new(8).of("shop", "3")));
    }
}
