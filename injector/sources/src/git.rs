//! A git repository, as one source sees it.

use std::pin::pin;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConfigSourceSpec, Explanation, GitSource, Origin, OriginKind, PartKind, Reason};
use nudge_authoring::keys_of_files;
use nudge_core::sources::git_wanted;
use nudge_git::{Commit, Credential, Fetched, Request};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::chain;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::budget::{GIT_MIB, QUICK};
use crate::credentials::{of_git, secret};
use crate::files::is_wanted;
use crate::remote::{Remote, failed};
use crate::shared::Sources;
use crate::upstream::Object;

/// A repository with the content of one source.
pub(crate) struct Git {
    sources: Arc<Sources>,
    namespace: String,
    spec: Arc<ConfigSourceSpec>,
    from: GitSource,
    /// The commit that was read last.
    known: Option<String>,
}

impl Git {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, spec: Arc<ConfigSourceSpec>, from: GitSource) -> Self {
        Self { sources, namespace, spec, from, known: None }
    }

    async fn fetched(&self) -> Result<Option<Commit>, Explanation> {
        let (url, revision) = git_wanted(&self.from)?;
        let credential = match &self.from.secret_ref {
            Some(object) => {
                let name = object.name.as_str();
                of_git(&secret(&self.sources, &self.namespace, name, url.address()).await?, name)?
            }
            None => Credential::Anonymous,
        };
        let guarded = self.sources.guard.now().await.map_err(|error| failed(&self.from.url, error))?;
        let request = Request {
            url: &url,
            revision: &revision,
            path: &self.from.path,
            credential: &credential,
            ca: self.from.ca.as_deref().map(str::as_bytes),
            reach: &Reach::Outside(guarded),
            lfs: self.from.lfs,
            allowed_signers: self.from.verify.as_ref().map(|verify| verify.allowed_signers.as_str()),
            wanted: &|path| is_wanted(&self.spec, path),
        };
        let fetched = self.sources.mirrors.fetch(&request, self.known.as_deref()).await;
        self.sources.metrics.mirrors(self.sources.mirrors.bytes());
        match fetched.map_err(|error| failed(&self.from.url, chain(&error)))? {
            Fetched::Unchanged => Ok(None),
            Fetched::Commit(commit) => Ok(Some(commit)),
        }
    }
}

impl Remote for Git {
    const KIND: OriginKind = OriginKind::Git;

    async fn read(&mut self) -> Result<Option<Object>, Explanation> {
        let sources = Arc::clone(&self.sources);
        let _room = sources.budget.work(&self.namespace, GIT_MIB).await;
        let fetched = in_turn(&sources.budget.slow, &self.from.url, self.fetched()).await?;
        let Some(Commit { id, time, signer, files }) = fetched else { return Ok(None) };
        let origin = Origin {
            kind: Self::KIND,
            url: self.from.url.as_str().into(),
            revision: id.as_str().into(),
            path: self.from.path.as_str().into(),
            time: Some(Time(time)),
            signer: signer.map(Into::into),
        };
        let contents =
            keys_of_files(files).map_err(|why| Reason::SourceRefused.explained(format!("{}: {why}", self.from.url)))?;
        self.known = Some(id);
        Ok(Some(Object { contents, ..Object::of(PartKind::ConfigMap, origin) }))
    }

    fn forget(&mut self) {
        self.known = None;
    }
}

/// Fetches. What is slow goes on while few others are slow; otherwise it gives its turn back to those who wait.
async fn in_turn<T>(
    slow: &Semaphore,
    url: &str,
    fetched: impl Future<Output = Result<T, Explanation>>,
) -> Result<T, Explanation> {
    let mut fetched = pin!(fetched);
    if let Ok(done) = timeout(QUICK, &mut fetched).await {
        return done;
    }
    let why = format!(
        "not done within {} s, and others that are slow are being fetched from; it is tried again",
        QUICK.as_secs()
    );
    let _place = slow.try_acquire().map_err(|_| failed(url, why))?;
    fetched.await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_gives_its_turn_back_unless_few_are_slow() {
        let slow = Semaphore::new(1);
        let fetch = async |seconds: u64| {
            let began = Instant::now();
            let fetched = async {
                sleep(Duration::from_secs(seconds)).await;
                Ok(())
            };
            (in_turn(&slow, "https://a/b", fetched).await.is_ok(), began.elapsed().as_secs())
        };
        let (one, two, quick) = tokio::join!(fetch(100), fetch(110), fetch(29));
        assert_eq!((quick, [one, two].contains(&(false, 30))), ((true, 29), true), "{one:?} {two:?}");
        assert!([one, two].iter().any(|(done, took)| *done && *took >= 100), "{one:?} {two:?}");
        assert_eq!(fetch(50).await, (true, 50), "the place is free again");
    }
}
