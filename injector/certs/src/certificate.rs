//! Parsed certificates: their validity, the servers that they name, and their issuers.

use std::net::IpAddr;
use std::time::Duration;

use pem::{EncodeConfig, LineEnding, Pem};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use super::names::ServingNames;

/// The reason why a certificate can't be parsed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The text is not PEM, or holds no certificate.
    #[error("no certificate in PEM form was found")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The PEM does not hold a certificate.
    #[error("the certificate can't be parsed")]
    Form,
}

/// A parsed certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    pem: String,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    names: ServingNames,
    is_authority: bool,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    common_name: Option<String>,
}

impl Certificate {
    /// Parses the first certificate of a PEM text.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(CertificateError::Pem)?;
        Self::from_der(der)
    }

    /// Parses the certificates of a PEM text, and skips those that can't be parsed.
    pub fn all_from_pem(pem: &str) -> Vec<Self> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(|der| Self::from_der(der.ok()?).ok()).collect()
    }

    /// Parses a certificate.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, CertificateError> {
        let (_, parsed) = parse_x509_certificate(&der).map_err(|_| CertificateError::Form)?;
        let time = |timestamp| OffsetDateTime::from_unix_timestamp(timestamp).map_err(|_| CertificateError::Form);
        let not_before = time(parsed.validity().not_before.timestamp())?;
        let not_after = time(parsed.validity().not_after.timestamp())?;
        let extension = parsed.subject_alternative_name().ok().flatten();
        let names = extension.into_iter().flat_map(|names| &names.value.general_names).filter_map(name_text);
        // Names that no server can have are ignored.
        let names = names.filter_map(|name| ServingNames::new([name]).ok());
        let names = names.fold(ServingNames::default(), |names, name| names.and(&name));
        let is_authority = parsed.basic_constraints().ok().flatten().is_some_and(|constraints| constraints.value.ca);
        let (subject, issuer) = (parsed.subject().as_raw().to_vec(), parsed.issuer().as_raw().to_vec());
        let common_name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let common_name = common_name.map(str::to_owned);
        let pem = to_pem(&der);
        Ok(Self { der, pem, not_before, not_after, names, is_authority, subject, issuer, common_name })
    }

    /// Returns the certificate in DER form.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns the certificate in PEM form.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the first moment of the certificate's validity.
    pub fn not_before(&self) -> OffsetDateTime {
        self.not_before
    }

    /// Returns the last moment of the certificate's validity.
    pub fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// Returns the names of the servers that the certificate is for.
    pub fn names(&self) -> &ServingNames {
        &self.names
    }

    /// Returns whether this is a CA certificate.
    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// Returns the common name of the subject.
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Returns whether both certificates have the same subject.
    pub fn is_for_subject_of(&self, other: &Self) -> bool {
        self.subject == other.subject
    }

    /// Returns whether the certificate names `authority` as its issuer. The name alone proves nothing.
    pub fn names_as_issuer(&self, authority: &Self) -> bool {
        self.issuer == authority.subject
    }

    /// Returns whether the certificate is valid at that moment.
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Returns whether `authority` has signed this as a serving certificate.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        let mut roots = RootCertStore::empty();
        let parsed = ParsedCertificate::try_from(&self.der);
        let (Ok(()), Ok(parsed)) = (roots.add(authority.der.clone()), parsed) else { return false };
        // The signature is checked at a moment within the validity; `is_valid_at` checks the present time.
        let seconds = u64::try_from(self.not_before.unix_timestamp()).unwrap_or_default().saturating_add(1);
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let algorithms = default_provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], time, algorithms).is_ok()
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Certificate({} to {})", self.not_before, self.not_after)
    }
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

fn to_pem(der: &CertificateDer<'_>) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der.as_ref()), config)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::authority::Authority;
    use super::super::lifetimes::Lifetimes;
    use super::*;

    #[test]
    fn a_certificate_is_parsed_as_it_was_made() {
        let now = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
        let lifetimes = Lifetimes::default();
        let names = ServingNames::new(["hub.test", "127.0.0.1", "::1"]).unwrap();
        let [one, other] = [(); 2].map(|()| Authority::make(now, &lifetimes).unwrap());
        let serving = one.make_serving(&names, now, &lifetimes).unwrap();
        let read = Certificate::from_pem(serving.certificate().pem()).unwrap();
        assert_eq!(read.names(), &names);
        assert_eq!(read.not_after(), now + lifetimes.certificate);
        assert!(read.is_signed_by(one.certificate()) && !read.is_signed_by(other.certificate()));
        assert!(one.certificate().is_authority() && !read.is_authority());
        let bundle = format!("noise\n{}{}", one.certificate().pem(), other.certificate().pem());
        assert_eq!(Certificate::all_from_pem(&bundle), [one.certificate().clone(), other.certificate().clone()]);
    }

    proptest! {
        #[test]
        fn nothing_stored_causes_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let der = CertificateDer::from(bytes.clone());
            let pem = to_pem(&der);
            prop_assert!(Certificate::from_der(der).is_err());
            prop_assert!(Certificate::from_pem(&pem).is_err());
            prop_assert!(Certificate::from_pem(&String::from_utf8_lossy(&bytes)).is_err());
        }
    }
}
