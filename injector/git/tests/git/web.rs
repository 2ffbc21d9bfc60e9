//! Debian's git-http-backend behind nginx, with TLS and passwords, and certificates for servers that answer by hand.

use std::path::Path;

use anyhow::Result;
use nudge_tests::ports;
use nudge_tests::servers::git_server::GitServer;
pub(crate) use nudge_tests::servers::git_server::{TOKEN, USER};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority, and a certificate of it for the tests' servers.
pub(crate) struct Certificates {
    pub(crate) ca: Vec<u8>,
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Certificates {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        // GnuTLS takes the first of several with one name.
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority {}", ports::free()?));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
        Ok(Self { ca: authority.pem().into_bytes(), chain: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A web server, and who vouches for it.
pub(crate) struct Web {
    server: GitServer,
    pub(crate) port: u16,
    pub(crate) certificates: Vouched,
}

/// The certificate of an authority.
pub(crate) struct Vouched {
    pub(crate) ca: Vec<u8>,
}

impl Web {
    /// Starts it. `None` if a tool is missing.
    pub(crate) async fn start() -> Result<Option<Self>> {
        Self::start_first("").await
    }

    /// The same with locations of nginx that come before the others.
    pub(crate) async fn start_first(more: &str) -> Result<Option<Self>> {
        let Some(server) = GitServer::start_with(more).await? else { return Ok(None) };
        let (port, certificates) = (server.port(), Vouched { ca: server.ca().into_bytes() });
        Ok(Some(Self { server, port, certificates }))
    }

    pub(crate) fn root(&self) -> &Path {
        self.server.root()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// All that it has logged: what was asked, and with which user.
    pub(crate) fn log(&self) -> Result<String> {
        self.server.log()
    }
}
