//! Labels and annotations of Nudge on Kubernetes objects.

/// Label of a namespace whose admin has enabled Nudge: `"true"`.
pub const ENABLED: &str = "nudge.dev/enabled";
/// Label of a version's parts: the config.
pub const CONFIG: &str = "nudge.dev/config";
/// Label of a version's parts: the version.
pub const VERSION: &str = "nudge.dev/version";
/// Label of a version's parts if there are several: the number of the part, from 1.
pub const PART: &str = "nudge.dev/part";
/// Annotation of a version's parts: how many there are; absent means 1.
pub const PARTS: &str = "nudge.dev/parts";
/// Annotation of a version's part, a note that the webhook signs: its creator may update the `ConfigMap` of the
/// config's name.
pub const MAY_ACTIVATE: &str = "nudge.dev/may-activate";
/// Annotation of a version's part: a note, signed by the webhook, of when and by whom the part was created.
pub const MADE_BY: &str = "nudge.dev/made-by";
/// Annotation of a version's part: a note, signed by the webhook, of the identity of the part's config.
pub const MADE_FOR: &str = "nudge.dev/made-for";
/// Annotation of a `VersionApproval`, a note that the webhook signs: when it was created, and the groups of the
/// approver.
pub const APPROVER_GROUPS: &str = "nudge.dev/approver-groups";
/// Label of version objects that the history limit may delete: `"true"`, set by `kubectl nudge`, or the number of
/// versions of the same kind that are kept, set by sources.
pub const PRUNE: &str = "nudge.dev/prune";
/// Label of an injected pod: the agent's version.
pub const AGENT: &str = "nudge.dev/agent";
/// Label or annotation of a pod that opts in: `"true"`.
pub const INJECT: &str = "nudge.dev/inject";
/// Annotation of an injected pod: the warnings of the injection, one a line.
pub const WARNINGS: &str = "nudge.dev/warnings";
/// Annotation of a pod: the labels that it was created with, as JSON. Injection writes it if a step of a rollout has
/// a selector.
pub const BIRTH_LABELS: &str = "nudge.dev/birth-labels";
/// Label of a ConfigMap or Secret that belongs to a config: the config's name.
pub const FOLLOWS: &str = "nudge.dev/follows";
/// Label of a published ConfigMap: the version that it holds.
pub const PUBLISHED: &str = "nudge.dev/published";
/// Label of a `ConfigMap` or Secret that gets a config of its name once a pod uses it: `"true"`. Label of a namespace
/// whose objects get configs: `mounted` those that pods read, `all` also every ConfigMap. Label of a config that such a
/// namespace has made: `namespace`.
pub const BASELINE: &str = "nudge.dev/baseline";
/// Annotation of a `VersionedConfig` that may be deleted while pods subscribe: `"true"`.
pub const FORCE_DELETE: &str = "nudge.dev/force-delete";
/// Annotation of a `VersionedConfig`: a note, signed by the webhook, of when and by whom `spec.version` was set.
pub const REQUESTED_BY: &str = "nudge.dev/requested-by";
/// Annotation of a `VersionedConfig`: a note, signed by the webhook, of when and by whom `spec.rollout.override` was
/// set.
pub const OVERRIDDEN_BY: &str = "nudge.dev/overridden-by";
/// Annotation of a `VersionedConfig`: a new value requests another attempt with the version in `spec.version`, if that
/// version has failed. The webhook replaces the value with a signed note of when and by whom the attempt was requested.
pub const RETRY: &str = "nudge.dev/retry";
/// Label of a `VersionedConfig` that has guards, set by the webhook: `"true"`.
pub const GUARDED: &str = "nudge.dev/guarded";
/// Annotation of a `VersionedConfig` that is being restored from an export: Nudge leaves the config alone until the
/// annotation is removed. Setting or removing it needs the verb `import`.
pub const IMPORTING: &str = "nudge.dev/importing";
/// Annotation of a `ConfigSource`: a note, signed by the webhook, of when and by whom its spec was set. The parts that
/// the source makes repeat the note, after the name of the source.
pub const SET_BY: &str = "nudge.dev/set-by";
/// Annotation of a `ConfigSource`: when `kubectl nudge source sync` was requested.
pub const SYNC: &str = "nudge.dev/sync";
/// Annotation of a `VersionedConfig`, a note that the role `sources` signs: the last version of a source whose secret
/// in Vault has been gone for `spec.secretRetentionSeconds`. Older Secret versions of sources are deleted if nobody
/// uses them.
pub const SOURCE_GONE: &str = "nudge.dev/source-gone";
/// Annotation of a Secret with credentials: the hosts that they may be sent to, such as
/// `prometheus.monitoring.svc:9090`, separated by commas or spaces.
pub const ALLOWED_HOSTS: &str = "nudge.dev/allowed-hosts";
/// Annotation of a part of a version: the origin of its content, in JSON.
pub const ORIGIN: &str = "nudge.dev/origin";
/// Prefix of all of Nudge's labels and annotations.
pub const PREFIX: &str = "nudge.dev/";
