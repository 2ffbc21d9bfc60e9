//! A git repository, as one source sees it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConfigSourceSpec, Explanation, GitReference, GitSource, Origin, OriginKind, PartKind, Reason};
use nudge_authoring::keys_of_files;
use nudge_git::{Commit, Credential, Fetched, GitUrl, Request, Revision};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::chain;

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

    fn revision(&self) -> Result<Revision, Explanation> {
        let Some(GitReference { branch, tag, semver, commit }) = &self.from.reference else {
            return Ok(Revision::Head);
        };
        match (branch, tag, semver, commit) {
            (Some(branch), None, None, None) => Ok(Revision::Branch(branch.clone())),
            (None, Some(tag), None, None) => Ok(Revision::Tag(tag.clone())),
            (None, None, Some(range), None) => Ok(Revision::Semver(range.clone())),
            (None, None, None, Some(commit)) => Ok(Revision::Commit(commit.clone())),
            _ => Err(Reason::SourceRefused
                .explained("spec.from.git.ref needs exactly one of branch, tag, semver and commit")),
        }
    }

    async fn fetched(&self) -> Result<Option<Commit>, Explanation> {
        let url = GitUrl::parse(&self.from.url)
            .map_err(|error| Reason::SourceRefused.explained(format!("spec.from.git.url: {error}")))?;
        let revision = self.revision()?;
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
        let _turn = sources.git_turns.take(&self.namespace).await;
        let Some(Commit { id, time, signer, files }) = self.fetched().await? else { return Ok(None) };
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
