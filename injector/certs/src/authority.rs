//! Makes authorities, serving certificates under them, and cross certificates between them.
//!
//! All of them follow RFC 5280 closely (key usages, key identifiers, path lengths), because strict clients refuse other
//! certificates. Each authority has its own name, because clients first look for the issuer by name.
//!
//! A cross certificate has the name and the key of an authority, and is signed by the previous authority. With it, a
//! client that trusts only the previous authority accepts certificates of the new authority.

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
use super::lifetimes::{LEEWAY, Lifetimes, MAX_CROSSES};
use super::names::ServingNames;

/// The beginning of the names of Nudge's own authorities.
pub(super) const AUTHORITY_NAME: &str = "nudge-injector authority ";

/// The reason why a key or certificate can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Making the key or certificate failed.
    #[error("making the certificate failed")]
    Make(#[from] rcgen::Error),
    /// A certificate can't be parsed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The private key is not PEM.
    #[error("no private key in PEM form was found")]
    KeyPem(#[source] rustls::pki_types::pem::Error),
    /// The private key is of an unknown kind, or does not match the certificate.
    #[error("the private key can't be used with its certificate")]
    Key(#[source] rustls::Error),
    /// The certificate is not that of an authority.
    #[error("the certificate is not a CA certificate")]
    NotAnAuthority,
}

/// A certificate with its private key, which is wiped from memory when this is dropped.
#[derive(Clone)]
pub struct Pair {
    certificate: Certificate,
    /// The certificates that are sent after the server's own.
    chain: Vec<Certificate>,
    key: Zeroizing<String>,
}

impl Pair {
    /// Parses a certificate, those that follow it, and the key.
    pub fn from_pem(certificates: &str, key: Zeroizing<String>) -> Result<Self, AuthorityError> {
        let certificate = Certificate::from_pem(certificates)?;
        let chain = Certificate::all_from_pem(certificates).into_iter().skip(1).collect();
        let pair = Self { certificate, chain, key };
        pair.certified_key()?;
        Ok(pair)
    }

    /// Returns the certificate of the authority.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the certificates that are sent after the server's own.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// Returns all certificates that are sent, as PEM.
    pub fn certificates_pem(&self) -> String {
        std::iter::once(&self.certificate).chain(&self.chain).map(Certificate::pem).collect()
    }

    /// Returns whether both send the same certificates.
    pub(super) fn has_same_certificates(&self, other: &Self) -> bool {
        self.certificate == other.certificate && self.chain == other.chain
    }

    /// Sets the certificates that are sent after the server's own.
    #[must_use]
    pub fn with_chain(self, chain: Vec<Certificate>) -> Self {
        Self { chain, ..self }
    }

    /// Returns the private key as PEM.
    pub fn key_pem(&self) -> &Zeroizing<String> {
        &self.key
    }

    /// Returns certificates and key for the TLS library, or an error if they don't match.
    pub fn certified_key(&self) -> Result<CertifiedKey, AuthorityError> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(AuthorityError::KeyPem)?;
        let key = any_supported_type(&key).map_err(AuthorityError::Key)?;
        let chain = std::iter::once(&self.certificate).chain(&self.chain);
        let certified = CertifiedKey::new(chain.map(|certificate| certificate.der().clone()).collect(), key);
        certified.keys_match().map_err(AuthorityError::Key)?;
        Ok(certified)
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Pair({:?}, key not shown)", self.certificate)
    }
}

/// An authority that can sign.
#[derive(Clone, Debug)]
pub struct Authority(Pair);

impl Authority {
    /// Makes a new authority, which only clients with its certificate trust.
    pub fn make(now: OffsetDateTime, lifetimes: &Lifetimes) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let name = format!("{AUTHORITY_NAME}{:08x}", rand::rng().random::<u32>());
        let mut params = authority_params(&name, MAX_CROSSES);
        set_validity(&mut params, now - LEEWAY, now + lifetimes.authority);
        let certificate = params.self_signed(&key)?;
        Self::from_pem(&certificate.pem(), Zeroizing::new(key.serialize_pem()))
    }

    /// Makes the authority after this one, and its cross certificate.
    pub fn make_next(&self, now: OffsetDateTime, lifetimes: &Lifetimes) -> Result<(Self, Certificate), AuthorityError> {
        let next = Self::make(now, lifetimes)?;
        let name = next.certificate().common_name().ok_or(CertificateError::Form)?;
        // A chain has at most `MAX_CROSSES` cross certificates, so at most one less can follow this cross certificate.
        let mut params = authority_params(name, MAX_CROSSES - 1);
        // If the clock was wrong when one of the two was made, the cross certificate must not live shorter because of
        // it.
        let signer_start = self.certificate().not_before();
        set_validity(&mut params, (now - LEEWAY).min(signer_start), now.max(signer_start) + lifetimes.cross());
        params.use_authority_key_identifier_extension = true;
        let cross = params.signed_by(&KeyPair::from_pem(next.key_pem())?, &self.issuer()?)?;
        let cross = Certificate::from_der(cross.der().clone())?;
        Ok((next, cross))
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
        Ok(Issuer::from_ca_cert_der(self.certificate().der(), KeyPair::from_pem(self.key_pem())?)?)
    }

    /// Parses a stored authority.
    pub fn from_pem(certificate: &str, key: Zeroizing<String>) -> Result<Self, AuthorityError> {
        let pair = Pair::from_pem(certificate, key)?;
        if !pair.certificate.is_authority() {
            return Err(AuthorityError::NotAnAuthority);
        }
        // A key that can't sign must fail here, not later when a certificate is due.
        KeyPair::from_pem(&pair.key)?;
        Ok(Self(pair))
    }

    /// Returns the authority's certificate, which clients trust.
    pub fn certificate(&self) -> &Certificate {
        self.0.certificate()
    }

    /// Returns the private key as PEM.
    pub fn key_pem(&self) -> &Zeroizing<String> {
        self.0.key_pem()
    }

    /// Makes a serving certificate with its own key. It expires with its authority at the latest.
    pub fn make_serving(
        &self,
        names: &ServingNames,
        now: OffsetDateTime,
        lifetimes: &Lifetimes,
    ) -> Result<Pair, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = parameters("nudge-injector");
        set_validity(&mut params, now - LEEWAY, (now + lifetimes.certificate).min(self.certificate().not_after()));
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names.to_sans()?;
        let certificate = params.signed_by(&key, &self.issuer()?)?;
        Pair::from_pem(&certificate.pem(), Zeroizing::new(key.serialize_pem()))
    }
}

fn authority_params(name: &str, crosses_below: u32) -> CertificateParams {
    let mut params = parameters(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(u8::try_from(crosses_below).unwrap_or(u8::MAX)));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn parameters(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn set_validity(params: &mut CertificateParams, start: OffsetDateTime, end: OffsetDateTime) {
    params.not_before = start;
    params.not_after = end;
}
