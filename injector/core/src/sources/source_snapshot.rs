//! The facts about a source, and the decision that follows from them.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigSource, ConfigSourceStatus, Explanation, VersionedConfig};

use super::debounced_version::DebouncedVersion;

/// The content of a source, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Upstream<'a> {
    /// The content has not been read yet.
    Unknown,
    /// The content is missing, may not be read, or can't become a version.
    Refused(&'a Explanation),
    /// The newest content.
    Content(&'a DebouncedVersion),
}

/// The facts about a source at one moment.
#[derive(Clone, Copy, Debug)]
pub struct SourceSnapshot<'a> {
    /// The source, with the status as this process knows it.
    pub source: &'a ConfigSource,
    /// The content.
    pub upstream: Upstream<'a>,
    /// The refusal of the content by the config's rules, as far as the source knows them.
    pub refusal: Option<&'a Explanation>,
    /// The config, if it exists.
    pub config: Option<&'a VersionedConfig>,
    /// The last version that the config keeps of a source that is gone.
    pub last: Option<&'a str>,
    /// The older source that makes the versions of the config.
    pub rival: Option<&'a str>,
    /// The reason why the last act failed, while nothing has changed since.
    pub trouble: Option<&'a Explanation>,
    /// The present time.
    pub now: Timestamp,
}

/// An act of a source. After the act, the next decision about the source follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Create the config of the source's name.
    CreateConfig,
    /// Make the version of the newest content.
    Make,
    /// Request this version.
    Activate(String),
    /// Request another attempt with this version, which is requested and failed.
    Retry(String),
    /// Note in the config that Secret versions of sources older than this one may go, or remove that note.
    KeepOnly(Option<String>),
}

/// The decision about a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceDecision {
    /// The status as it should be.
    pub status: ConfigSourceStatus,
    /// The act to carry out.
    pub act: Option<Act>,
    /// The time of the next decision about the source if nothing changes.
    pub recheck_at: Option<Timestamp>,
}
