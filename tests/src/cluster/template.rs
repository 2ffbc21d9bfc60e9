//! A cluster from whose data others begin: with the objects that make Nudge work, which take longer to apply than a
//! server to start.

use std::time::Duration;

use anyhow::Result;
use kube::Api;
use kube::api::ListParams;
use nudge_api::VersionedConfig;
use tokio::sync::OnceCell;

use super::{Binaries, Cluster, Options, start};
use crate::{Installation, eventually};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the template of this process, made by the first test that needs it. Its servers have ended. Without
/// controllers, so that nothing of theirs is in the copies.
async fn template() -> Result<Option<&'static Cluster>> {
    static TEMPLATE: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let make = async || {
        let Some(mut cluster) = Cluster::start(&Options::default().controllers(&[])).await? else { return Ok(None) };
        if Installation::apply(&cluster).await?.is_none() {
            return Ok(None);
        }
        cluster.kill_apiserver()?;
        cluster.etcd.part.stop().await?;
        Ok::<_, anyhow::Error>(Some(cluster))
    };
    Ok(TEMPLATE.get_or_try_init(make).await?.as_ref())
}

/// Returns a cluster that begins with the data of the template.
pub(super) async fn copy(options: &Options) -> Result<Option<Cluster>> {
    let (Some(template), Some(binaries)) = (template().await?, Binaries::find()?) else { return Ok(None) };
    let cluster = start::start(&binaries, options, Some(template)).await?;
    // Kinds of others are served a moment after the server is ready.
    let configs = Api::<VersionedConfig>::all(cluster.admin().await?);
    let served = async || configs.list(&ListParams::default()).await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "VersionedConfig is served", served).await?;
    Ok(Some(cluster))
}
