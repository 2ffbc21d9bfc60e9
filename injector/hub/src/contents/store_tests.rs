//! The contents that the store reads, keeps and drops.

use std::sync::atomic::Ordering;

use nudge_protocol::hub::HubReason;

use super::*;
use crate::contents::fixtures::{StoredParts, content_key};

fn store(source: &Arc<StoredParts>, settings: &Settings) -> Arc<ContentStore> {
    let source: Arc<dyn PartSource> = source.clone();
    ContentStore::new(source, Arc::new(content_key()), &Arc::new(settings.clone()), Metrics::default())
}

async fn get(store: &Arc<ContentStore>, version: &VersionStatus) -> Result<Arc<Content>, Arc<HubProblem>> {
    let key = ConfigKey::parse("ns", "shop").unwrap();
    loop {
        match store.find_or_fetch(&key, "uid", Identity::of_uid("uid"), version) {
            ContentLookup::Content(content) => return Ok(content),
            ContentLookup::Problem(problem, _) => return Err(problem),
            ContentLookup::Fetching(mut landed) => landed.changed().await.unwrap(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_pods_make_one_fetch_and_failures_that_pass_are_outlived() {
    let source = Arc::new(StoredParts::default());
    let version = source.add("1", b"x");
    source.failures.store(5, Ordering::SeqCst);
    let store = store(&source, &Settings::default());
    let all = futures::future::join_all((0..100).map(|_| get(&store, &version))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(source.reads.load(Ordering::SeqCst), 6);
    assert_eq!(store.entries.lock().bytes, all[0].as_ref().ok().unwrap().block.len());
}

#[test]
fn contents_are_fetched_by_the_runtime_of_the_hub_whoever_looks() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (own, other) = (runtime(), runtime());
    let source = Arc::new(StoredParts::default());
    let version = source.add("1", b"x");
    let store = own.block_on(async { store(&source, &Settings::default()) });
    let key = ConfigKey::parse("ns", "shop").unwrap();
    let mut landed = other.block_on(async {
        let ContentLookup::Fetching(landed) = store.find_or_fetch(&key, "uid", Identity::of_uid("uid"), &version)
        else {
            panic!()
        };
        landed
    });
    // The task would not get further with the other sender.
    drop(other);
    own.block_on(landed.changed()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_reported_and_looked_for_again_later() {
    let source = Arc::new(StoredParts::default());
    let version = source.add("1", b"x");
    let kept = source.objects.lock().remove("shop-1").unwrap();
    let store = store(&source, &Settings::default());
    let problem = get(&store, &version).await.err().unwrap();
    assert_eq!(problem.reason, HubReason::Changed);
    assert!(problem.message.contains("ConfigMap shop-1 is gone"), "{}", problem.message);
    source.objects.lock().insert("shop-1".to_owned(), kept);
    assert!(get(&store, &version).await.is_err());
    assert_eq!(source.reads.load(Ordering::SeqCst), 1);
    tokio::time::advance(PROBLEM_RETRY_DELAY * 2).await;
    assert!(get(&store, &version).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_version_sealed_anew_is_another_content() {
    let source = Arc::new(StoredParts::default());
    let store = store(&source, &Settings::default());
    let one = get(&store, &source.add("1", b"x")).await.ok().unwrap();
    let two = get(&store, &source.add("1", b"y")).await.ok().unwrap();
    assert_ne!(one.sha256, two.sha256);
    assert_eq!(store.entries.lock().bytes, two.block.len());
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_and_what_no_pod_needs_goes() {
    let source = Arc::new(StoredParts::default());
    let settings = Settings { max_content_bytes: 10_000, ..Settings::default() };
    let store = store(&source, &settings);
    for n in 0..20 {
        let version = source.add(&n.to_string(), &[0; 3000]);
        get(&store, &version).await.ok().unwrap();
        tokio::time::advance(Duration::from_millis(10)).await;
        assert!(store.entries.lock().bytes <= 10_000);
    }
    let kept = |store: &ContentStore| {
        let mut kept: Vec<String> = store.entries.lock().by_version.keys().map(|key| key.version.clone()).collect();
        kept.sort();
        kept
    };
    assert_eq!(kept(&store), ["17", "18", "19"]);
    store.retain(|_, _| false);
    assert_eq!(kept(&store).len(), 3, "needed a moment ago");
    tokio::time::advance(settings.max_unused_age * 2).await;
    store.retain(|uid, version| uid == "uid" && version == "18");
    assert_eq!(kept(&store), ["18"]);
    tokio::time::advance(settings.max_unused_age * 2).await;
    store.retain(|_, _| false);
    assert!(store.entries.lock().by_version.is_empty());
    assert_eq!(store.entries.lock().bytes, 0);
}
