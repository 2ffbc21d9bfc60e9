//! Faults of a cluster: servers that stop, come back, or stand still, and a store that forgets. All of them need
//! `&mut`, which a test has of its own cluster, but of no shared cluster.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::etcd::Etcd;
use super::start::DATA;
use super::{Cluster, start};
use crate::eventually;
use crate::procfs::is_stopped;

const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The folder of the backup of etcd's data.
const BACKUP: &str = "etcd.backup";

impl Cluster {
    /// Stops the API server. Connections are closed, and new ones refused.
    pub async fn stop_apiserver(&mut self) -> Result<()> {
        self.apiserver.stop().await
    }

    /// Ends the API server at once, as a crash would.
    pub fn kill_apiserver(&mut self) -> Result<()> {
        self.apiserver.kill()
    }

    /// Starts the API server again, at the same address, and returns when it is ready.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        let admin = self.admin().await?;
        self.apiserver.start()?;
        start::ready(&mut self.apiserver, &admin).await
    }

    /// Stops the API server and starts it again.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.stop_apiserver().await?;
        self.start_apiserver().await
    }

    /// Lets the API server stand still: connections stay open, and nothing comes.
    pub async fn freeze_apiserver(&mut self) -> Result<()> {
        self.apiserver.signal(Signal::SIGSTOP)?;
        let pid = self.apiserver.pid().unwrap_or_default();
        eventually(END_TIMEOUT, "the API server stands still", async || is_stopped(pid).then_some(())).await
    }

    /// Lets it continue.
    pub fn thaw_apiserver(&mut self) -> Result<()> {
        self.apiserver.signal(Signal::SIGCONT)
    }

    /// Stops etcd and starts it again, with its data and at the same address; returns when the API server is ready with
    /// it.
    pub async fn restart_etcd(&mut self) -> Result<()> {
        self.etcd.part.stop().await?;
        self.etcd.start().await?;
        let admin = self.admin().await?;
        start::ready(&mut self.apiserver, &admin).await
    }

    /// Ends etcd at once, as a crash would.
    pub fn kill_etcd(&mut self) -> Result<()> {
        self.etcd.part.kill()
    }

    /// Starts etcd again, and returns when it answers. The API server finds it in its own time.
    pub async fn start_etcd(&mut self) -> Result<()> {
        self.etcd.start().await
    }

    /// Makes a backup of etcd, in place of the one before. It is away for a moment.
    pub async fn back_up_etcd(&mut self) -> Result<()> {
        self.etcd.part.stop().await?;
        Etcd::copy_data(&self.home.path().join(DATA), &self.home.path().join(BACKUP))?;
        self.etcd.start().await
    }

    /// Goes back to the backup, as an administrator does: without the API server, which is started again afterwards.
    pub async fn restore_etcd(&mut self) -> Result<()> {
        self.apiserver.stop().await?;
        self.etcd.part.stop().await?;
        Etcd::copy_data(&self.home.path().join(BACKUP), &self.home.path().join(DATA))?;
        self.etcd.start().await?;
        self.start_apiserver().await?;
        let Some(part) = &mut self.controller_manager else { return Ok(()) };
        part.stop().await?;
        part.start()
    }

    /// Begins again with an empty etcd, after which the objects with these prefixes, such as `/registry/pods/team/`,
    /// are restored with their uids.
    pub async fn empty_etcd(&mut self, kept: &[String]) -> Result<()> {
        let pairs = self.etcd.pairs(kept).await?;
        self.apiserver.stop().await?;
        self.etcd.part.stop().await?;
        fs::remove_dir_all(self.home.path().join(DATA))?;
        self.etcd.start().await?;
        self.etcd.put(&pairs).await?;
        self.start_apiserver().await
    }

    /// Drops all of etcd's history before now. A running API server may still answer watches of older versions from its
    /// memory; after a restart it can't.
    pub async fn compact(&mut self) -> Result<()> {
        self.etcd.compact().await
    }

    /// Ends it all. Dropping does the same, but nobody hears of faults then.
    pub fn stop(mut self) -> Result<()> {
        if let Some(part) = &mut self.controller_manager {
            part.kill()?;
        }
        self.apiserver.kill()?;
        self.etcd.part.kill()
    }
}
