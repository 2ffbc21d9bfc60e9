//! The credentials of a query, from the Secret that it names.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;
use kube::Client;
use nudge_cluster::credential_secret::{CredentialSecret, CredentialSecretError};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, authorities_from_pem, sensitive};
use zeroize::Zeroizing;

/// The reason why the Secret is not used. No message repeats a value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    /// The Secret can't be read, or is for other hosts.
    #[error(transparent)]
    Secret(#[from] CredentialSecretError),
    /// No header can be made from the values.
    #[error(
        "Secret {0} must have the key token, or username and password, with only characters that a header can have"
    )]
    Unusable(String),
    /// The key `ca.crt` holds no certificate.
    #[error("key ca.crt of Secret {0} holds no certificate")]
    Certificate(String),
}

/// The credentials that are sent, and the authorities that are trusted.
#[derive(Default)]
pub(crate) struct Credentials {
    /// The header, which is marked as sensitive.
    pub(crate) authorization: Option<HeaderValue>,
    /// The authorities that replace those of the image.
    pub(crate) roots: Option<Authorities>,
}

/// Reads the credentials from a Secret, if it is for this address.
pub(crate) async fn read_credentials(
    client: &Client,
    account: &str,
    (namespace, name): (&str, &str),
    address: &Address,
) -> Result<Credentials, CredentialsError> {
    let secret = CredentialSecret::read(client, account, (namespace, name)).await?;
    credentials_of(&secret, name, address)
}

fn credentials_of(secret: &CredentialSecret, name: &str, address: &Address) -> Result<Credentials, CredentialsError> {
    secret.check(address)?;
    let value = |key: &str| secret.value(key);
    let unusable = || CredentialsError::Unusable(name.to_owned());
    let roots = value("ca.crt")
        .map(|text| authorities_from_pem(text).ok_or_else(|| CredentialsError::Certificate(name.to_owned())));
    let roots = roots.transpose()?;
    let text = match (value("token"), value("username"), value("password")) {
        (Some(token), ..) => Some([b"Bearer ", token.trim_ascii()].concat()),
        (None, Some(user), Some(password)) => {
            let pair = Zeroizing::new([user, b":", password].concat());
            Some(format!("Basic {}", BASE64_STANDARD.encode(&*pair)).into_bytes())
        }
        (None, None, None) if roots.is_some() => None,
        _ => return Err(unusable()),
    };
    let authorization = text.map(|text| sensitive(&Zeroizing::new(text)).ok_or_else(unusable)).transpose()?;
    Ok(Credentials { authorization, roots })
}

#[cfg(test)]
mod tests {
    use nudge_protocol::labels::ALLOWED_HOSTS;
    use serde_json::{Value, json};

    use super::*;

    fn credentials(hosts: &str, data: &Value) -> Result<Credentials, CredentialsError> {
        let secret = json!({"metadata": {"annotations": {ALLOWED_HOSTS: hosts}}, "data": data});
        let address = Address::parse("https://prometheus.example.com:9090").unwrap();
        credentials_of(&CredentialSecret::of("metrics", serde_json::from_value(secret).unwrap()), "metrics", &address)
    }

    fn encoded(text: &str) -> String {
        BASE64_STANDARD.encode(text)
    }

    #[test]
    fn a_token_is_sent_to_the_hosts_that_the_secret_names_and_to_no_others() {
        let token = json!({"token": encoded("hunter2\n")});
        let header = credentials("prometheus.example.com", &token).unwrap().authorization.unwrap();
        assert_eq!((header.to_str().unwrap(), format!("{header:?}").as_str()), ("Bearer hunter2", "Sensitive"));
        let error = credentials("example.com", &token).err().unwrap();
        assert!(matches!(error, CredentialsError::Secret(CredentialSecretError::OtherHost { .. })));
    }

    #[test]
    fn a_user_and_a_password_are_sent_and_nothing_else_is() {
        let parse = |data: Value| credentials("prometheus.example.com", &data);
        let basic = parse(json!({"username": encoded("a"), "password": encoded("hunter2")})).unwrap();
        assert_eq!(basic.authorization.unwrap(), format!("Basic {}", encoded("a:hunter2")));
        for data in [
            json!({}),
            json!({"username": encoded("a")}),
            json!({"token": encoded("hunter2\r\nHost: b")}),
            json!({"token": encoded("a"), "ca.crt": encoded("hunter2")}),
        ] {
            let error = parse(data.clone()).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{data}");
        }
    }
}
