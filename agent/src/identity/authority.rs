//! The pod's own certificate authority and the serving certificates it signs.
//!
//! Clients read their trust anchor once, so the authority stays the same for the pod's life. A serving certificate is
//! made at every start, for the pod's addresses. Both follow RFC 5280 closely (key usages, key identifiers), because
//! OpenSSL's strict mode, the default in Python 3.13, refuses other certificates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

/// The period of validity of certificates. No pod lives that long, so none is renewed.
const VALIDITY_PERIOD: Duration = Duration::days(3650);
/// The maximum lag of a client's clock.
const MAX_CLOCK_SKEW: Duration = Duration::HOUR;
/// The maximum number of addresses in one serving certificate.
const MAX_ADDRESSES: usize = 64;

/// The reason why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Making or reading a key or certificate failed.
    #[error("the certificate can't be made or read")]
    Certificate(#[from] rcgen::Error),
    /// A stored certificate is not PEM.
    #[error("the stored certificate is not PEM")]
    Pem(#[from] pem::Error),
    /// The TLS library refuses the key, or it does not match the certificate.
    #[error("the certificate's key can't be used for TLS")]
    Key(#[from] rustls::Error),
}

/// The authority of this one pod.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Makes a new authority, valid from one hour before `now`.
    pub fn generate(now: OffsetDateTime) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let params = authority_params(now);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Reads a stored authority.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key)?;
        let stored = CertificateDer::from_pem_slice(certificate.as_bytes())?;
        CertifiedKey::new(vec![stored], signer(&key)?).keys_match()?;
        // Certificates contain only name and key usages of their issuer, which are always the same.
        let issuer = Issuer::new(authority_params(OffsetDateTime::UNIX_EPOCH), key);
        Ok(Self { issuer, pem: certificate.to_owned() })
    }

    /// Returns the certificate that clients trust, PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the private key, PEM, for the agent's own memory volume and nothing else.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// Makes a serving certificate for `localhost` and `addresses`, with a key of its own.
    pub fn make_serving_certificate(
        &self,
        addresses: &[IpAddr],
        now: OffsetDateTime,
    ) -> Result<CertifiedKey, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = base_params("nudge-agent", now);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![SanType::DnsName("localhost".try_into()?)];
        params.subject_alt_names.extend(addresses.iter().take(MAX_ADDRESSES).map(|&ip| SanType::IpAddress(ip)));
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], signer(&key)?))
    }
}

fn signer(key: &KeyPair) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    any_supported_type(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
}

fn authority_params(now: OffsetDateTime) -> CertificateParams {
    let mut params = base_params("Nudge authority of this pod", now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn base_params(name: &str, now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - MAX_CLOCK_SKEW;
    params.not_after = now + VALIDITY_PERIOD;
    params
}

/// Returns the addresses of a serving certificate: loopback and the pod's own, without repeats.
pub fn serving_addresses(own: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    for &address in own {
        if !address.is_unspecified() && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn a_client_of_the_first_start_accepts_certificates_of_a_stored_authority() {
        let now = OffsetDateTime::now_utc();
        let first = Authority::generate(now).unwrap();
        let second = Authority::from_pem(first.certificate_pem(), &first.key_pem()).unwrap();
        let addresses = serving_addresses(&["10.0.0.7".parse().unwrap(), "127.0.0.1".parse().unwrap()]);
        assert_eq!(addresses.len(), 3);

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(first.certificate_pem().as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let verifier = verifier.build().unwrap();
        let certificate = second.make_serving_certificate(&addresses, now).unwrap();
        let verify = |name| {
            let name = ServerName::try_from(name).unwrap();
            verifier.verify_server_cert(&certificate.cert[0], &[], &name, &[], UnixTime::now())
        };
        for name in ["10.0.0.7", "127.0.0.1", "::1", "localhost"] {
            verify(name).unwrap();
        }
        assert!(verify("10.0.0.8").is_err());
    }

    #[test]
    fn a_key_of_another_authority_is_refused() {
        let now = OffsetDateTime::now_utc();
        let (first, second) = (Authority::generate(now).unwrap(), Authority::generate(now).unwrap());
        assert!(Authority::from_pem(first.certificate_pem(), &second.key_pem()).is_err());
    }
}
