//! The content of the Secret in which the replicas keep their certificates.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use super::authority::{Authority, AuthorityError, Pair};
use super::certificate::Certificate;

/// The authority that signs.
const CA: [&str; 2] = ["ca.crt", "ca.key"];
/// The authority that signs next; until then it is only published.
const NEXT_CA: [&str; 2] = ["next-ca.crt", "next-ca.key"];
/// The authorities that signed before and are still published, without their keys.
const OLD_CAS: &str = "old-ca.crt";
/// The serving certificate.
const TLS: [&str; 2] = ["tls.crt", "tls.key"];
/// When the set of authorities last changed.
const SINCE: &str = "since";
/// Most old authorities that are kept.
pub(super) const MAX_OLD: usize = 4;

/// The entries of a Secret. Private keys are wiped from memory with it.
pub type Entries = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The authority that signs.
#[derive(Clone, Debug)]
pub enum Signer {
    /// It can sign.
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

/// The content of the Secret, without what can't be used.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The authority that signs.
    pub signer: Option<Signer>,
    /// The authority that signs next.
    pub next: Option<Authority>,
    /// The authorities that signed before.
    pub old: Vec<Certificate>,
    /// The serving certificate with its key.
    pub serving: Option<Pair>,
    /// When the set of authorities last changed.
    pub since: Option<OffsetDateTime>,
    /// What can't be used, for the log.
    pub faults: Vec<String>,
}

impl Stored {
    /// Parses the entries. What can't be used is left out, and listed as a fault.
    pub fn read(entries: &Entries) -> Self {
        let mut faults = Vec::new();
        let mut fault = |name: &str, error: &AuthorityError| faults.push(format!("{name}: {error}"));
        let text = |name: &str| text(entries, name);
        let authority = |[certificate, key]: [&str; 2]| -> Option<Result<Authority, AuthorityError>> {
            let key = text(key).unwrap_or_default();
            Some(Authority::from_pem(&text(certificate)?, key))
        };
        let signer = match authority(CA) {
            Some(Ok(authority)) => Some(Signer::Able(authority)),
            Some(Err(error)) => {
                fault(CA[0], &error);
                let certificate = text(CA[0]).and_then(|pem| Certificate::from_pem(&pem).ok());
                certificate.filter(Certificate::is_authority).map(Signer::Unable)
            }
            None => None,
        };
        let next = authority(NEXT_CA).and_then(|next| next.map_err(|error| fault(NEXT_CA[0], &error)).ok());
        let mut old = Certificate::all_from_pem(&text(OLD_CAS).unwrap_or_default());
        old.retain(Certificate::is_authority);
        old.truncate(MAX_OLD);
        let serving = text(TLS[0]).and_then(|certificate| {
            let key = text(TLS[1]).unwrap_or_default();
            Pair::from_pem(&certificate, key).map_err(|error| fault(TLS[0], &error)).ok()
        });
        let since = text(SINCE).and_then(|since| OffsetDateTime::parse(since.trim(), &Rfc3339).ok());
        Self { signer, next, old, serving, since, faults }
    }

    /// The entries to store.
    pub fn write(&self) -> Entries {
        let mut entries = Entries::new();
        let mut put = |name: &str, value: &str| {
            entries.insert(name.to_owned(), Zeroizing::new(value.as_bytes().to_vec()));
        };
        if let Some(signer) = &self.signer {
            put(CA[0], signer.certificate().pem());
            if let Some(authority) = signer.able() {
                put(CA[1], authority.key_pem());
            }
        }
        if let Some(next) = &self.next {
            put(NEXT_CA[0], next.certificate().pem());
            put(NEXT_CA[1], next.key_pem());
        }
        if !self.old.is_empty() {
            put(OLD_CAS, &bundle(self.old.iter()));
        }
        if let Some(serving) = &self.serving {
            put(TLS[0], serving.certificate().pem());
            put(TLS[1], serving.key_pem());
        }
        if let Some(since) = self.since.and_then(|since| since.format(&Rfc3339).ok()) {
            put(SINCE, &since);
        }
        entries
    }

    /// The certificates of all authorities, which clients trust, in PEM form.
    pub fn bundle(&self) -> String {
        let authorities = self.signer.iter().map(Signer::certificate);
        let authorities = authorities.chain(self.next.iter().map(Authority::certificate)).chain(&self.old);
        bundle(authorities)
    }
}

fn bundle<'a>(certificates: impl Iterator<Item = &'a Certificate>) -> String {
    let mut text = String::new();
    for certificate in certificates {
        let _ = write!(text, "{}", certificate.pem());
    }
    text
}

fn text(entries: &Entries, name: &str) -> Option<Zeroizing<String>> {
    let bytes = entries.get(name).filter(|bytes| !bytes.is_empty())?;
    // What is not text is not PEM either, and becomes a fault.
    Some(Zeroizing::new(String::from_utf8_lossy(bytes).into_owned()))
}
