//! Watches that follow a script, and the changes that they yield.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::source::Events;
use super::*;

/// No objects, and watches that are as the test says. Records how long each was asked to last.
struct Scripted {
    watches: Mutex<VecDeque<kube::Result<Events>>>,
    asked: mpsc::UnboundedSender<Option<u32>>,
}

type Item = PartialObjectMeta<ConfigMap>;

/// Returns a page with these objects, before the page `next`. The API server writes null for none.
fn page(version: &str, next: &str, items: &[serde_json::Value]) -> Vec<u8> {
    let items = (!items.is_empty()).then_some(items);
    let list = serde_json::json!({"metadata": {"resourceVersion": version, "continue": next}, "items": items});
    list.to_string().into_bytes()
}

fn raw(object: &serde_json::Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(object).unwrap()
}

/// Renders a change as text: brackets around lists, the names of listed objects, and the names of changed objects after
/// a sign.
fn text(change: WatchChange<Item>) -> String {
    match change {
        WatchChange::Listing => "[".to_owned(),
        WatchChange::Found(object) => object.name_any(),
        WatchChange::Listed(_) => "]".to_owned(),
        WatchChange::Put(object) => format!("+{}", object.name_any()),
        WatchChange::Gone(object) => format!("-{}", object.name_any()),
        WatchChange::Unparsed(object) => format!("?{}", object.name),
    }
}

impl Source for Scripted {
    type Item = Item;
    async fn page(&self, _: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        Ok(Some(page("1", "", &[])))
    }
    async fn changes(&self, params: &WatchParams, version: &str) -> kube::Result<Events> {
        assert_eq!(version, "1");
        self.asked.send(params.timeout).unwrap();
        self.watches.lock().unwrap().pop_front().unwrap_or_else(|| Ok(futures::stream::pending().boxed()))
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_missed_is_confirmed_by_a_short_watch() {
    let (asked, mut lasts) = mpsc::unbounded_channel();
    let ends = || {
        let end = async |()| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            None::<(kube::Result<WatchEvent<Box<RawValue>>>, ())>
        };
        Ok(futures::stream::unfold((), end).boxed())
    };
    let cut = || Ok(futures::stream::empty().boxed());
    let breaks = || Ok(futures::stream::iter([Err(kube::Error::LinesCodecMaxLineLengthExceeded)]).boxed());
    let holds = || Ok(futures::stream::pending().boxed());
    let watches = Mutex::new(VecDeque::from([breaks(), cut(), ends(), holds(), cut(), ends()]));
    let health = WatchHealth::new("tests");
    let source = Scripted { watches, asked };
    let (pace, metrics) = (Arc::default(), WatchMetrics::default());
    let following =
        Following { source, labels: "", page_size: 100, seconds: 30, health: health.clone(), pace, metrics };
    let following = tokio::spawn(follow(following, |_| {}, |_, _| {}));
    let mut asked = async || lasts.recv().await.flatten().unwrap();
    for confirming in [false, true, true, false] {
        let seconds = asked().await;
        assert!(if confirming { seconds == 1 } else { (24..=30).contains(&seconds) }, "{seconds}");
    }
    assert!(!health.is_doubted());
    let now = Instant::now();
    assert!(!health.is_confirmed(now));
    health.request_answer();
    assert_eq!(asked().await, 1, "the watch that was held is ended");
    assert_eq!(asked().await, 1, "one that is cut confirms nothing");
    assert!(health.is_doubted());
    assert!(asked().await >= 24);
    assert!(health.is_confirmed(now));
    following.abort();
}

/// Lists of three pages. The second page of the first list can't be read.
struct Paged {
    asked: Mutex<Vec<String>>,
    health: WatchHealth,
}

impl Source for Paged {
    type Item = Item;
    async fn page(&self, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        assert!(self.health.is_doubted(), "what changes during a list is not seen");
        let number = params.continue_token.clone().unwrap_or_else(|| "1".to_owned());
        let count = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(number.clone());
            asked.len()
        };
        if count == 2 {
            return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
        }
        let next = ["1", "2", "3"].iter().skip_while(|known| **known != number).nth(1).copied().unwrap_or_default();
        let items = ["a", "b"].map(|name| serde_json::json!({"metadata": {"name": format!("{name}{number}")}}));
        Ok(Some(page(&number, next, &items)))
    }
    async fn changes(&self, _: &WatchParams, _: &str) -> kube::Result<Events> {
        Ok(futures::stream::pending().boxed())
    }
}

