//! What is known of a source, and what is decided about it.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigSource, ConfigSourceStatus, Explanation, VersionedConfig};

use super::debounce::Newest;

/// What is known of the living object.
#[derive(Clone, Copy, Debug)]
pub enum Upstream<'a> {
    /// The object has not been read yet.
    Unknown,
    /// The object is missing, may not be read, or can't become a version.
    Refused(&'a Explanation),
    /// The content of the object.
    Content(&'a Newest),
}

/// What is known of a source.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The source, with the status as this process knows it.
    pub source: &'a ConfigSource,
    /// The living object.
    pub upstream: Upstream<'a>,
    /// The rules of the config that the content breaks, as far as the source knows them.
    pub refusal: Option<&'a Explanation>,
    /// The config; `None` where there is none.
    pub config: Option<&'a VersionedConfig>,
    /// The last version, where the config says that a source is gone for long.
    pub last: Option<&'a str>,
    /// Another source that makes the versions of the config.
    pub rival: Option<&'a str>,
    /// Why the last act failed, while nothing has changed since.
    pub trouble: Option<&'a Explanation>,
    /// The present time.
    pub now: Timestamp,
}

/// What to do. Afterwards the source is decided about again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Create the config.
    CreateConfig,
    /// Make the version of the newest content.
    Make,
    /// Ask for this version.
    Activate(String),
    /// Ask for another attempt with this version, which is asked for and failed.
    Retry(String),
    /// Say that older Secret versions of sources than this one may go, or no longer say so.
    KeepOnly(Option<String>),
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The status as it should be.
    pub status: ConfigSourceStatus,
    /// What to do.
    pub act: Option<Act>,
    /// When to decide again, though nothing is observed to change.
    pub again: Option<Timestamp>,
}
