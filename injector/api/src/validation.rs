//! `spec.validation`: the rules that the content of a version must follow before the version is sealed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule about values (`key` with `format`, `schema` or both), about keys (`required`), or about the whole version
/// (`rule`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValidationRule {
    /// Name of the rule, unique in the list, for messages.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Key whose value must have the format and follow the schema. `*` stands for any characters. A version without
    /// such a key does not break the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9*]+$"))]
    pub key: Option<String>,
    /// Format that the value must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<ValueFormat>,
    /// JSON Schema that the value must follow. Without `format`, the value is read by the end of its key: as YAML, as
    /// TOML, or else as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaSource>,
    /// Keys that the version must have, 1 to 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$")))]
    pub required: Option<Vec<String>>,
    /// CEL expression that must be true for the version. `data` has the values by their keys, as texts; `parsed` has
    /// the parsed values of the keys that have a format.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub rule: Option<String>,
    /// Message that users read when the rule is broken. It must not quote a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub message: Option<String>,
}

/// Format that the value must have: json, yaml, toml, properties, text, int, float, bool, duration (such as 1h30m),
/// timestamp (RFC 3339), url, ip, cidr, hostname, port, pem or base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ValueFormat {
    /// One JSON value. No object has a name twice.
    Json,
    /// One YAML document. No mapping has a key twice.
    Yaml,
    /// A TOML document.
    Toml,
    /// Properties as Java reads them. No key occurs twice.
    Properties,
    /// Text in UTF-8 without control characters.
    Text,
    /// A decimal number without fraction, from -2^63 to 2^64 - 1.
    Int,
    /// A decimal number.
    Float,
    /// true or false.
    Bool,
    /// A time as Go and Kubernetes write it, such as 1h30m or 500ms.
    Duration,
    /// A date with time and offset as in RFC 3339, such as 2026-11-23T12:00:00Z.
    Timestamp,
    /// An absolute URL with a host.
    Url,
    /// An address of IPv4 or IPv6.
    Ip,
    /// A network, such as 10.0.0.0/8.
    Cidr,
    /// A name in DNS.
    Hostname,
    /// A number from 1 to 65535.
    Port,
    /// One PEM block or several.
    Pem,
    /// Standard base64 with padding.
    Base64,
}

impl ValueFormat {
    /// All formats.
    pub const ALL: [Self; 17] = [
        Self::Json,
        Self::Yaml,
        Self::Toml,
        Self::Properties,
        Self::Text,
        Self::Int,
        Self::Float,
        Self::Bool,
        Self::Duration,
        Self::Timestamp,
        Self::Url,
        Self::Ip,
        Self::Cidr,
        Self::Hostname,
        Self::Port,
        Self::Pem,
        Self::Base64,
    ];
}

/// Place of a JSON Schema: one of both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchemaSource {
    /// The schema itself. Set either inline or configMapKeyRef.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub inline: Option<serde_json::Value>,
    /// Key of an immutable ConfigMap of the namespace that holds the schema, as JSON or YAML. Nudge reads it once: to
    /// change the schema, name another ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the ConfigMap that holds the schema.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Returns the schema of an object whose fields the API server does not check.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
