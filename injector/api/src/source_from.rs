//! The place of the content of a `ConfigSource`: a git repository, an OCI artifact, or a secret of Vault.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PartKind;

/// Place of the content: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceFrom {
    /// Files of a git repository. They become ConfigMaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Files of an OCI artifact or image. They become ConfigMaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciSource>,
    /// A secret of the KV engine of Vault or OpenBao. It becomes Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<VaultSource>,
}

/// The place that a source names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePlace<'a> {
    /// Files of a git repository.
    Git(&'a GitSource),
    /// Files of an OCI artifact or image.
    Oci(&'a OciSource),
    /// A secret of Vault.
    Vault(&'a VaultSource),
}

impl SourceFrom {
    /// Returns the place that is named; `None` unless it is exactly one.
    pub fn place(&self) -> Option<SourcePlace<'_>> {
        let Self { git, oci, vault } = self;
        let mut places = [
            git.as_ref().map(SourcePlace::Git),
            oci.as_ref().map(SourcePlace::Oci),
            vault.as_ref().map(SourcePlace::Vault),
        ]
        .into_iter()
        .flatten();
        places.next().filter(|_| places.next().is_none())
    }
}

impl<'a> SourcePlace<'a> {
    /// Returns the kind of the objects that the content becomes.
    pub fn part_kind(self) -> PartKind {
        match self {
            Self::Git(_) | Self::Oci(_) => PartKind::ConfigMap,
            Self::Vault(_) => PartKind::Secret,
        }
    }

    /// Returns the name of the Secret with the credentials that are sent to the server.
    pub fn credentials(self) -> Option<&'a str> {
        let secret = match self {
            Self::Git(git) => git.secret_ref.as_ref(),
            Self::Oci(oci) => oci.secret_ref.as_ref(),
            Self::Vault(_) => None,
        };
        secret.map(|secret| secret.name.as_str())
    }
}

/// An object of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceObject {
    /// Name of the object in this namespace.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
}

/// Files of a git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// URL of the repository without a password: `https://host/path`, `ssh://user@host/path`, or `user@host:path`.
    #[schemars(
        length(min = 1, max = 512),
        regex(
            pattern = r"^(https://[^@?#\s]+|ssh://([-._A-Za-z0-9]+@)?[^@?#\s]+|[-._A-Za-z0-9]+@[^@:/?#\s]+:[^@?#\s]+)$"
        )
    )]
    pub url: String,
    /// Commit to read. Set exactly one of the fields. Defaults to HEAD of the server.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// Folder or file of the repository to read. Defaults to all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub path: String,
    /// Secret of the namespace with the credentials. Its annotation nudge.dev/allowed-hosts must name the host. Its
    /// keys, of which the first set counts: `ssh-privatekey` and `known_hosts`; `token`, with `username` where the
    /// server requires one; `username` and `password`; or `github-app-id`, `github-installation-id` and
    /// `github-private-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SourceObject>,
    /// Whether files that Git LFS keeps are read. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lfs: bool,
    /// Certificates, in PEM, of the authorities that the server is checked by, in place of those of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca: Option<String>,
    /// Refuses commits without a signature by one of these signers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitVerification>,
}

/// Commit of a repository: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GitReference {
    /// Name of a branch. Its newest commit is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub branch: Option<String>,
    /// Name of a tag, whose commit is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub tag: Option<String>,
    /// Range of versions, such as `>=1.2, <2`. The commit of the highest tag in it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub semver: Option<String>,
    /// Hash of the commit, in 40 or 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 40, max = 64))]
    pub commit: Option<String>,
}

/// Signers of whom one must have signed the commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitVerification {
    /// SSH keys that may sign, in lines as `ssh-keygen(1)` describes them under ALLOWED SIGNERS.
    #[schemars(length(min = 1, max = 16384))]
    pub allowed_signers: String,
}

/// Files of an OCI artifact or image. `tag`, `semver` or `digest` says which one: exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciSource {
    /// URL of the repository: `oci://registry/repository`. Set exactly one of tag, semver and digest beside it.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^oci(\+http)?://[^@?#\s]+$"))]
    pub url: String,
    /// Tag of the artifact or image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub tag: Option<String>,
    /// Range of versions, such as `>=1.2, <2`. The artifact with the highest tag in it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub semver: Option<String>,
    /// Digest of the artifact or image: `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 71, max = 71))]
    pub digest: Option<String>,
    /// Platform of an image that exists for several, such as `linux/amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub platform: Option<String>,
    /// Folder or file of the artifact to read. Defaults to all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub path: String,
    /// Secret of the namespace with the credentials. Its annotation nudge.dev/allowed-hosts must name the host. Its
    /// keys: `.dockerconfigjson`, or `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SourceObject>,
    /// Certificates, in PEM, of the authorities that the registry is checked by, in place of those of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca: Option<String>,
}

/// A secret of the KV engine of Vault or OpenBao.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VaultSource {
    /// URL of the server: `https://host:port`. It is also the audience of the token that Nudge sends to Vault.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https://[^@?#\s]+$"))]
    pub address: String,
    /// Certificates, in PEM, of the authorities that Vault is checked by, in place of those of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca: Option<String>,
    /// Login of Nudge to Vault.
    pub auth: VaultAuth,
    /// The secret to read.
    pub kv: VaultKv,
}

/// Login of Nudge to Vault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VaultAuth {
    /// Logs in with a token of a service account, by the auth method `kubernetes` or `jwt`.
    pub kubernetes: VaultKubernetes,
}

/// A service account of the namespace that Vault knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VaultKubernetes {
    /// Role of Vault to log in with.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[-._A-Za-z0-9]+$"))]
    pub role: String,
    /// Path at which Vault has the auth method. Defaults to kubernetes.
    #[serde(default = "kubernetes")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[-._A-Za-z0-9]+(/[-._A-Za-z0-9]+)*$"))]
    pub mount: String,
    /// Name of the service account in this namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub service_account: String,
}

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

/// A secret of a KV engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VaultKv {
    /// Path at which Vault has the engine. Defaults to secret.
    #[serde(default = "secret")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[-._A-Za-z0-9]+(/[-._A-Za-z0-9]+)*$"))]
    pub mount: String,
    /// Path of the secret in the engine.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[-._A-Za-z0-9]+(/[-._A-Za-z0-9]+)*$"))]
    pub path: String,
    /// Version of the engine, 1 or 2. Defaults to 2.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 2))]
    pub version: u8,
}

fn secret() -> String {
    "secret".to_owned()
}

fn two() -> u8 {
    2
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_has_one_origin_and_no_other() {
        let from = |value| serde_json::from_value::<SourceFrom>(value).unwrap();
        assert_eq!(from(json!({})).place(), None);
        let git = json!({"url": "https://git.example.com/shop", "secretRef": {"name": "deploy-key"}});
        let source = from(json!({"git": git}));
        let place = source.place().unwrap();
        assert_eq!((place.part_kind(), place.credentials()), (PartKind::ConfigMap, Some("deploy-key")));
        let oci = json!({"url": "oci://registry.example.com/shop"});
        assert_eq!(from(json!({"git": git, "oci": oci})).place(), None);
    }

    #[test]
    fn vault_is_where_it_usually_is() {
        let source: VaultSource = serde_json::from_value(json!({
            "address": "https://vault:8200", "auth": {"kubernetes": {"role": "shop", "serviceAccount": "shop"}}, "kv": {"path": "shop"}
        }))
        .unwrap();
        assert_eq!(
            (source.auth.kubernetes.mount.as_str(), source.kv.mount.as_str(), source.kv.version),
            ("kubernetes", "secret", 2)
        );
    }
}
