//! A git repository, as one source sees it.

use std::pin::pin;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConfigSourceSpec, Explanation, GitSource, Origin, OriginKind, PartKind, Reason};
use nudge_authoring::keys_of_files;
use nudge_cluster::turns::{Turn, Turns};
use nudge_core::sources::git_wanted;
use nudge_git::{Commit, Credential, Fetched, Request};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::chain;
use tokio::time::timeout;

use crate::credentials::{of_git, secret};
use crate::files::is_wanted;
use crate::limits::{GIT_MIB, SLOW_FETCH_AFTER};
use crate::server_polls::{Remote, failed};
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
    /// Whether the last fetch took long.
    is_slow: bool,
}

impl Git {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, spec: Arc<ConfigSourceSpec>, from: GitSource) -> Self {
        Self { sources, namespace, spec, from, known: None, is_slow: false }
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
        let slow = Slow { turns: &sources.budget.slow, namespace: &self.namespace };
        let place = slow.place(self.is_slow).await;
        let room = sources.budget.work(&self.namespace, GIT_MIB);
        let _room = match &place {
            None => room.await,
            // Few have a place, and its own namespace may have no memory for long.
            Some(_) => timeout(SLOW_FETCH_AFTER, room).await.map_err(|_| {
                Slow::waits(&self.from.url, "other sources of its namespace use all memory of the namespace")
            })?,
        };
        let (is_slow, fetched) = slow.fetch(place, &self.from.url, self.fetched()).await;
        self.is_slow = is_slow;
        sources.metrics.mirrors(sources.mirrors.bytes());
        let Some(Commit { id, time, signer, files }) = fetched? else { return Ok(None) };
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

/// The places of slow fetches, as one namespace has them.
#[derive(Clone, Copy)]
struct Slow<'a> {
    turns: &'a Turns,
    namespace: &'a str,
}

impl Slow<'_> {
    /// The place of a source that was slow the last time. It takes no memory while it waits, so that quick ones go on.
    async fn place(self, is_slow: bool) -> Option<Turn> {
        if is_slow { Some(self.turns.take(self.namespace).await) } else { None }
    }

    /// What is said of a source that gives its place or its memory back.
    fn waits(url: &str, why: &str) -> Explanation {
        failed(
            url,
            format!(
                "the fetch was not done within {} s, and {why}; the source waits for its turn again",
                SLOW_FETCH_AFTER.as_secs()
            ),
        )
    }

    /// Fetches, and returns whether that is slow. What is slow goes on with a place; without one it gives its memory back to those who wait, and
    /// waits for a place the next time.
    async fn fetch<T>(
        self,
        place: Option<Turn>,
        url: &str,
        fetched: impl Future<Output = Result<T, Explanation>>,
    ) -> (bool, Result<T, Explanation>) {
        let mut fetched = pin!(fetched);
        if let Ok(done) = timeout(SLOW_FETCH_AFTER, &mut fetched).await {
            return (false, done);
        }
        let Some(_place) = place.or_else(|| self.turns.try_take(self.namespace, 1)) else {
            return (true, Err(Self::waits(url, "other slow servers take all places")));
        };
        (true, fetched.await)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// Fetches for so many seconds. Returns whether that is slow, and whether it was done.
    async fn fetch(slow: Slow<'_>, was_slow: bool, seconds: u64) -> (bool, bool) {
        let place = slow.place(was_slow).await;
        let fetched = async {
            sleep(Duration::from_secs(seconds)).await;
            Ok(())
        };
        let (is_slow, done) = slow.fetch(place, "https://a/b", fetched).await;
        (is_slow, done.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_gives_its_turn_back_unless_few_are_slow() {
        let turns = Turns::new(1, 1);
        let timed = async |namespace: &str, seconds: u64| {
            let (began, slow) = (Instant::now(), Slow { turns: &turns, namespace });
            (fetch(slow, false, seconds).await.1, began.elapsed().as_secs())
        };
        let (one, two, quick) = tokio::join!(timed("a", 100), timed("b", 110), timed("c", 29));
        assert_eq!((quick, [one, two].contains(&(false, 30))), ((true, 29), true), "{one:?} {two:?}");
        assert!([one, two].iter().any(|(done, took)| *done && *took >= 100), "{one:?} {two:?}");
        assert_eq!(timed("a", 50).await, (true, 50), "the place is free again");
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_are_always_slow_keep_no_other_out() {
        let turns = Turns::new(2, 1);
        let always = async |namespace: &str| {
            let mut is_slow = false;
            for _ in 0..20 {
                (is_slow, _) = fetch(Slow { turns: &turns, namespace }, is_slow, 100).await;
            }
        };
        let other = async {
            let began = Instant::now();
            let (mut is_slow, mut done, mut tries) = (false, false, 0);
            while !done {
                (is_slow, done) = fetch(Slow { turns: &turns, namespace: "c" }, is_slow, 100).await;
                tries += 1;
            }
            (tries, began.elapsed().as_secs())
        };
        tokio::select! {
            biased;
            () = async { tokio::join!(always("a"), always("a"), always("b"), always("b")); } => panic!("they have ended"),
            (tries, took) = other => assert!(tries <= 2 && took <= 300, "{tries} tries took {took} s"),
        }
    }
}
