//! Content of sources in git: repositories of one server, and how a change of them is read at once.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::ConfigSource;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster::TestNamespace;
use crate::servers::git_repository::Repository;
use crate::servers::git_server::GitServer;

/// A repository whose files are the keys of versions.
pub struct GitContent {
    repository: Repository,
    /// The place of the files, as sources name it.
    pub from: Value,
    sources: Api<ConfigSource>,
}

impl GitContent {
    /// Changes the value of one key.
    pub async fn change(&self, value: &str) -> Result<()> {
        self.write([("key", value)]).await
    }

    /// Writes files, and has them read at once.
    pub async fn write<'a>(&self, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
        for (name, content) in files {
            self.repository.write(name, content)?;
        }
        self.repository.commit("a change")?;
        read_again(&self.sources).await
    }
}

/// Returns a repository with one key; `None` where a tool is missing.
pub async fn git_content(space: &TestNamespace, name: &str, value: &str) -> Result<Option<GitContent>> {
    static SHARED: OnceCell<Option<GitServer>> = OnceCell::const_new();
    let Some(server) = SHARED.get_or_try_init(async || GitServer::start_outside("").await).await? else {
        return Ok(None);
    };
    let name = format!("{}-{name}", space.name);
    let repository = Repository::new(server.root(), &name)?;
    repository.git(&["rm", "-q", "-r", "config"])?;
    repository.write("key", value)?;
    repository.commit("the first key")?;
    let from = json!({"git": {"url": server.url(&format!("open/{name}")), "ca": server.ca()}});
    Ok(Some(GitContent { repository, from, sources: space.api() }))
}

/// Has the servers of all sources of a namespace asked now. A sync would also skip waits.
pub async fn read_again(sources: &Api<ConfigSource>) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"tests/read": number}}}));
    for source in sources.list_metadata(&ListParams::default()).await?.items {
        sources.patch(&source.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
