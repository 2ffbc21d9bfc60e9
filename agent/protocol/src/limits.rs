//! Bounds that both sides keep, so that neither side sends a message that the other side refuses.

/// The maximum size of one key's value, in bytes. Such a value fits in one `ConfigMap` or `Secret`.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// The maximum size of a dictionary as JSON, in bytes. The agent's `serve/limits.rs` derives its memory limit from it.
pub const MAX_DICTIONARY_BYTES: usize = 3 * 1024 * 1024;
/// The maximum size of a dictionary in the format for shells, in bytes: more than a shell can pass to a command
/// (execve(2)).
pub const MAX_ENV_BYTES: usize = 1024 * 1024;
/// The maximum number of keys in one dictionary.
pub const MAX_KEYS: usize = 8192;
/// The maximum number of configs in one pod.
pub const MAX_CONFIGS: usize = 32;
/// The maximum number of webhooks in one pod.
pub const MAX_WEBHOOKS: usize = 16;
/// The maximum number of containers of one pod that are asked about versions.
pub const MAX_CHECKS: usize = 16;
/// The maximum number of containers of one pod that must show that they took a version.
pub const MAX_VERIFIED: usize = 16;
/// The maximum number of keys that a webhook's event lists as changed.
pub const MAX_LISTED_KEYS: usize = 256;
/// The maximum number of keys of one pod that become variables of containers.
pub const MAX_VARIABLES: usize = 256;
/// The maximum number of patterns of keys that the containers of a pod read.
pub const MAX_KEY_PATTERNS: usize = 64;
/// The maximum size of the file with a container's variables, in bytes. The kubelet's own limit is higher.
pub const MAX_VARIABLES_BYTES: usize = 60_000;
