//! The names in serving certificates.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rcgen::SanType;
use rustls::pki_types::ServerName;

/// A text that is not the name of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is neither a DNS name nor an IP address")]
pub struct ServingNameError {
    name: String,
}

/// A set of valid DNS names and IP addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingNames(BTreeSet<String>);

impl ServingNames {
    /// Checks the names.
    pub fn new<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Result<Self, ServingNameError> {
        let checked = names.into_iter().map(|name| {
            let name = name.as_ref();
            match ServerName::try_from(name) {
                // Each address has only one form, so that names can be compared.
                Ok(ServerName::IpAddress(address)) => Ok(IpAddr::from(address).to_string()),
                Ok(_) => Ok(name.to_ascii_lowercase()),
                Err(_) => Err(ServingNameError { name: name.to_owned() }),
            }
        });
        Ok(Self(checked.collect::<Result<_, _>>()?))
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self(self.0.union(&others.0).cloned().collect())
    }

    /// Returns whether these names include every name of `others`.
    pub fn cover(&self, others: &Self) -> bool {
        others.0.is_subset(&self.0)
    }

    /// Returns the number of names.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn to_sans(&self) -> Result<Vec<SanType>, rcgen::Error> {
        let san = |name: &String| match name.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName(name.as_str().try_into()?)),
        };
        self.0.iter().map(san).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_have_one_form() {
        let names = ServingNames::new(["Hub.example", "::1", "0:0::1", "127.0.0.1"]).unwrap();
        assert_eq!(names.0.iter().collect::<Vec<_>>(), ["127.0.0.1", "::1", "hub.example"]);
        for bad in ["", "a b", "a/b", "https://a"] {
            assert!(ServingNames::new([bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_compared_as_sets() {
        let one = ServingNames::new(["nudge-hub", "nudge-hub.nudge-system.svc"]).unwrap();
        let both = one.and(&ServingNames::new(["127.0.0.1"]).unwrap());
        assert!(both.cover(&one) && !one.cover(&both));
        assert_eq!(both.len(), 3);
    }
}
