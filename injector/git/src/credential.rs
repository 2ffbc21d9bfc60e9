use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nudge_core::outbound::Address;
use nudge_protocol::hex::hex;
use ring::digest::{Context, SHA256};
use zeroize::Zeroizing;

use crate::app::App;

/// A credential for a git server.
#[derive(Clone)]
pub enum Credential {
    /// No credential.
    Anonymous,
    /// An SSH key.
    Ssh {
        /// The private key without a passphrase, as OpenSSH writes it.
        key: Zeroizing<Vec<u8>>,
        /// The keys of servers, in the format of `known_hosts`.
        known_hosts: String,
    },
    /// A token, or a password.
    Token {
        /// The user's name; servers that know the user by the token take any name.
        username: String,
        /// The token or password, for the header `Authorization`.
        token: Zeroizing<String>,
    },
    /// An installation of a GitHub App.
    App(App),
}

impl Credential {
    /// Adds the credential to a digest.
    fn add_to(&self, context: &mut Context) {
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        };
        match self {
            Self::Anonymous => add(b"anonymous"),
            Self::Ssh { key, .. } => {
                add(b"ssh");
                add(key);
            }
            Self::Token { username, token } => {
                add(b"token");
                add(username.as_bytes());
                add(token.as_bytes());
            }
            // The API's address counts, because a token for one server is not for another.
            Self::App(App { id, installation, key, api: Address { tls, host, port, prefix } }) => {
                add(b"app");
                add(id.as_bytes());
                add(installation.as_bytes());
                add(key);
                add(&[u8::from(*tls)]);
                add(host.as_bytes());
                add(&port.to_be_bytes());
                add(prefix.as_bytes());
            }
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Ssh { .. } => "Ssh",
            Self::Token { .. } => "Token",
            Self::App(_) => "App",
        })
    }
}

/// Returns the value of the header `Authorization`.
pub(crate) fn basic_authorization(username: &str, token: &str) -> Zeroizing<String> {
    let text = Zeroizing::new(format!("{username}:{token}"));
    let mut header = Zeroizing::new(String::with_capacity(text.len().saturating_mul(2).saturating_add(16)));
    header.push_str("Basic ");
    BASE64_STANDARD.encode_string(text.as_bytes(), &mut header);
    header
}

/// Returns a name for the data of this URL and credential, in hexadecimal digits.
pub(crate) fn cache_name(url: &str, credential: &Credential) -> String {
    let mut context = Context::new(&SHA256);
    context.update(&(url.len() as u64).to_be_bytes());
    context.update(url.as_bytes());
    credential.add_to(&mut context);
    hex(&context.finish().as_ref()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_server() {
        let of = |api: &str| {
            let api = Address::parse(api).unwrap();
            let (id, installation, key) = ("1".to_owned(), "2".to_owned(), Zeroizing::new(b"key".to_vec()));
            cache_name("", &Credential::App(App { id, installation, key, api }))
        };
        let own = of("https://git.example.com");
        assert_eq!(own, of("https://git.example.com:443/"));
        for other in [
            "https://git.example.com:8443",
            "http://git.example.com:443",
            "https://api.example.com",
            "https://git.example.com/api",
        ] {
            assert_ne!(own, of(other), "{other}");
        }
    }
}
