//! A certificate authority for servers on 127.0.0.1 and for clients with names and groups.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// An authority, which lives as long as what trusts it.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub struct Certified {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The private key, in PEM.
    pub key: String,
}

impl Authority {
    /// Returns a new one.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Returns the authority's certificate as PEM.
    pub fn certificate(&self) -> String {
        AsRef::<rcgen::Certificate>::as_ref(&self.issuer).pem()
    }

    /// Returns a certificate for a server that is known by these names and addresses.
    pub fn server(&self, names: &[&str]) -> Result<Certified> {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Returns the same, which has expired.
    pub fn expired_server(&self, names: &[&str]) -> Result<Certified> {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names)?;
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Returns a certificate for a user of Kubernetes, and a group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Certified> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Certified> {
        let key = KeyPair::generate()?;
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn named(name: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    if let Some(organisation) = organisation {
        names.push(DnType::OrganizationName, organisation);
    }
    names.push(DnType::CommonName, name);
    names
}
