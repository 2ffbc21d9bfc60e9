//! Makes authorities, and serving certificates under them.
//!
//! Both follow RFC 5280 closely (key usages, key identifiers), because strict clients refuse what does not. Each authority has its
//! own name: clients look for the issuer by name first.

use std::time::Duration;

use rand::RngExt as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::certificate::{Certificate, CertificateError};
use super::lifetimes::Lifetimes;
use super::names::ServingNames;

/// Why a key or certificate can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It could not be made.
    #[error("making the certificate failed")]
    Make(#[from] rcgen::Error),
    /// What was made or stored can't be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The private key is not PEM.
    #[error("no private key in PEM form was found")]
    KeyPem(#[source] rustls::pki_types::pem::Error),
    /// The private key is of an unknown kind, or not the certificate's.
    #[error("the private key can't be used with its certificate")]
    Key(#[source] rustls::Error),
    /// The certificate is not that of an authority.
    #[error("the certificate is not a CA certificate")]
    NotAnAuthority,
}

/// A certificate with its private key, which is wiped from memory with it.
#[derive(Clone)]
pub struct Pair {
    certificate: Certificate,
    /// Further certificates that are sent with the first.
    chain: Vec<Certificate>,
    key: Zeroizing<String>,
}

impl Pair {
    /// Parses a certificate, those that follow it, and the key.
    pub fn from_pem(certificates: &str, key: Zeroizing<String>) -> Result<Self, AuthorityError> {
        let certificate = Certificate::from_pem(certificates)?;
        let chain = Certificate::all_from_pem(certificates).into_iter().skip(1).collect();
        let pair = Self { certificate, chain, key };
        pair.certified()?;
        Ok(pair)
    }

    /// The certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The private key, PEM.
    pub fn key_pem(&self) -> &Zeroizing<String> {
        &self.key
    }

    /// Both for the TLS library; an error where they don't match.
    pub fn certified(&self) -> Result<CertifiedKey, AuthorityError> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(AuthorityError::KeyPem)?;
        let key = any_supported_type(&key).map_err(AuthorityError::Key)?;
        let chain = std::iter::once(&self.certificate).chain(&self.chain);
        let certified = CertifiedKey::new(chain.map(|certificate| certificate.der().clone()).collect(), key);
        certified.keys_match().map_err(AuthorityError::Key)?;
        Ok(certified)
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pair({:?}, key not shown)", self.certificate)
    }
}

/// An authority that can sign.
#[derive(Clone, Debug)]
pub struct Authority(Pair);

impl Authority {
    /// Makes a new authority.
    pub fn make(now: OffsetDateTime, lifetimes: &Lifetimes) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(&format!("nudge-injector authority {:08x}", rand::rng().random::<u32>()));
        validity(&mut params, now, now + lifetimes.authority, lifetimes.leeway);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params.self_signed(&key)?;
        Self::from_pem(&made.pem(), Zeroizing::new(key.serialize_pem()))
    }

    /// Parses a stored authority.
    pub fn from_pem(certificate: &str, key: Zeroizing<String>) -> Result<Self, AuthorityError> {
        let pair = Pair::from_pem(certificate, key)?;
        if !pair.certificate.is_authority() {
            return Err(AuthorityError::NotAnAuthority);
        }
        // Whether it can sign is checked now, not when it has to.
        KeyPair::from_pem(&pair.key)?;
        Ok(Self(pair))
    }

    /// Its certificate, which clients trust.
    pub fn certificate(&self) -> &Certificate {
        self.0.certificate()
    }

    /// The private key, PEM.
    pub fn key_pem(&self) -> &Zeroizing<String> {
        self.0.key_pem()
    }

    /// Makes a serving certificate with its own key. It expires with its authority at the latest.
    pub fn serving(
        &self,
        names: &ServingNames,
        now: OffsetDateTime,
        lifetimes: &Lifetimes,
    ) -> Result<Pair, AuthorityError> {
        let issuer = Issuer::from_ca_cert_der(self.certificate().der(), KeyPair::from_pem(self.key_pem())?)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params("nudge-injector");
        validity(&mut params, now, self.serving_end(now, lifetimes), lifetimes.leeway);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names.to_sans()?;
        let made = params.signed_by(&key, &issuer)?;
        Pair::from_pem(&made.pem(), Zeroizing::new(key.serialize_pem()))
    }

    /// When a serving certificate made now would expire.
    pub fn serving_end(&self, now: OffsetDateTime, lifetimes: &Lifetimes) -> OffsetDateTime {
        (now + lifetimes.certificate).min(self.certificate().not_after())
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn validity(params: &mut CertificateParams, now: OffsetDateTime, end: OffsetDateTime, leeway: Duration) {
    params.not_before = now - leeway;
    params.not_after = end;
}
