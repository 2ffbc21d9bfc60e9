//! A Secret with credentials for servers that users name. It is read by its name, and sent only to the hosts that it
//! allows.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use nudge_core::outbound::Address;
use nudge_core::versions::{Contents, contents_of};
use nudge_protocol::labels::ALLOWED_HOSTS;

use crate::call::{CallError, call};

/// The cause why the Secret is not used. It repeats no value.
#[derive(Debug, thiserror::Error)]
pub enum CredentialSecretError {
    /// Nudge has no right to read the Secret.
    #[error(
        "Nudge may not read Secret {name}; allow it: kubectl create role nudge-secret-{name} --verb=get --resource=secrets \
         --resource-name={name}; kubectl create rolebinding nudge-secret-{name} --role=nudge-secret-{name} --serviceaccount={account}"
    )]
    Forbidden {
        /// The Secret that the source or analysis names, in its own namespace.
        name: String,
        /// The account that may not read it.
        account: String,
    },
    /// The Secret does not exist.
    #[error("Secret {0} does not exist")]
    Missing(String),
    /// Reading the Secret failed.
    #[error("Secret {0} can't be read")]
    Unreadable(String, #[source] CallError),
    /// The Secret does not allow this host.
    #[error("Secret {secret} is not for {host}: its annotation {ALLOWED_HOSTS} does not name this host")]
    OtherHost {
        /// The name of the Secret.
        secret: String,
        /// The host that would have got its values.
        host: String,
    },
}

/// A Secret with credentials, whose values are wiped when it is dropped.
pub struct CredentialSecret {
    name: String,
    hosts: String,
    values: Contents,
}

impl CredentialSecret {
    /// Reads the Secret. `account` is the reader, as kubectl takes it.
    pub async fn read(
        client: &Client,
        account: &str,
        (namespace, name): (&str, &str),
    ) -> Result<Self, CredentialSecretError> {
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        match call(|| format!("reading Secret {namespace}/{name}"), api.get_opt(name)).await {
            Ok(Some(secret)) => Ok(Self::of(name, secret)),
            Ok(None) => Err(CredentialSecretError::Missing(name.to_owned())),
            Err(error) if error.code() == Some(403) => {
                Err(CredentialSecretError::Forbidden { name: name.to_owned(), account: account.to_owned() })
            }
            Err(error) => Err(CredentialSecretError::Unreadable(name.to_owned(), error)),
        }
    }

    /// Returns the credentials in a Secret object.
    pub fn of(name: &str, secret: Secret) -> Self {
        let hosts = secret
            .metadata
            .annotations
            .and_then(|mut annotations| annotations.remove(ALLOWED_HOSTS))
            .unwrap_or_default();
        Self { name: name.to_owned(), hosts, values: contents_of(None, secret.data) }
    }

    /// Returns whether the values may be sent to the address.
    pub fn allows(&self, address: &Address) -> bool {
        address.is_listed_in(&self.hosts)
    }

    /// Fails if the values may not be sent to the address.
    pub fn check(&self, address: &Address) -> Result<(), CredentialSecretError> {
        if self.allows(address) {
            return Ok(());
        }
        Err(CredentialSecretError::OtherHost { secret: self.name.clone(), host: address.authority() })
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(|value| value.as_slice())
    }

    /// Returns the value of a key as text, without the line break at its end.
    pub fn text(&self, key: &str) -> Option<&str> {
        std::str::from_utf8(self.value(key)?.trim_ascii_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_for_the_hosts_that_it_names_and_for_no_others() {
        let address = Address::parse("https://git.example.com:8443").unwrap();
        for (hosts, allowed) in [
            (None, false),
            (Some(""), false),
            (Some("example.com"), false),
            (Some("git.example.com:443"), false),
            (Some("*"), false),
            (Some("git.example.com"), true),
            (Some("other.example.com, git.example.com:8443"), true),
        ] {
            let annotations = hosts.map(|hosts| json!({ALLOWED_HOSTS: hosts}));
            let object = json!({"metadata": {"annotations": annotations}, "data": {"token": "aHVudGVyMgo="}});
            let secret = CredentialSecret::of("deploy", serde_json::from_value(object).unwrap());
            assert_eq!(secret.check(&address).is_ok(), allowed, "{hosts:?}");
            assert_eq!((secret.text("token"), secret.value("token")), (Some("hunter2"), Some(&b"hunter2\n"[..])));
            let said = secret.check(&address).map_err(|error| format!("{error} {error:?}")).err().unwrap_or_default();
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
