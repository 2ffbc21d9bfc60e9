//! The Secret that a query names: whom it may be shown to, and what is sent.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use nudge_cluster::call::{CallError, call};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, of_pem};
use nudge_protocol::labels::ALLOWED_HOSTS;
use zeroize::{Zeroize as _, Zeroizing};

/// Why the Secret is not used. No value of it is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    /// It can't be read.
    #[error("{0} may not get Secret {1}: allow it by a Role with resourceNames, as injector/README.md shows")]
    Forbidden(String, String),
    /// It is not there.
    #[error("Secret {0} does not exist")]
    Missing(String),
    /// It can't be read now.
    #[error("Secret {0} can't be read")]
    Unreadable(String, #[source] CallError),
    /// It is for other hosts.
    #[error("Secret {secret} is not for {host}: its annotation {ALLOWED_HOSTS} does not name this host")]
    OtherHost {
        /// The Secret.
        secret: String,
        /// Where the query would have gone.
        host: String,
    },
    /// What it holds makes no header.
    #[error("Secret {0} needs the key token, or username and password, and no other characters than a header can have")]
    Unusable(String),
    /// The certificate.
    #[error("key ca.crt of Secret {0} holds no certificate")]
    Certificate(String),
}

/// What is sent to prove who asks, and whom to believe.
#[derive(Default)]
pub(crate) struct Credentials {
    /// The header; it is marked as sensitive.
    pub(crate) authorization: Option<HeaderValue>,
    /// Authorities in place of the image's.
    pub(crate) roots: Option<Authorities>,
}

/// Reads the Secret, if it is for this address.
pub(crate) async fn credentials(
    client: &Client,
    account: &str,
    (namespace, name): (&str, &str),
    address: &Address,
) -> Result<Credentials, CredentialsError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut secret = match call(|| format!("reading Secret {namespace}/{name}"), api.get_opt(name)).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Err(CredentialsError::Missing(name.to_owned())),
        Err(error) if error.code() == 403 => {
            return Err(CredentialsError::Forbidden(account.to_owned(), name.to_owned()));
        }
        Err(error) => return Err(CredentialsError::Unreadable(name.to_owned(), error)),
    };
    let made = of_secret(&secret, name, address);
    secret.data.iter_mut().flat_map(|data| data.values_mut()).for_each(|value| value.0.zeroize());
    made
}

fn of_secret(secret: &Secret, name: &str, address: &Address) -> Result<Credentials, CredentialsError> {
    let hosts = secret.metadata.annotations.as_ref().and_then(|all| all.get(ALLOWED_HOSTS));
    if !hosts.is_some_and(|hosts| address.is_in(hosts)) {
        return Err(CredentialsError::OtherHost { secret: name.to_owned(), host: address.authority() });
    }
    let value = |key: &str| secret.data.as_ref()?.get(key).map(|ByteString(bytes)| bytes.as_slice());
    let unusable = || CredentialsError::Unusable(name.to_owned());
    let roots = value("ca.crt").map(|text| of_pem(text).ok_or_else(|| CredentialsError::Certificate(name.to_owned())));
    let roots = roots.transpose()?;
    let text = match (value("token"), value("username"), value("password")) {
        (Some(token), ..) => Some([b"Bearer ", token.trim_ascii()].concat()),
        (None, Some(user), Some(password)) => {
            let both = Zeroizing::new([user, b":", password].concat());
            Some(format!("Basic {}", BASE64_STANDARD.encode(&*both)).into_bytes())
        }
        (None, None, None) if roots.is_some() => None,
        _ => return Err(unusable()),
    };
    let authorization = match text.map(Zeroizing::new) {
        Some(text) => {
            let mut header = HeaderValue::from_bytes(&text).map_err(|_| unusable())?;
            header.set_sensitive(true);
            Some(header)
        }
        None => None,
    };
    Ok(Credentials { authorization, roots })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(hosts: Option<&str>, data: &Value) -> Result<Credentials, CredentialsError> {
        let annotations = hosts.map(|hosts| json!({ALLOWED_HOSTS: hosts}));
        let secret = json!({"metadata": {"annotations": annotations}, "stringData": {}, "data": data});
        let address = Address::parse("https://prometheus.example.com:9090").unwrap();
        of_secret(&serde_json::from_value(secret).unwrap(), "metrics", &address)
    }

    fn encoded(text: &str) -> String {
        BASE64_STANDARD.encode(text)
    }

    #[test]
    fn a_secret_is_sent_to_the_hosts_that_it_names_and_to_no_others() {
        let token = json!({"token": encoded("hunter2\n")});
        let header = made(Some("prometheus.example.com"), &token).unwrap().authorization.unwrap();
        assert_eq!((header.to_str().unwrap(), format!("{header:?}").as_str()), ("Bearer hunter2", "Sensitive"));
        for hosts in [None, Some(""), Some("example.com"), Some("prometheus.example.com:443"), Some("*")] {
            let error = made(hosts, &token).err().unwrap();
            assert!(matches!(error, CredentialsError::OtherHost { .. }), "{hosts:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_user_and_a_password_are_sent_and_nothing_else_is() {
        let of = |data: Value| made(Some("prometheus.example.com"), &data);
        let basic = of(json!({"username": encoded("a"), "password": encoded("hunter2")})).unwrap();
        assert_eq!(basic.authorization.unwrap(), format!("Basic {}", encoded("a:hunter2")));
        for data in [
            json!({}),
            json!({"username": encoded("a")}),
            json!({"token": encoded("hunter2\r\nHost: b")}),
            json!({"token": encoded("a"), "ca.crt": encoded("hunter2")}),
        ] {
            let error = of(data.clone()).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{data}");
        }
    }
}
