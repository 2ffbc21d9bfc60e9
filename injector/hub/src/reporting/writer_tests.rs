//! The times of writes, and the effect of failed writes on other writes.

use futures::future::BoxFuture;
use nudge_core::hub_health::waiting_reports::Waits;
use nudge_core::pods::ReportState;
use parking_lot::Mutex;

use super::*;
use crate::reporting::concurrency::MAX_LIMIT;

#[derive(Default)]
struct FakeWriter {
    written: Mutex<Vec<(String, Duration)>>,
    failures: Mutex<u32>,
    refuses: bool,
    started: Option<Instant>,
}

impl ConditionWriter for FakeWriter {
    fn write<'a>(&'a self, pod: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            let mut failures = self.failures.lock();
            if *failures > 0 {
                *failures -= 1;
                if self.refuses {
                    return Err(WriteError::Refused("403".into()));
                }
                return Err(WriteError::Unavailable("down".into()));
            }
            let elapsed = self.started.unwrap().elapsed();
            self.written.lock().push((pod.name.clone(), elapsed));
            Ok(())
        })
    }
}

fn pending(pod: impl Into<String>) -> PendingWrite {
    PendingWrite::new(&PodState { namespace: "ns".to_owned(), name: pod.into(), ..PodState::default() }, false)
}

fn condition() -> Report {
    Report { versions: Vec::new(), state: ReportState::Acknowledged, reasons: Vec::new(), at: None }
}

async fn run(queue: &WriteQueue, api: &Arc<FakeWriter>, seconds: u64) -> Vec<(String, u64)> {
    let writer: Arc<dyn ConditionWriter> = api.clone();
    let plan = |key: &PodKey| {
        let pod = PodState { name: key.name.clone(), ..PodState::default() };
        match key.name.as_str() {
            "same" => WritePlan::Nothing,
            "behind" if api.started.unwrap().elapsed() < Duration::from_secs(12) => WritePlan::Later,
            _ => WritePlan::Write(Arc::new(pod), condition()),
        }
    };
    let metrics = Metrics::default();
    let writing = write_all(queue, &writer, &metrics, plan);
    let _ = timeout(Duration::from_secs(seconds), writing).await;
    let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap();
    api.written.lock().iter().map(|(pod, at)| (pod.clone(), millis(at))).collect()
}

