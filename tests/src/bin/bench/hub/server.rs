//! The hub in a process of its own, so that its memory and time are its own: lines on stdin say what to do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::UserInfo;
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, LookupError, Lookups, MutateVersions, Webhook, Webhooks,
};
use nudge_api::VersionedConfig;
use nudge_hub::{Settings, bind, serve, use_few_arenas};
use nudge_server::tls::server_config;
use nudge_tests::cluster::{Authority, Certified};
use nudge_tests::standin::StandIn;
use ring::hmac;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::AsyncBufReadExt as _;

/// The command's name.
pub(crate) const NAME: &str = "hub-process";
/// How long a review takes.
const REVIEW: Duration = Duration::from_millis(3);

/// The process, by who started it.
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
    /// Where it takes admission reviews.
    pub(crate) admission: SocketAddr,
    /// Whom its clients trust.
    pub(crate) authority: String,
    certified: Certified,
}

impl Server {
    /// A hub that knows so many pods.
    pub(crate) fn start(pods: usize, address: Option<SocketAddr>) -> Result<Self> {
        let authority = Authority::new("bench")?;
        let certified = authority.server(&["127.0.0.1"])?;
        Self::start_with(pods, address, (authority.certificate(), certified))
    }

    /// The same, with a certificate that is there already.
    pub(crate) fn start_with(
        pods: usize,
        address: Option<SocketAddr>,
        (authority, certified): (String, Certified),
    ) -> Result<Self> {
        let address = address.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
        let mut command = Command::new(std::env::current_exe()?);
        command.args([NAME, &pods.to_string(), &address.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("can't start the hub")?;
        let mut input = child.stdin.take().context("no stdin")?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        let keys = serde_json::json!([certified.certificate, certified.key]);
        writeln!(input, "{keys}")?;
        let mut server = Self { child, input, output, address, admission: address, authority, certified };
        server.address = server.line()?.parse().context("no address")?;
        server.admission = server.line()?.parse().context("no address")?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn take_authority(&self) -> (String, Certified) {
        (self.authority.clone(), self.certified.clone())
    }

    /// Makes a version of so many bytes current.
    pub(crate) fn activate(&mut self, version: u64, bytes: usize) -> Result<()> {
        writeln!(self.input, "activate {version} {bytes}").context("the hub is gone")
    }

    /// Reviews of tokens, and the most at the same time.
    pub(crate) fn reviews(&mut self) -> Result<(u64, u64)> {
        writeln!(self.input, "reviews").context("the hub is gone")?;
        let line = self.line()?;
        let (all, most) = line.split_once(' ').context("no numbers")?;
        Ok((all.parse()?, most.parse()?))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("the hub is gone")?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without a word to the agents, as a node that fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An API server that finds everybody allowed, at once.
struct Allowing;

impl Lookups for Allowing {
    async fn config(&self, _: &str, _: &str) -> Result<Option<VersionedConfig>, LookupError> {
        Ok(None)
    }

    async fn is_enabled(&self, _: &str) -> Result<bool, LookupError> {
        Ok(true)
    }

    async fn is_terminating(&self, _: &str) -> Result<bool, LookupError> {
        Ok(false)
    }

    fn subscribers(&self, _: &str, _: &str) -> usize {
        0
    }

    async fn may_update_config_map(&self, _: &UserInfo, _: &str, _: &str) -> Result<bool, LookupError> {
        Ok(true)
    }
}

/// The process itself; ends with its stdin.
pub(crate) fn run(pods: usize, address: SocketAddr) -> Result<()> {
    use_few_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
        let keys = lines.next_line().await?.context("no certificate")?;
        let [certificate, key]: [String; 2] = serde_json::from_str(&keys)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        let key = any_supported_type(&PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
        let tls = server_config(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))?;
        let stand_in = StandIn::new(Settings::default(), pods, REVIEW);
        let listener = bind(address)?;
        print(&listener.local_addr()?.to_string())?;
        let tls = Arc::new(tls);
        let settings = AdmissionSettings::new((Ipv4Addr::LOCALHOST, 0).into());
        let webhooks = || -> futures::future::BoxFuture<'static, Result<Webhooks, anyhow::Error>> {
            let marks = MutateVersions::new(Arc::new(Allowing), Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key")));
            Box::pin(async { Ok(vec![Arc::new(marks) as Arc<dyn Webhook>]) })
        };
        let admission = AdmissionServer::start(settings, Arc::clone(&tls), AdmissionMetrics::default(), webhooks);
        let admission = admission.await?;
        print(&admission.address().to_string())?;
        tokio::spawn(serve(listener, tls, Arc::clone(&stand_in.hub), std::future::pending()));
        while let Some(line) = lines.next_line().await? {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["activate", version, bytes] => {
                    // Other content each time: an agent is not sent what it has.
                    let value = format!("{version:x>0$}", bytes.parse::<usize>()?).into_bytes();
                    stand_in.activate_as(version.parse()?, &stand_in.stored.add(version, &[&[("value", value)]]));
                }
                ["reviews"] => {
                    let (all, most) = stand_in.reviews.counted();
                    print(&format!("{all} {most}"))?;
                }
                _ => {}
            }
        }
        Ok(())
    })
}

fn print(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("nobody reads")
}
