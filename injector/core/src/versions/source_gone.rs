//! The notice of a source whose Secret is gone for long: of the Secret versions of sources, only the last one is
//! needed.
//!
//! The controller deletes versions because of the notice. So it accepts only notices of holders of the content key, and
//! only until the spec of the config changes: an older notice is worth nothing. It is a [note](crate::signed_notes)
//! under the key of the config, which the role `sources` has.

use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_protocol::labels;

use super::seal::Seals;
use crate::signed_notes::{self, Clock};

impl Seals {
    /// Returns the notice for this config.
    pub fn source_gone_notice(&self, config: &VersionedConfig, last: &str, now: Timestamp) -> String {
        signed_notes::sign(self.notice_key(), labels::SOURCE_GONE, &[&generation(config)], last, now)
    }

    /// Returns the last version, if the annotation of the config is such a notice.
    pub fn last_of_source<'a>(&self, config: &'a VersionedConfig) -> Option<&'a str> {
        let notice = config.metadata.annotations.as_ref()?.get(labels::SOURCE_GONE)?;
        signed_notes::read(self.notice_key(), labels::SOURCE_GONE, &[&generation(config)], notice, Clock::Any)?;
        notice.splitn(3, ' ').nth(2)
    }
}

fn generation(config: &VersionedConfig) -> String {
    config.metadata.generation.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;

    use super::super::seal::tests::seals;
    use super::*;

    #[test]
    fn a_notice_holds_until_the_spec_changes() {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        config.metadata.generation = Some(3);
        assert_eq!(seals().last_of_source(&config), None);
        let notice = seals().source_gone_notice(&config, "src-1", Timestamp::UNIX_EPOCH);
        let mut says = |notice: &str, generation: i64| {
            config.metadata.generation = Some(generation);
            config.metadata.annotations = Some([(labels::SOURCE_GONE.to_owned(), notice.to_owned())].into());
            seals().last_of_source(&config).map(str::to_owned)
        };
        assert_eq!(says(&notice, 3).as_deref(), Some("src-1"));
        assert_eq!(says(&notice, 4), None);
        for forged in ["", "src-1", "src-1.", &notice.replace("src-1", "src-2"), &notice[..notice.len() - 1]] {
            assert_eq!(says(forged, 3), None, "{forged}");
        }
    }
}
