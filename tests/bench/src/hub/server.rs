//! The process with the hub, `hub_under_load` of nudge-hub: it takes commands as lines on stdin.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result};
use nudge_tests::binary;
use nudge_tests::cluster::{Authority, Certified};

/// The process, by who started it.
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
    /// The address at which admission reviews are taken.
    pub(crate) admission: SocketAddr,
    /// Whom its clients trust.
    pub(crate) authority: String,
    certified: Certified,
}

impl Server {
    /// Returns a hub that knows this many pods.
    pub(crate) fn start(pods: usize, address: Option<SocketAddr>) -> Result<Self> {
        let authority = Authority::new("bench")?;
        let certified = authority.server(&["127.0.0.1"])?;
        Self::start_with(pods, address, (authority.certificate(), certified))
    }

    /// Returns the same, with a certificate that is there already.
    pub(crate) fn start_with(
        pods: usize,
        address: Option<SocketAddr>,
        (authority, certified): (String, Certified),
    ) -> Result<Self> {
        let address = address.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
        let mut command = Command::new(binary::hub_under_load()?);
        command.args([pods.to_string(), address.to_string()]);
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

    /// Makes a version of this many bytes current.
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
