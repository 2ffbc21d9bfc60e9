//! The content of the two Secrets: the authority, which only its keeper reads, and the serving certificate, which
//! servers mount.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::authority::{Authority, AuthorityError, Pair};
use super::certificate::Certificate;

/// The entries of the authority that signs: certificate and key.
const CA: [&str; 2] = ["ca.crt", "ca.key"];
/// The entry of the old authorities that are still published, without their keys.
const OLD_CAS: &str = "old-ca.crt";
/// The entry of the cross certificates, the newest first.
const CROSSES: &str = "cross.crt";
/// The entries of the serving certificate, in the other Secret: the certificates that are sent, and the key.
const TLS: [&str; 2] = ["tls.crt", "tls.key"];
/// The entry of the authorities that clients trust, in the other Secret.
const PUBLISHED: &str = "ca.crt";
/// The maximum number of old authorities, and of cross certificates.
pub(super) const MAX_OLD_AUTHORITIES: usize = 4;

/// The entries of a Secret, which are wiped from memory when they are dropped.
pub type Entries = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The authority that signs.
#[derive(Clone, Debug)]
pub enum Signer {
    /// The authority has its private key.
    Able(Authority),
    /// The private key is missing or wrong. Certificates of this authority are valid, but it can't sign new ones.
    Unable(Certificate),
}

impl Signer {
    /// Returns the authority's certificate.
    pub fn certificate(&self) -> &Certificate {
        match self {
            Self::Able(authority) => authority.certificate(),
            Self::Unable(certificate) => certificate,
        }
    }

    /// Returns the authority if it can sign.
    pub fn able(&self) -> Option<&Authority> {
        match self {
            Self::Able(authority) => Some(authority),
            Self::Unable(_) => None,
        }
    }
}

/// The usable certificates of both Secrets.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The authority that signs.
    pub signer: Option<Signer>,
    /// The authorities that signed before, as long as servers may still use their certificates.
    pub old: Vec<Certificate>,
    /// The cross certificates, the newest first.
    pub cross_certificates: Vec<Certificate>,
    /// The serving certificate with its key.
    pub serving: Option<Pair>,
    /// The authorities that are stored with the serving certificate.
    pub published: Vec<Certificate>,
    /// The entries that can't be used, each with the reason, for the log.
    pub faults: Vec<String>,
}

impl Stored {
    /// Parses the entries of both Secrets: the authority's and the serving certificate's. Entries that can't be used
    /// are listed as faults.
    pub fn read(authority: &Entries, serving: &Entries) -> Self {
        let mut faults = Vec::new();
        let mut fault = |name: &str, error: &AuthorityError| faults.push(format!("{name}: {error}"));
        let signer = text(authority, CA[0]).and_then(|certificate| {
            let key = text(authority, CA[1]).unwrap_or_default();
            match Authority::from_pem(&certificate, key) {
                Ok(authority) => Some(Signer::Able(authority)),
                Err(error) => {
                    fault(CA[0], &error);
                    let certificate = Certificate::from_pem(&certificate).ok()?;
                    certificate.is_authority().then_some(Signer::Unable(certificate))
                }
            }
        });
        let pair = text(serving, TLS[0]).and_then(|certificates| {
            let key = text(serving, TLS[1]).unwrap_or_default();
            Pair::from_pem(&certificates, key).map_err(|error| fault(TLS[0], &error)).ok()
        });
        let mut old = authorities(authority, OLD_CAS);
        old.truncate(MAX_OLD_AUTHORITIES);
        let mut cross_certificates = authorities(authority, CROSSES);
        cross_certificates.truncate(MAX_OLD_AUTHORITIES);
        Self { signer, old, cross_certificates, serving: pair, published: authorities(serving, PUBLISHED), faults }
    }

    /// Returns the entries of the authority's Secret.
    pub fn authority_entries(&self) -> Entries {
        let mut entries = Entries::new();
        if let Some(signer) = &self.signer {
            put(&mut entries, CA[0], signer.certificate().pem());
            if let Some(authority) = signer.able() {
                put(&mut entries, CA[1], authority.key_pem());
            }
        }
        if !self.old.is_empty() {
            put(&mut entries, OLD_CAS, &pem(&self.old));
        }
        if !self.cross_certificates.is_empty() {
            put(&mut entries, CROSSES, &pem(&self.cross_certificates));
        }
        entries
    }

    /// Returns the entries of the serving certificate's Secret.
    pub fn serving_entries(&self) -> Entries {
        let mut entries = Entries::new();
        if let Some(serving) = &self.serving {
            put(&mut entries, TLS[0], &serving.certificates_pem());
            put(&mut entries, TLS[1], serving.key_pem());
        }
        put(&mut entries, PUBLISHED, &pem(&self.published));
        entries
    }

    /// Returns the authorities that clients trust: the present one and the old ones.
    pub fn authorities(&self) -> Vec<Certificate> {
        self.signer.iter().map(Signer::certificate).chain(&self.old).cloned().collect()
    }

    /// Returns the certificates of the authorities that clients trust, as PEM.
    pub fn bundle(&self) -> String {
        pem(&self.authorities())
    }

    /// Returns whether neither Secret holds anything.
    pub fn is_empty(&self) -> bool {
        self.signer.is_none() && self.serving.is_none() && self.published.is_empty() && self.faults.is_empty()
    }
}

fn pem(certificates: &[Certificate]) -> String {
    certificates.iter().map(Certificate::pem).collect()
}

fn put(entries: &mut Entries, name: &str, value: &str) {
    entries.insert(name.to_owned(), Zeroizing::new(value.as_bytes().to_vec()));
}

fn authorities(entries: &Entries, name: &str) -> Vec<Certificate> {
    let mut authorities = Certificate::all_from_pem(&text(entries, name).unwrap_or_default());
    authorities.retain(Certificate::is_authority);
    authorities
}

fn text(entries: &Entries, name: &str) -> Option<Zeroizing<String>> {
    let bytes = entries.get(name).filter(|bytes| !bytes.is_empty())?;
    // An entry that is not text is not PEM either, so it becomes a fault.
    Some(Zeroizing::new(String::from_utf8_lossy(bytes).into_owned()))
}
