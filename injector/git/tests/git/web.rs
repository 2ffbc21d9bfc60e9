//! Debian's git-http-backend behind nginx, with TLS and passwords, and certificates for servers that answer by hand.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::Full;
use hyper::Request;
use nudge_core::outbound::Address;
use nudge_outbound::{Bounds, Reach, authorities_from_pem, request};
use nudge_tests::servers::git_server::GitServer;
pub(crate) use nudge_tests::servers::git_server::{TOKEN, USER};
use nudge_tests::{eventually, ports};
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

    /// Starts the server with locations of nginx that precede the usual locations.
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

    /// Returns the server's log: the requests, with their users.
    pub(crate) fn log(&self) -> Result<String> {
        self.server.log()
    }

    /// The lines of all that was answered until now. Nginx writes a line after its answer, but before it looks at the
    /// next request.
    pub(crate) async fn answered(&self) -> Result<Vec<String>> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("/forbidden/mark-{}-", NUMBER.fetch_add(1, Ordering::Relaxed));
        let address = Address::parse(self.url("").trim_end_matches('/'))?;
        let authorities = authorities_from_pem(&self.certificates.ca).context("no CA")?;
        let bounds = Bounds { timeout: Duration::from_mins(1), max_bytes: 64 * 1024 };
        request(&address, &Reach::Anywhere, &authorities, Request::get(&mark).body(Full::default())?, bounds).await?;
        let log = async || self.log().ok().filter(|log| log.contains(&mark));
        let log = eventually(Duration::from_secs(30), "nginx writes its log", log).await?;
        Ok(log.lines().filter(|line| !line.contains("/forbidden/mark-")).map(str::to_owned).collect())
    }
}