/// Follows in the background; returns the changes.
fn followed<S: Source<Item = Item> + 'static>(
    source: S,
    health: &WatchHealth,
) -> (JoinHandle<()>, mpsc::UnboundedReceiver<String>) {
    let (pace, metrics, health) = (Arc::default(), WatchMetrics::default(), health.clone());
    let following = Following { source, labels: "", page_size: 8, seconds: 30, health, pace, metrics };
    let (seen, changes) = mpsc::unbounded_channel();
    let sink = move |change: WatchChange<Item>| seen.send(text(change)).unwrap();
    (tokio::spawn(follow(following, sink, |_, _| {})), changes)
}

async fn next(changes: &mut mpsc::UnboundedReceiver<String>, count: usize) -> String {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(changes.recv().await.unwrap());
    }
    all.join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_list_is_taken_page_by_page_and_anew_after_a_failure_or_when_asked_to() {
    let health = WatchHealth::new("tests");
    let source = Paged { asked: Mutex::default(), health: health.clone() };
    let (following, mut changes) = followed(source, &health);
    assert_eq!(next(&mut changes, 11).await, "[ a1 b1 [ a1 b1 a2 b2 a3 b3 ]");
    let listed = Instant::now();
    health.request_relist();
    assert_eq!(next(&mut changes, 8).await, "[ a1 b1 a2 b2 a3 b3 ]");
    tokio::task::yield_now().await;
    assert!(health.is_confirmed(listed) && !health.is_doubted(), "all is known again");
    following.abort();
}

/// Objects that can't be parsed, in a list and in the watch after it; answers for more than one object are too large.
struct Hostile;

fn hostile(name: &str) -> serde_json::Value {
    serde_json::json!({"metadata": {"name": name, "resourceVersion": "9", "creationTimestamp": "10000-01-01T00:00:00Z"}})
}

