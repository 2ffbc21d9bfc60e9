//! Kubeconfig files, whole: they name no other files.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::authority::Certified;

/// Who asks the API server.
#[derive(Clone)]
pub enum Identity<'a> {
    /// The one that a certificate names.
    Certificate(&'a Certified),
    /// The one that a token names.
    Token(&'a str),
    /// The one that the certificate's owner, who must be allowed to, speaks for.
    Impersonated {
        /// The certificate of the client.
        certificate: &'a Certified,
        /// The user to impersonate.
        user: &'a str,
        /// All groups of the user, to which nothing is added but `system:authenticated`.
        groups: &'a [&'a str],
    },
}

/// Returns the text of a kubeconfig; JSON, which is YAML.
pub(super) fn text(server: &str, authority: &str, identity: &Identity<'_>) -> String {
    let user = match identity {
        Identity::Certificate(certificate) => with_certificate(certificate),
        Identity::Token(token) => json!({"token": token}),
        Identity::Impersonated { certificate, user, groups } => {
            let mut value = with_certificate(certificate);
            value["as"] = json!(user);
            value["as-groups"] = json!(groups);
            value
        }
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "test",
            "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(authority)},
        }],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    format!("{config:#}\n")
}

fn with_certificate(certified: &Certified) -> Value {
    json!({
        "client-certificate-data": BASE64_STANDARD.encode(&certified.certificate),
        "client-key-data": BASE64_STANDARD.encode(&certified.key),
    })
}
