//! Values of Secrets that can be recognised wherever they turn up.

use crate::history::Occurrence;
use crate::history::recorder::Recorder;

/// The values of the Secrets of one run, all with one mark.
#[derive(Clone)]
pub(crate) struct Canaries {
    mark: String,
}

impl Canaries {
    pub(crate) fn new(seed: u64) -> Self {
        Self { mark: format!("canary-{seed:016x}") }
    }

    /// Returns the secret value of a version.
    pub(crate) fn secret_value(&self, config: &str, version: &str) -> String {
        format!("{}-{config}-{version}", self.mark)
    }

    /// Records a leak, if the text has a value of a Secret.
    pub(crate) fn record_leak(&self, place: &str, text: &str, recorder: &Recorder) {
        if self.contains_mark(text) {
            recorder.note(Occurrence::Leaked { place: place.to_owned() });
        }
    }

    fn contains_mark(&self, text: &str) -> bool {
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
        let secret = canaries.secret_value("shop", "3");
        assert!(canaries.contains_mark(&format!("a log with {secret} in it")));
        assert!(canaries.contains_mark(&BASE64_STANDARD.encode(&secret)));
        assert!(!canaries.contains_mark(&Canaries::new(8).secret_value("shop", "3")));
    }
}
