//! A git repository, as one source sees it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConfigSourceSpec, Explanation, GitSource, Origin, OriginKind, PartKind, Reason};
use nudge_authoring::{file_key, keys_of_files};
use nudge_core::sources::{git_target, selects_key};
use nudge_git::{Commit, Credential, FetchRequest};
use nudge_protocol::error_chain::chain;
use tokio::time::timeout;

use crate::budget::GIT_MIB;
use crate::credentials::{git_credential, read_secret};
use crate::server_polls::{Remote, fetch_failure};
use crate::slow_fetch::{SLOW_FETCH_AGE, SlowFetches};
use crate::source_content::SourceContent;
use crate::sources::Sources;

/// A repository with the content of one source.
pub(crate) struct Git {
    sources: Arc<Sources>,
    namespace: String,
    spec: Arc<ConfigSourceSpec>,
    from: GitSource,
    /// Whether the last fetch was slow.
    is_slow: bool,
}

impl Git {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, spec: Arc<ConfigSourceSpec>, from: GitSource) -> Self {
        Self { sources, namespace, spec, from, is_slow: false }
    }

    async fn fetch(&self, last: Option<&str>) -> Result<Option<Commit>, Explanation> {
        let (url, revision) = git_target(&self.from)?;
        let credential = match &self.from.secret_ref {
            Some(object) => {
                let name = object.name.as_str();
                git_credential(&read_secret(&self.sources, &self.namespace, name, url.address()).await?, name)?
            }
            None => Credential::Anonymous,
        };
        let request = FetchRequest {
            url: &url,
            revision: &revision,
            path: &self.from.path,
            credential: &credential,
            ca: self.from.ca.as_deref().map(str::as_bytes),
            reach: &self.sources.reach(&self.from.url).await?,
            lfs: self.from.lfs,
            allowed_signers: self.from.verify.as_ref().map(|verify| verify.allowed_signers.as_str()),
            // The patterns for keys also choose files.
            is_wanted: &|path| selects_key(&self.spec, &file_key(path)),
        };
        let commit = self.sources.mirrors.fetch(&request, last).await;
        commit.map_err(|error| fetch_failure(&self.from.url, chain(&error)))
    }
}

impl Remote for Git {
    const KIND: OriginKind = OriginKind::Git;

    async fn read(&mut self, last: Option<&str>) -> Result<Option<SourceContent>, Explanation> {
        let sources = Arc::clone(&self.sources);
        let slow = SlowFetches { turns: &sources.budget.slow_fetches, namespace: &self.namespace };
        let place = slow.take_place(self.is_slow).await;
        let room = sources.budget.fetches.take_many(&self.namespace, GIT_MIB);
        let _room = match &place {
            None => room.await,
            // There are few places, and the source's namespace may have no memory for a long time.
            Some(_) => timeout(SLOW_FETCH_AGE, room).await.map_err(|_| {
                SlowFetches::lost_turn(&self.from.url, "other sources of its namespace use all memory of the namespace")
            })?,
        };
        let (is_slow, fetched) = slow.run(place, &self.from.url, self.fetch(last)).await;
        self.is_slow = is_slow;
        sources.metrics.set_mirrors(sources.mirrors.bytes());
        let Some(Commit { id, time, signer, files }) = fetched? else { return Ok(None) };
        let origin = Origin {
            kind: Self::KIND,
            url: self.from.url.as_str().into(),
            revision: id.as_str().into(),
            path: self.from.path.as_str().into(),
            time: Some(Time(time)),
            signer: signer.map(Into::into),
        };
        let contents = keys_of_files(files)
            .map_err(|cause| Reason::SourceRefused.explained(format!("{}: {cause}", self.from.url)))?;
        Ok(Some(SourceContent { kind: PartKind::ConfigMap, origin, contents }))
    }
}
