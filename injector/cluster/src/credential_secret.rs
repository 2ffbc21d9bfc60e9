//! A Secret with credentials for servers that users name: read by its name, and shown to the hosts that it allows, and to no others.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use nudge_core::outbound::Address;
use nudge_core::versions::{Contents, contents_of};
use nudge_protocol::labels::ALLOWED_HOSTS;

use crate::call::{CallError, call};

/// Why the Secret is not used. No value of it is repeated.
#[derive(Debug, thiserror::Error)]
pub enum CredentialSecretError {
    /// Nudge has no right to read the Secret.
    #[error(
        "Nudge may not read Secret {name}; allow it: kubectl create role nudge-secret-{name} --verb=get --resource=secrets \
         --resource-name={name}; kubectl create rolebinding nudge-secret-{name} --role=nudge-secret-{name} --serviceaccount={account}"
    )]
    Forbidden {
        /// Its name.
        name: String,
        /// Who may not.
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
        /// Its name.
        secret: String,
        /// Where its values would have gone.
        host: String,
    },
}

/// A Secret with credentials. Its values are wiped when it is dropped.
pub struct CredentialSecret {
    name: String,
    hosts: String,
    values: Contents,
}

impl CredentialSecret {
    /// Reads it. `account`: who reads, as kubectl takes it.
    pub async fn read(
        client: &Client,
        account: &str,
        (namespace, name): (&str, &str),
    ) -> Result<Self, CredentialSecretError> {
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        match call(|| format!("reading Secret {namespace}/{name}"), api.get_opt(name)).await {
            Ok(Some(secret)) => Ok(Self::of(name, secret)),
            Ok(None) => Err(CredentialSecretError::Missing(name.to_owned())),
            Err(error) if error.code() == 403 => {
                Err(CredentialSecretError::Forbidden { name: name.to_owned(), account: account.to_owned() })
            }
            Err(error) => Err(CredentialSecretError::Unreadable(name.to_owned(), error)),
        }
    }

    /// The credentials in a Secret object.
    pub fn of(name: &str, secret: Secret) -> Self {
        let hosts = secret.metadata.annotations.and_then(|mut all| all.remove(ALLOWED_HOSTS)).unwrap_or_default();
        Self { name: name.to_owned(), hosts, values: contents_of(None, secret.data) }
    }

    /// Returns whether its values may be sent there.
    pub fn allows(&self, address: &Address) -> bool {
        address.is_in(&self.hosts)
    }

    /// An error unless its values may be sent there.
    pub fn check(&self, address: &Address) -> Result<(), CredentialSecretError> {
        if self.allows(address) {
            return Ok(());
        }
        Err(CredentialSecretError::OtherHost { secret: self.name.clone(), host: address.authority() })
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(|value| value.as_slice())
    }

    /// The value of a key as text, without the line break at its end.
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
