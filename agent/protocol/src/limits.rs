//! Bounds that both sides keep, so that neither sends what the other refuses.

/// Longest value of one key, in bytes: what fits in one `ConfigMap` or `Secret`.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// Largest dictionary as JSON, in bytes. The agent's `serve/limits.rs` derives its memory limit from it.
pub const MAX_DICTIONARY_BYTES: usize = 3 * 1024 * 1024;
/// Largest dictionary in the format for shells, in bytes. It is more than a shell can pass to a command (execve(2)).
pub const MAX_ENV_BYTES: usize = 1024 * 1024;
/// Most keys in one dictionary.
pub const MAX_KEYS: usize = 8192;
/// Most configs in one pod.
pub const MAX_CONFIGS: usize = 32;
/// Most webhooks in one pod.
pub const MAX_WEBHOOKS: usize = 16;
/// Most containers of one pod that are asked about versions.
pub const MAX_CHECKS: usize = 16;
/// Most keys that a webhook's event lists as changed.
pub const MAX_LISTED_KEYS: usize = 256;
/// Most keys of one pod that become variables of containers.
pub const MAX_VARIABLES: usize = 256;
/// Longest file with variables of a container, in bytes: less than what a kubelet reads.
pub const MAX_VARIABLES_BYTES: usize = 60_000;
