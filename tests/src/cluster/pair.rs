//! Two replicas of the control plane behind one address. A test can kill the leading replica.

use std::net::SocketAddr;

use anyhow::Result;

use crate::cluster::installation::leader;
use crate::{Balancer, Installation, Replica, ReplicaOptions};

/// Two replicas behind one address.
pub struct Pair<'a> {
    installation: &'a Installation<'a>,
    options: ReplicaOptions,
    replicas: [Replica; 2],
    balancer: Balancer,
}

impl<'a> Pair<'a> {
    /// Starts both, with short times, so that one soon takes over from the other.
    pub async fn start(installation: &'a Installation<'a>) -> Result<Self> {
        let options = ReplicaOptions::quick();
        let replicas = [installation.replica(&options).await?, installation.replica(&options).await?];
        let balancer = Balancer::start(&replicas.each_ref().map(|replica| replica.hub)).await?;
        Ok(Self { installation, options, replicas, balancer })
    }

    /// Returns where agents find whichever is there.
    pub fn hub(&self) -> SocketAddr {
        self.balancer.address
    }

    /// Returns which of them leads, as soon as one does.
    pub async fn leader(&self) -> Result<usize> {
        leader(&self.replicas).await
    }

    /// Kills one of them.
    pub fn kill(&mut self, which: usize) -> Result<()> {
        self.replicas[which].process.kill()?;
        self.balancer.set(&[self.replicas[1 - which].hub]);
        Ok(())
    }

    /// Starts another in the place of one that was killed.
    pub async fn replace(&mut self, which: usize) -> Result<()> {
        self.replicas[which] = self.installation.replica(&self.options).await?;
        self.balancer.set(&self.replicas.each_ref().map(|replica| replica.hub));
        Ok(())
    }
}
