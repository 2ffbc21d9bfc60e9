//! Credentials for registries, and their entries in docker configs.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nudge_core::remote::OciReference;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::archive::is_below;

/// A credential for one registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// No credential.
    Anonymous,
    /// A name and a password.
    Basic {
        /// The user's name.
        username: String,
        /// The password, or a token in its place.
        password: Zeroizing<String>,
    },
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic",
        })
    }
}

impl Credential {
    /// Returns the value of the header `Authorization` without its scheme.
    pub(crate) fn encoded(&self) -> Option<Zeroizing<String>> {
        let Self::Basic { username, password } = self else { return None };
        let plain = Zeroizing::new(format!("{username}:{}", password.as_str()));
        Some(Zeroizing::new(STANDARD.encode(plain.as_bytes())))
    }
}

/// The reason why a docker config can't be used. No message repeats text of the config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The text is not a docker config.
    #[error("it is not a docker config, which is a JSON object with the object auths")]
    Json,
    /// The entry is not complete.
    #[error("its entry for {0} has neither auth nor username and password")]
    Incomplete(String),
    /// The field `auth` of the entry can't be decoded.
    #[error("auth of its entry for {0} is not the Base64 of NAME:PASSWORD")]
    Encoding(String),
    /// The entry has a token for another protocol.
    #[error("its entry for {0} has an identity token, which Nudge does not use; store a password or an access token")]
    IdentityToken(String),
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, RegistryLogin>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RegistryLogin {
    auth: Option<Hidden>,
    username: Option<String>,
    password: Option<Hidden>,
    #[serde(rename = "identitytoken")]
    identity_token: Option<Hidden>,
}

/// A text of a JSON document that is wiped from memory.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(crate) struct Hidden(pub(crate) Zeroizing<String>);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

/// Returns the credential of a docker config (`config.json`, `.dockerconfigjson`) for this repository. The longest
/// matching entry counts. Credential helpers are programs, which are not run.
pub fn credential_of(config: &[u8], reference: &OciReference) -> Result<Credential, CredentialError> {
    let config: Config = serde_json::from_slice(config).map_err(|_| CredentialError::Json)?;
    let entries = config.auths.into_iter().filter(|(name, _)| applies_to(name, reference));
    let Some((name, entry)) = entries.max_by_key(|(name, _)| without_scheme(name).len()) else {
        return Ok(Credential::Anonymous);
    };
    let is_set = |text: &Hidden| !text.0.is_empty();
    if entry.identity_token.as_ref().is_some_and(is_set) {
        return Err(CredentialError::IdentityToken(display_name(&name)));
    }
    if let Some(auth) = entry.auth.filter(is_set) {
        let encoding_error = || CredentialError::Encoding(display_name(&name));
        let decoded = Zeroizing::new(STANDARD.decode(auth.0.trim()).map_err(|_| encoding_error())?);
        let text = std::str::from_utf8(&decoded).map_err(|_| encoding_error())?;
        let (username, password) = text.split_once(':').ok_or_else(encoding_error)?;
        let password = Zeroizing::new(password.trim_end_matches('\0').to_owned());
        return Ok(Credential::Basic { username: username.to_owned(), password });
    }
    match (entry.username, entry.password) {
        (Some(username), Some(Hidden(password))) => Ok(Credential::Basic { username, password }),
        // Docker leaves such an entry behind when a helper has the credential.
        (None, None) => Ok(Credential::Anonymous),
        _ => Err(CredentialError::Incomplete(display_name(&name))),
    }
}

/// Returns the name of an entry without scheme and final slash. In old configs the name is a URL.
fn without_scheme(name: &str) -> &str {
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
    name.trim_end_matches('/')
}

fn display_name(name: &str) -> String {
    nudge_protocol::bounded_text::one_line(without_scheme(name), 253)
}

/// Returns whether an entry is for the registry, or for the part of it that holds the repository. An entry with
/// `https://` is only for TLS.
fn applies_to(name: &str, reference: &OciReference) -> bool {
    let address = reference.address();
    if name.starts_with("https://") && !address.tls {
        return false;
    }
    let name = without_scheme(name);
    // Docker calls its own registry by these names.
    if address.host == "registry-1.docker.io" && ["index.docker.io/v1", "docker.io"].contains(&name) {
        return true;
    }
    let (registry, path) = name.split_once('/').unwrap_or((name, ""));
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    // An entry may name the port even if it is the default port.
    let with_port = format!("{}:{}", address.host, address.port);
    let is_registry = [reference.registry(), &with_port].iter().any(|name| name.eq_ignore_ascii_case(registry));
    is_registry && is_below(reference.repository(), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(config: &str, reference: &str) -> Result<Credential, CredentialError> {
        credential_of(config.as_bytes(), &OciReference::parse(reference).unwrap())
    }

    fn basic(username: &str, password: &str) -> Credential {
        Credential::Basic { username: username.to_owned(), password: Zeroizing::new(password.to_owned()) }
    }

    #[test]
    fn the_entry_of_the_registry_is_found() {
        let config = r#"{"auths": {
            "registry.example.com": {"auth": "YTpi"},
            "registry.example.com/team": {"auth": "YzpkOmU="},
            "other.example.com:8443": {"username": "f", "password": "g"},
            "https://index.docker.io/v1/": {"auth": "aDpp"},
            "https://secure.example.com": {"auth": "ajpr"},
            "helped.example.com": {}
        }, "credsStore": "desktop", "credHelpers": {"x": "y"}}"#;
        assert_eq!(of(config, "oci://registry.example.com/a"), Ok(basic("a", "b")));
        assert_eq!(of(config, "oci://registry.example.com/team/shop"), Ok(basic("c", "d:e")));
        assert_eq!(of(config, "oci://registry.example.com/teams/shop"), Ok(basic("a", "b")));
        assert_eq!(of(config, "oci://registry.example.com:443/a"), Ok(basic("a", "b")));
        assert_eq!(of(config, "oci://other.example.com:8443/a"), Ok(basic("f", "g")));
        assert_eq!(of(config, "oci://docker.io/a"), Ok(basic("h", "i")));
        assert_eq!(of(config, "oci://secure.example.com/a"), Ok(basic("j", "k")));
        assert_eq!(of(config, "oci+http://registry.example.com/a"), Ok(basic("a", "b")));
        assert_eq!(of(config, "oci+http://secure.example.com/a"), Ok(Credential::Anonymous), "not for all to read");
        for none in ["other.example.com", "registry.example.com:444", "example.com", "helped.example.com"] {
            assert_eq!(of(config, &format!("oci://{none}/a")), Ok(Credential::Anonymous), "{none}");
        }
    }

    #[test]
    fn what_can_not_be_used_is_said_without_repeating_it() {
        for (config, error) in [
            ("hidden", CredentialError::Json),
            (r#"{"auths": {"r": {"auth": "hidden!"}}}"#, CredentialError::Encoding("r".into())),
            (r#"{"auths": {"r": {"auth": "aGlkZGVu"}}}"#, CredentialError::Encoding("r".into())),
            (r#"{"auths": {"r": {"username": "hidden"}}}"#, CredentialError::Incomplete("r".into())),
            (
                r#"{"auths": {"r": {"auth": "YTpi", "identitytoken": "hidden"}}}"#,
                CredentialError::IdentityToken("r".into()),
            ),
        ] {
            let found = of(config, "oci://r/a").unwrap_err();
            assert!(!format!("{found} {found:?}").contains("hidden"));
            assert_eq!(found, error);
        }
        let basic = basic("hidden", "hidden");
        assert_eq!(format!("{basic:?}"), "Basic");
    }
}
