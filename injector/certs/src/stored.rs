//! The content of the two Secrets: the authority, which only its keeper reads, and the serving certificate, which servers mount.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::authority::{Authority, AuthorityError, Pair};
use super::certificate::Certificate;

/// The authority that signs.
const CA: [&str; 2] = ["ca.crt", "ca.key"];
/// The authorities that signed before and are still published, without their keys.
const OLD_CAS: &str = "old-ca.crt";
/// The cross certificates, the newest first.
const CROSSES: &str = "cross.crt";
/// In the other Secret: the serving certificate with the cross certificates that are sent with it.
const TLS: [&str; 2] = ["tls.crt", "tls.key"];
/// There too: the authorities that clients trust.
const PUBLISHED: &str = "ca.crt";
/// Most old authorities, and most cross certificates, that are kept.
pub(super) const MAX_OLD: usize = 4;

/// The entries of a Secret. Private keys are wiped from memory with it.
pub type Entries = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The authority that signs.
#[derive(Clone, Debug)]
pub enum Signer {
    /// The authority has its private key.
    Able(Authority),
    /// Its private key is missing or wrong: what it signed is valid, but it can't sign any more.
    Unable(Certificate),
}

impl Signer {
    /// Its certificate.
    pub fn certificate(&self) -> &Certificate {
        match self {
            Self::Able(authority) => authority.certificate(),
            Self::Unable(certificate) => certificate,
        }
    }

    /// The authority, where it can sign.
    pub fn able(&self) -> Option<&Authority> {
        match self {
            Self::Able(authority) => Some(authority),
            Self::Unable(_) => None,
        }
    }
}

/// The content of both Secrets, without what can't be used.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The authority that signs.
    pub signer: Option<Signer>,
    /// The authorities that signed before, as long as servers may still use what they signed.
    pub old: Vec<Certificate>,
    /// The cross certificates, the newest first.
    pub crosses: Vec<Certificate>,
    /// The serving certificate with its key.
    pub serving: Option<Pair>,
    /// The authorities that stand beside the serving certificate.
    pub published: Vec<Certificate>,
    /// What can't be used, for the log.
    pub faults: Vec<String>,
}

impl Stored {
    /// Parses the entries of the authority's Secret and of the serving certificate's. What can't be used is left out, and listed as a
    /// fault.
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
        old.truncate(MAX_OLD);
        let mut crosses = authorities(authority, CROSSES);
        crosses.truncate(MAX_OLD);
        Self { signer, old, crosses, serving: pair, published: authorities(serving, PUBLISHED), faults }
    }

    /// What to store in the authority's Secret.
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
        if !self.crosses.is_empty() {
            put(&mut entries, CROSSES, &pem(&self.crosses));
        }
        entries
    }

    /// What to store in the serving certificate's Secret.
    pub fn serving_entries(&self) -> Entries {
        let mut entries = Entries::new();
        if let Some(serving) = &self.serving {
            put(&mut entries, TLS[0], &serving.certificates_pem());
            put(&mut entries, TLS[1], serving.key_pem());
        }
        put(&mut entries, PUBLISHED, &pem(&self.published));
        entries
    }

    /// The authorities that clients trust: the one that signs, and those before it while servers may use what they signed.
    pub fn authorities(&self) -> Vec<Certificate> {
        self.signer.iter().map(Signer::certificate).chain(&self.old).cloned().collect()
    }

    /// The certificates of these authorities, PEM.
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
    let mut all = Certificate::all_from_pem(&text(entries, name).unwrap_or_default());
    all.retain(Certificate::is_authority);
    all
}

fn text(entries: &Entries, name: &str) -> Option<Zeroizing<String>> {
    let bytes = entries.get(name).filter(|bytes| !bytes.is_empty())?;
    // What is not text is not PEM either, and becomes a fault.
    Some(Zeroizing::new(String::from_utf8_lossy(bytes).into_owned()))
}
