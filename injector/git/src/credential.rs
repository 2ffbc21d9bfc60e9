//! Who asks a server.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nudge_core::outbound::Address;
use nudge_protocol::hex::hex;
use ring::digest::{Context, SHA256};
use zeroize::Zeroizing;

use crate::app::App;

/// Who asks a server.
#[derive(Clone)]
pub enum Credential {
    /// Anybody.
    Anonymous,
    /// The owner of a key, of a server that is one of these.
    Ssh {
        /// A private key without a passphrase, as OpenSSH writes it.
        key: Zeroizing<Vec<u8>>,
        /// Keys of servers, as `known_hosts` has them.
        known_hosts: String,
    },
    /// The owner of a token, or of a password.
    Token {
        /// Servers that know the user by the token take any name.
        username: String,
        /// The token.
        token: Zeroizing<String>,
    },
    /// An installation of a GitHub App.
    App(App),
}

impl Credential {
    /// A digest that is the same for the same credential.
    pub(crate) fn digest(&self, context: &mut Context) {
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
            // A token of one server is not for another.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Ssh { .. } => "Ssh",
            Self::Token { .. } => "Token",
            Self::App(_) => "App",
        })
    }
}

/// The value of the header that proves it.
pub(crate) fn basic(username: &str, token: &str) -> Zeroizing<String> {
    let text = Zeroizing::new(format!("{username}:{token}"));
    let mut header = Zeroizing::new(String::with_capacity(text.len().saturating_mul(2).saturating_add(16)));
    header.push_str("Basic ");
    BASE64_STANDARD.encode_string(text.as_bytes(), &mut header);
    header
}

/// The name of what belongs to these: hexadecimal digits.
pub(crate) fn name_of(url: &str, credential: &Credential) -> String {
    let mut context = Context::new(&SHA256);
    context.update(&(url.len() as u64).to_be_bytes());
    context.update(url.as_bytes());
    credential.digest(&mut context);
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
            name_of("", &Credential::App(App { id, installation, key, api }))
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
