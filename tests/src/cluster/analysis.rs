//! The component analysis: its objects, and its process.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use serde_json::json;

use crate::cluster::TestNamespace;
use crate::cluster::installation::{ANALYSIS_ACCOUNT, NAMESPACE};
use crate::cluster::sources::leads;
use crate::cluster::space::account;
use crate::{Installation, Replica, ReplicaOptions, eventually};

/// How long things may take, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

impl Installation<'_> {
    /// Applies the component analysis, apart from what needs running pods.
    pub async fn apply_analysis(&self) -> Result<()> {
        for file in ["crd", "rbac", "state"] {
            self.apply_file(&format!("components/analysis/{file}.yaml")).await?;
        }
        let exists = async || {
            let listed = self.cluster.kubectl(&["get", "rolloutanalyses", "--all-namespaces"]).await.ok()??;
            (listed.code == Some(0)).then_some(())
        };
        eventually(WAIT_TIMEOUT, "RolloutAnalysis is served", exists).await
    }

    /// Starts the role analysis with its account, and waits until it leads.
    pub async fn analysis(&self, options: &ReplicaOptions) -> Result<Replica> {
        let replica = self.start_as(ANALYSIS_ACCOUNT, &options.with_more(&["--roles=analysis"]), None).await?;
        let waited = eventually(WAIT_TIMEOUT, "the analysis is led", async || leads(&replica).then_some(())).await;
        waited.with_context(|| format!("its log:\n{}", replica.log()))?;
        Ok(replica)
    }
}

/// Allows the role analysis to get one Secret, as the page says.
pub async fn may_send(space: &TestNamespace, secret: &str) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}]);
    space.grant(&format!("nudge-analysis-{secret}"), rules, account(ANALYSIS_ACCOUNT, NAMESPACE)).await
}

/// Returns an IPv4 address of this machine that others reach: no query is sent to the loopback.
pub fn own_address() -> Result<Option<Ipv4Addr>> {
    let addresses = getifaddrs().context("the addresses of this machine are not known")?;
    let addresses = addresses.filter_map(|one| Some(IpAddr::from(one.address?.as_sockaddr_in()?.ip())));
    let own_addresses = addresses.filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None });
    Ok(own_addresses.filter(|ip| !ip.is_loopback() && !ip.is_link_local()).min())
}
