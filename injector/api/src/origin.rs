//! The origin of the content of a version: the annotation `nudge.dev/origin` of its parts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Text;

/// The maximum size of the annotation.
const MAX_BYTES: usize = 1024;

/// The origin of a version's content, as stated by those who made the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Git, OCI or Vault.
    pub kind: OriginKind,
    /// The URL without credentials.
    pub url: Text<512>,
    /// The commit, the digest of the manifest, or the version of the secret.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub revision: Text<128>,
    /// The folder or file.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub path: Text<512>,
    /// Time at which the revision was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The signer of the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<Text<256>>,
}

/// What kind of server a version came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OriginKind {
    /// A git repository.
    Git,
    /// An OCI artifact or image.
    #[serde(rename = "OCI")]
    Oci,
    /// A secret of Vault or OpenBao.
    Vault,
}

impl OriginKind {
    /// Returns the name of the kind, as objects have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Git => "Git",
            Self::Oci => "OCI",
            Self::Vault => "Vault",
        }
    }
}

impl Origin {
    /// Returns the text of the annotation; `None` where it is too long.
    pub fn annotation(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|text| text.len() <= MAX_BYTES)
    }

    /// Reads the annotation. Users may write it, so the origin is left out where the text is malformed or too long, or
    /// has a year that the API does not allow.
    pub fn read(annotation: &str) -> Option<Self> {
        let origin: Self = serde_json::from_str(annotation).ok().filter(|_| annotation.len() <= MAX_BYTES)?;
        // RFC 3339, section 5.6: four digits.
        origin
            .time
            .as_ref()
            .is_none_or(|time| (0..=9999).contains(&time.0.to_zoned(TimeZone::UTC).year()))
            .then_some(origin)
    }

    /// Returns the origin in one line: kind, URL, path and a shortened revision.
    pub fn line(&self) -> String {
        let Self { kind, url, revision, path, .. } = self;
        let hash = revision.strip_prefix("sha256:").unwrap_or(revision);
        let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let revision = if is_hash { &hash[..12] } else { &**revision };
        let revision = if revision.is_empty() { String::new() } else { format!("@{revision}") };
        let path = if path.is_empty() { String::new() } else { format!(" {path}") };
        format!("{} {url}{revision}{path}", kind.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let text = json!({"kind": "Git", "url": "https://git.example.com/shop", "revision": "0123456789".repeat(4), "path": "prod",
            "time": "2026-11-25T10:00:00Z", "signer": "ann@example.com"});
        let origin = Origin::read(&text.to_string()).unwrap();
        assert_eq!(Origin::read(&origin.annotation().unwrap()), Some(origin.clone()));
        assert_eq!(origin.line(), "Git https://git.example.com/shop@012345678901 prod");
        let vault = Origin::read(&json!({"kind": "Vault", "url": "https://vault:8200", "revision": "3"}).to_string());
        assert_eq!(vault.unwrap().line(), "Vault https://vault:8200@3");
    }

    #[test]
    fn what_the_api_server_would_refuse_in_a_status_is_cut_or_left_out() {
        let of = |more: serde_json::Value| {
            let mut origin = json!({"kind": "Git", "url": "https://git.example.com/shop"});
            origin.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Origin::read(&origin.to_string())
        };
        let long = of(json!({"url": "u".repeat(600), "revision": "r".repeat(200)})).unwrap();
        assert!(long.url.len() == 512 && long.revision.len() == 128 && long.url.ends_with('…'), "{long:?}");
        assert_eq!(of(json!({"path": "a\u{1b}[2J"})).unwrap().path, "a [2J");
        assert!(of(json!({"time": "0001-01-01T00:00:00Z"})).is_some());
        for time in ["-000001-01-01T00:00:00Z", "0000-01-01T00:00:00+10:00", "soon"] {
            assert_eq!(of(json!({"time": time})), None, "{time}");
        }
    }

    #[test]
    fn what_is_none_is_left_out() {
        for text in [
            json!("a").to_string(),
            json!({"kind": "Git"}).to_string(),
            json!({"kind": "Git", "url": "a".repeat(1024)}).to_string(),
        ] {
            assert_eq!(Origin::read(&text), None, "{text}");
        }
    }
}
