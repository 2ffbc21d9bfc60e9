//! Keys of the dictionary that Nudge itself sets. A user's key with [`PREFIX`] makes its version invalid.

/// The prefix of Nudge's own keys.
pub const PREFIX: &str = "nudge.";
/// The pod's configs with their versions, `shop=1.0.1,shop-keys=7`, in the order of their merge.
pub const CONFIGS: &str = "nudge.configs";
/// The keys whose values are base64 in the dictionary because they are not UTF-8, separated by commas; absent if none.
pub const BINARY: &str = "nudge.binary";

/// The name of [`CONFIGS`] in the env format.
pub const ENV_CONFIGS: &str = "NUDGE_CONFIGS";
/// The name of [`BINARY`] in the env format.
pub const ENV_BINARY: &str = "NUDGE_BINARY";

/// Returns the key that holds the version of one config, `nudge.config.<name>.version`.
pub fn version_key(config: &str) -> String {
    format!("{PREFIX}config.{config}.version")
}