#[tokio::test(start_paused = true)]
async fn each_pod_is_written_once() {
    let (queue, writer) =
        (WriteQueue::default(), Arc::new(FakeWriter { started: Some(Instant::now()), ..FakeWriter::default() }));
    for _ in 0..3 {
        for pod in ["a", "b", "same", "c"] {
            queue.add(pending(pod), Duration::ZERO);
        }
    }
    queue.add(pending("late"), Duration::from_secs(2));
    let written = run(&queue, &writer, 10).await;
    let pods: Vec<&str> = written.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!(pods, ["a", "b", "c", "late"]);
    assert!((2000..2100).contains(&written[3].1), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_outlived_and_a_later_write_comes_at_its_own_time() {
    let writer = FakeWriter { started: Some(Instant::now()), failures: Mutex::new(3), ..FakeWriter::default() };
    let (queue, writer) = (WriteQueue::default(), Arc::new(writer));
    queue.add(pending("a"), Duration::from_mins(10));
    queue.add(pending("a"), Duration::ZERO);
    let written = run(&queue, &writer, 60).await;
    assert_eq!(written.len(), 1);
    assert!(written[0].1 >= 7000, "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_long_is_tried_again_and_so_is_what_cannot_be_judged() {
    for (refuses, failures, earliest) in [(true, 2, 15), (false, 12, 75)] {
        let started = Some(Instant::now());
        let writer = Arc::new(FakeWriter { started, failures: Mutex::new(failures), refuses, ..FakeWriter::default() });
        let queue = WriteQueue::default();
        queue.add(pending("a"), Duration::ZERO);
        let written = run(&queue, &writer, 600).await;
        assert_eq!(written.len(), 1);
        assert!(written[0].1 >= earliest * 1000, "{written:?}");
    }
    let (queue, writer) =
        (WriteQueue::default(), Arc::new(FakeWriter { started: Some(Instant::now()), ..FakeWriter::default() }));
    queue.add(pending("behind"), BEHIND_REPLICA_DELAY);
    let written = run(&queue, &writer, 60).await;
    assert_eq!(written.len(), 1);
    assert!((12_000..20_000).contains(&written[0].1), "{written:?}");
    let longest = |error| retry_delay(&error, u32::MAX).unwrap();
    assert!(longest(WriteError::Refused("403".into())) <= Duration::from_mins(2));
    assert_eq!(longest(WriteError::Unavailable("down".into())), Duration::from_secs(8));
    assert!(longest(WriteError::Changed) < Duration::from_secs(10));
    assert_eq!(retry_delay(&WriteError::Gone, 0), None);
}

/// An API server that refuses the conditions of pods of these names.
#[derive(Default)]
struct Refusing {
    names: Mutex<Vec<&'static str>>,
    tries: Mutex<Vec<(String, bool)>>,
}

impl Refusing {
    /// How often the pod was tried, and whether it was written.
    fn of(&self, pod: &str) -> (usize, bool) {
        let tries = self.tries.lock();
        let of = tries.iter().filter(|(name, _)| name == pod);
        (of.clone().count(), of.clone().any(|(_, written)| *written))
    }
}

impl ConditionWriter for Refusing {
    fn write<'a>(&'a self, pod: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            let refused = self.names.lock().iter().any(|name| *name == pod.name);
            self.tries.lock().push((pod.name.clone(), !refused));
            if refused { Err(WriteError::Refused("403".into())) } else { Ok(()) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_condition_is_tried_again_when_others_are_taken_or_a_failure_comes() {
    let refusing = Arc::new(Refusing { names: Mutex::new(vec!["a", "b", "c"]), ..Refusing::default() });
    let (queue, writer): (_, Arc<dyn ConditionWriter>) = (WriteQueue::default(), refusing.clone());
    let plan = |key: &PodKey| {
        let pod = PodState { namespace: key.namespace.clone(), name: key.name.clone(), ..PodState::default() };
        WritePlan::Write(Arc::new(pod), condition())
    };
    let metrics = Metrics::default();
    let writing = write_all(&queue, &writer, &metrics, plan);
    tokio::pin!(writing);
    for name in ["a", "b", "c"] {
        queue.add(pending(name), Duration::ZERO);
    }
    // Until the pauses are as long as they get.
    let _ = timeout(Duration::from_hours(1), &mut writing).await;
    let before = refusing.of("a").0;
    let _ = timeout(Duration::from_hours(1), &mut writing).await;
    assert!(refusing.of("a").0 - before >= 29, "it waits for 2 minutes at the most");
    // A failure is tried at once, and is not tried ever again.
    let before = refusing.of("b").0;
    for _ in 0..50 {
        queue.add(PendingWrite { urgent: true, ..pending("b") }, Duration::ZERO);
        let _ = timeout(Duration::from_millis(20), &mut writing).await;
    }
    assert!((1..=2).contains(&(refusing.of("b").0 - before)));
    // A write in another namespace proves nothing. A write in this namespace proves that the role is bound. Pod c is
    // refused all the same.
    *refusing.names.lock() = vec!["c"];
    let before = ["a", "b", "c"].map(|name| refusing.of(name).0);
    queue.add(PendingWrite { pod: PodKey::new("other", "x"), ..pending("") }, Duration::ZERO);
    let _ = timeout(Duration::from_millis(20), &mut writing).await;
    assert!(["a", "b", "c"].map(|name| refusing.of(name).0) == before && refusing.of("x").1);
    for _ in 0..50 {
        queue.add(pending("new"), Duration::ZERO);
        let _ = timeout(Duration::from_millis(20), &mut writing).await;
    }
    assert!(refusing.of("a").1 && refusing.of("b").1);
    assert!((1..=2).contains(&(refusing.of("c").0 - before[2])), "what others have says nothing of it any more");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_for_itself_stays_so_whatever_else_happens_to_it() {
    let (queue, metrics) = (WriteQueue::default(), Metrics::default());
    for (refusal, expected) in [(RefusalScope::Pod, RefusalScope::Pod), (RefusalScope::Namespace, RefusalScope::None)] {
        let refused = PendingWrite { failures: 3, refusal, ..pending("a") };
        finish(&queue, refused, Err(WriteError::Changed), &metrics);
        tokio::time::advance(CHANGED_POD_BACKOFF.longest).await;
        assert_eq!(queue.next().await.refusal, expected);
    }
}

/// An API server that takes a second for each write.
#[derive(Default)]
struct Slow {
    running: Mutex<Vec<String>>,
    most: Mutex<usize>,
    written: Mutex<Vec<String>>,
    conflicts: Mutex<u32>,
}

impl ConditionWriter for Slow {
    fn write<'a>(&'a self, pod: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            {
                let mut running = self.running.lock();
                assert!(!running.contains(&pod.name), "{} is written twice at once", pod.name);
                running.push(pod.name.clone());
                let mut most = self.most.lock();
                *most = running.len().max(*most);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.running.lock().retain(|name| *name != pod.name);
            let mut conflicts = self.conflicts.lock();
            if *conflicts > 0 {
                *conflicts -= 1;
                return Err(WriteError::Changed);
            }
            self.written.lock().push(pod.name.clone());
            Ok(())
        })
    }
}

/// Writes these pods, and the first one again while it is written.
async fn slowly(pods: usize, conflicts: u32, seconds: u64) -> (usize, Vec<String>) {
    let slow = Arc::new(Slow { conflicts: Mutex::new(conflicts), ..Slow::default() });
    let (queue, writer): (_, Arc<dyn ConditionWriter>) = (WriteQueue::default(), slow.clone());
    (0..pods).for_each(|number| queue.add(pending(format!("{number:03}")), Duration::ZERO));
    queue.add(pending("000"), Duration::ZERO);
    let again = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        queue.add(pending("000"), Duration::ZERO);
        std::future::pending::<()>().await;
    };
    let plan = |key: &PodKey| {
        let pod = PodState { name: key.name.clone(), ..PodState::default() };
        WritePlan::Write(Arc::new(pod), condition())
    };
    let metrics = Metrics::default();
    let writing = write_all(&queue, &writer, &metrics, plan);
    let _ = timeout(Duration::from_secs(seconds), futures::future::join(writing, again)).await;
    let (most, written) = (*slow.most.lock(), slow.written.lock().clone());
    (most, written)
}

#[tokio::test(start_paused = true)]
async fn ever_more_are_written_at_once_and_each_pod_once_at_a_time() {
    let (most, written) = slowly(79, 0, 8).await;
    assert!(written.len() == 80 && (16..=MAX_LIMIT).contains(&most), "{most} {}", written.len());
    assert_eq!(written.iter().filter(|name| *name == "000").count(), 2);
}

/// An API server that handles four writes at once, takes a second for each, and refuses further writes.
#[derive(Default)]
struct Busy {
    running: Mutex<usize>,
    counts: Mutex<(usize, usize)>,
}

impl ConditionWriter for Busy {
    fn write<'a>(&'a self, _: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            let refused = *self.running.lock() >= 4;
            if refused {
                self.counts.lock().1 += 1;
                return Err(WriteError::Unavailable("429".into()));
            }
            *self.running.lock() += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
            *self.running.lock() -= 1;
            self.counts.lock().0 += 1;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_with_too_much_to_do_is_asked_less_and_everything_is_written_in_the_end() {
    let busy = Arc::new(Busy::default());
    let (queue, writer): (_, Arc<dyn ConditionWriter>) = (WriteQueue::default(), busy.clone());
    (0..200).for_each(|number| queue.add(pending(format!("{number:03}")), Duration::ZERO));
    let plan = |_: &PodKey| WritePlan::Write(Arc::default(), condition());
    let metrics = Metrics::default();
    assert_eq!(queue.longest_waits(), Waits::default());
    let writing = write_all(&queue, &writer, &metrics, plan);
    tokio::pin!(writing);
    let _ = timeout(Duration::from_secs(10), &mut writing).await;
    let waited = queue.longest_waits().shared;
    assert!((9..11).contains(&waited.as_secs()), "those that were refused wait, too: {waited:?}");
    let _ = timeout(Duration::from_mins(2), &mut writing).await;
    let (written, refused) = *busy.counts.lock();
    assert!(written == 200 && refused < 300 && queue.longest_waits() == Waits::default(), "{written} {refused}");
}

/// An API server whose webhook for the pods of one namespace is down.
#[derive(Default)]
struct Webhook {
    hangs: Duration,
    tries: Mutex<usize>,
    written: Mutex<usize>,
}

impl ConditionWriter for Webhook {
    fn write<'a>(&'a self, pod: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            if pod.namespace == "bad" {
                *self.tries.lock() += 1;
                tokio::time::sleep(self.hangs).await;
                return Err(WriteError::Failed("500".into()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            *self.written.lock() += 1;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_writes_fail_slows_and_prolongs_nothing_of_others() {
    for hangs in [0, 9, 15].map(Duration::from_secs) {
        let webhook = Arc::new(Webhook { hangs, ..Webhook::default() });
        let (queue, writer): (_, Arc<dyn ConditionWriter>) = (WriteQueue::default(), webhook.clone());
        let plan = |key: &PodKey| {
            let pod = PodState { namespace: key.namespace.clone(), ..PodState::default() };
            WritePlan::Write(Arc::new(pod), condition())
        };
        let add = |namespace: &str, count: usize| {
            let of = |number: usize| PendingWrite { pod: PodKey::new(namespace, number.to_string()), ..pending("") };
            (0..count).for_each(|number| queue.add(of(number), Duration::ZERO));
        };
        let metrics = Metrics::default();
        let writing = write_all(&queue, &writer, &metrics, plan);
        tokio::pin!(writing);
        add("bad", 300);
        let _ = timeout(Duration::from_mins(1), &mut writing).await;
        let waits = queue.longest_waits();
        assert!(waits.failing[0].0 == "bad" && waits.failing[0].1 > Duration::from_secs(50), "{waits:?}");
        add("good", 500);
        let _ = timeout(Duration::from_secs(2), &mut writing).await;
        let (tries, written) = (*webhook.tries.lock(), *webhook.written.lock());
        assert!(written == 500 && tries < 50 && queue.longest_waits().shared.is_zero(), "{hangs:?} {written} {tries}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_reported_during_a_write_comes_first_after_it() {
    let slow = Arc::new(Slow::default());
    let (queue, writer): (_, Arc<dyn ConditionWriter>) = (WriteQueue::default(), slow.clone());
    let plan = |key: &PodKey| {
        let pod = PodState { name: key.name.clone(), ..PodState::default() };
        WritePlan::Write(Arc::new(pod), condition())
    };
    let metrics = Metrics::default();
    let writing = write_all(&queue, &writer, &metrics, plan);
    tokio::pin!(writing);
    queue.add(pending("a"), Duration::ZERO);
    let _ = timeout(Duration::from_millis(500), &mut writing).await;
    for urgent in [true, false] {
        queue.add(PendingWrite { urgent, ..pending("a") }, Duration::ZERO);
        let _ = timeout(Duration::from_millis(1), &mut writing).await;
    }
    (0..100).for_each(|number| queue.add(pending(format!("{number:03}")), Duration::ZERO));
    let _ = timeout(Duration::from_secs(2), &mut writing).await;
    assert_eq!(slow.written.lock().iter().filter(|name| *name == "a").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_changed_is_decided_again() {
    let (_, written) = slowly(1, 3, 20).await;
    assert!(!written.is_empty(), "it is written in the end");
}