impl Source for Hostile {
    type Item = Item;
    async fn page(&self, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        if params.limit != Some(1) {
            return Ok(None);
        }
        let managed = serde_json::json!([{"time": "10000-01-01T00:00:00Z"}]);
        Ok(Some(match params.continue_token.as_deref() {
            None => page("1", "2", &[hostile("a")]),
            Some(_) => page("1", "", &[serde_json::json!({"metadata": {"name": "b", "managedFields": managed}})]),
        }))
    }
    async fn changes(&self, _: &WatchParams, version: &str) -> kube::Result<Events> {
        if version != "1" {
            return Ok(futures::stream::pending().boxed());
        }
        let good = serde_json::json!({"metadata": {"name": "e", "resourceVersion": "10"}});
        let all = [
            WatchEvent::Added(raw(&hostile("c"))),
            WatchEvent::Deleted(raw(&hostile("d"))),
            WatchEvent::Modified(raw(&good)),
        ];
        Ok(futures::stream::iter(all.map(Ok)).chain(futures::stream::pending()).boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_parsed_ends_no_list_and_no_watch() {
    let health = WatchHealth::new("tests");
    let (following, mut changes) = followed(Hostile, &health);
    assert_eq!(next(&mut changes, 7).await, "[ ?a b ] ?c ?d +e");
    assert!(!health.is_doubted() && !health.is_hopeless());
    following.abort();
}

/// Every answer is too large.
struct Huge(Mutex<Vec<Option<u32>>>, mpsc::UnboundedSender<Vec<Option<u32>>>);

impl Source for Huge {
    type Item = Item;
    async fn page(&self, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        let mut asked = self.0.lock().unwrap();
        asked.push(params.limit);
        if params.limit == Some(1) {
            self.1.send(std::mem::take(&mut asked)).unwrap();
        }
        Ok(None)
    }
    async fn changes(&self, _: &WatchParams, _: &str) -> kube::Result<Events> {
        unreachable!("there is no list")
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_too_large_for_a_page_ends_in_an_error_and_not_in_a_loop() {
    let (sent, mut lists) = mpsc::unbounded_channel();
    let health = WatchHealth::new("tests");
    let (following, _changes) = followed(Huge(Mutex::default(), sent), &health);
    for _ in 0..10 {
        assert_eq!(lists.recv().await.unwrap(), [Some(8), Some(2), Some(1)]);
    }
    assert!(health.is_doubted() && health.is_hopeless() && health.age().is_none());
    following.abort();
}

/// An API server that answers with this code, or with an empty list if the code is 0. Records the times of requests.
struct Forbidden {
    code: Arc<AtomicU16>,
    asked: mpsc::UnboundedSender<tokio::time::Instant>,
}

impl Source for Forbidden {
    type Item = Item;
    async fn page(&self, _: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        self.asked.send(tokio::time::Instant::now()).unwrap();
        match self.code.load(Ordering::Relaxed) {
            0 => Ok(Some(page("1", "", &[]))),
            code => Err(kube::Error::Api(Box::new(kube::core::Status { code, ..kube::core::Status::default() }))),
        }
    }
    async fn changes(&self, _: &WatchParams, _: &str) -> kube::Result<Events> {
        Ok(futures::stream::pending().boxed())
    }
}

/// Returns how often it is requested in an hour, the longest wait, and how long after the right is given it is read.
async fn refused_for_an_hour(code: u16) -> (usize, Duration, Duration) {
    let (asked, mut times) = mpsc::unbounded_channel();
    let (answers, health) = (Arc::new(AtomicU16::new(code)), WatchHealth::new("tests"));
    let (following, mut changes) = followed(Forbidden { code: Arc::clone(&answers), asked }, &health);
    tokio::time::sleep(Duration::from_hours(1)).await;
    let mut all = Vec::new();
    while let Ok(at) = times.try_recv() {
        all.push(at);
    }
    let longest = all.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert_eq!(health.is_forbidden(), code == 403);
    answers.store(0, Ordering::Relaxed);
    let given = tokio::time::Instant::now();
    while changes.recv().await.unwrap() != "]" {}
    let took = given.elapsed();
    tokio::task::yield_now().await;
    assert!(!health.is_forbidden() && !health.is_doubted());
    following.abort();
    (all.len(), longest, took)
}

#[tokio::test(start_paused = true)]
async fn where_a_right_is_missing_it_is_requested_every_ten_minutes() {
    let (asked, longest, took) = refused_for_an_hour(403).await;
    assert!((8..=40).contains(&asked), "{asked}");
    let most = Duration::from_mins(10);
    assert!(longest > Duration::from_mins(2) && longest <= most && took <= most, "{longest:?} {took:?}");
    // After failures that may pass by themselves, requests are more frequent.
    for code in [401, 404, 500] {
        let (_, longest, took) = refused_for_an_hour(code).await;
        let most = Duration::from_secs(31);
        assert!(longest <= most && took <= most, "{code}: {longest:?} {took:?}");
    }
}

/// An API server that starts refuses everything for some seconds, until it knows the roles.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_long_outage_is_not_taken_for_one_that_lasts() {
    let (asked, mut times) = mpsc::unbounded_channel();
    let (answers, health) = (Arc::new(AtomicU16::new(500)), WatchHealth::new("tests"));
    let (following, mut changes) = followed(Forbidden { code: Arc::clone(&answers), asked }, &health);
    tokio::time::sleep(Duration::from_mins(10)).await;
    while times.try_recv().is_ok() {}
    answers.store(403, Ordering::Relaxed);
    let refused = times.recv().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    answers.store(0, Ordering::Relaxed);
    while changes.recv().await.unwrap() != "]" {}
    let took = refused.elapsed();
    assert!(took <= Duration::from_secs(15), "{took:?}");
    following.abort();
}
