//! OpenSSH: the server starts itself anew in the same process, by SIGHUP.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;

use crate::load::{Count, Load};
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

/// Clients of one round.
const CLIENTS: u64 = 5;

#[tokio::test]
async fn sshd() -> Result<()> {
    let Some(recipe) = Recipe::find("sshd", "openssh-server", &["sshd", "ssh-keygen"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let look = async || Ok(identification(port)?.ends_with(" welcome"));
    wait_until_serving(&software, &false, look).await?;
    let load = Load::rounds(move || {
        let answers = (0..CLIENTS).filter(|_| identification(port).is_ok()).count().try_into()?;
        Ok(Count { done: answers, dropped: CLIENTS - answers, ..Count::default() })
    });
    twenty_switches(&mut software, load, [false, true], look).await?;
    software.switch_until_ended(("site.conf", "nonsense\n"), 255).await
}

/// Returns what the server says first to a new client.
fn identification(port: u16) -> Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    anyhow::ensure!(line.starts_with("SSH-2.0-"), "{line:?}");
    Ok(line.trim_end().to_owned())
}
