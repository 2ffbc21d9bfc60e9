//! The supervisor of tasks, one for each object of a kind. A panic ends the work for one object only, and its task
//! begins again later.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use kube::runtime::watcher::Event;
use nudge_protocol::backoff::Backoff;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::panics::{catch_panic, propagate};

/// The waits after panics of one task in a row.
const RESTART_BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(10) };

/// The tasks by the keys of their objects. Each task has an identity `I`, and receives a value `V`.
pub struct Supervisor<I, V> {
    /// The text before the key in the name of a task, for the log.
    prefix: String,
    by_key: BTreeMap<String, Supervised<I, V>>,
    /// The keys of the list that is under way.
    listed: BTreeSet<String>,
    tasks: JoinSet<()>,
}

/// The task of one object, which ends when this is dropped.
struct Supervised<I, V> {
    identity: I,
    sender: Sender<V>,
    task: AbortHandle,
}

impl<I, V> Drop for Supervised<I, V> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<I: PartialEq, V: Send + Sync + 'static> Supervisor<I, V> {
    /// Returns a supervisor without tasks. `prefix` stands before the key in the name of a task, for the log.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), by_key: BTreeMap::new(), listed: BTreeSet::new(), tasks: JoinSet::new() }
    }

    /// Takes in an event of a watch. Ends the tasks of objects that are gone, and returns an object that exists.
    pub fn observe<O>(&mut self, event: Event<O>, key: impl Fn(&O) -> String) -> Option<O> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(key(&object));
                return Some(object);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.retain(&listed);
            }
            Event::Apply(object) => return Some(object),
            Event::Delete(object) => drop(self.by_key.remove(&key(&object))),
        }
        None
    }

    /// Notes that the watch failed, so that a list under way begins again.
    pub fn note_interruption(&mut self) {
        self.listed.clear();
    }

    /// Ends the tasks of all other objects.
    pub fn retain(&mut self, keys: &BTreeSet<String>) {
        self.by_key.retain(|key, _| keys.contains(key));
    }

    /// Notifies the task of an object of a change. Returns false if no task has this identity.
    pub fn update(&self, key: &str, identity: &I, change: impl FnOnce(&mut V)) -> bool {
        let same_identity = self.by_key.get(key).filter(|supervised| supervised.identity == *identity);
        same_identity.is_some_and(|supervised| {
            supervised.sender.send_modify(change);
            true
        })
    }

    /// Begins the task of an object, in place of its previous task. `begin` gets the number of panics in a row. After a
    /// panic, `report` reports it to users, and ends when the task may begin again.
    pub fn start<T, R>(
        &mut self,
        key: String,
        identity: I,
        value: V,
        mut begin: impl FnMut(Receiver<V>, u32) -> T + Send + 'static,
        mut report: impl FnMut(Receiver<V>, Duration) -> R + Send + 'static,
    ) where
        T: Future<Output = ()> + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (name, (sender, receiver)) = (format!("{}{key}", self.prefix), channel(value));
        let task = self.tasks.spawn(async move {
            let begin = |panics| begin(receiver.clone(), panics);
            run_isolated(&name, begin, |wait| report(receiver.clone(), wait)).await;
        });
        self.by_key.insert(key, Supervised { identity, sender, task });
    }

    /// Returns the sender of each task's value, by key.
    pub fn senders(&self) -> impl Iterator<Item = &Sender<V>> {
        self.by_key.values().map(|supervised| &supervised.sender)
    }

    /// Removes tasks that end, for ever.
    pub async fn reap(&mut self) -> Infallible {
        while let Some(result) = self.tasks.join_next().await {
            propagate(result);
        }
        pending().await
    }
}

/// Runs a task until it ends by itself. After a panic the task begins again, later each time.
async fn run_isolated<T: Future<Output = ()>, R: Future<Output = ()>>(
    name: &str,
    mut begin: impl FnMut(u32) -> T,
    mut report: impl FnMut(Duration) -> R,
) {
    let mut panics = 0_u32;
    loop {
        let began = Instant::now();
        if catch_panic(async { begin(panics).await }).await.is_some() {
            return;
        }
        panics = if began.elapsed() > RESTART_BACKOFF.longest { 1 } else { panics.saturating_add(1) };
        let wait = RESTART_BACKOFF.jittered_wait(panics, rand::random());
        tracing::error!(task = name, panics, pause = ?wait, "task panicked; restarting it alone");
        if catch_panic(async { report(wait).await }).await.is_none() {
            sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_anew_later_and_later() {
        let (began, attempts, rests) = (Instant::now(), Mutex::new(Vec::new()), Mutex::new(0));
        let begin = |panics: u32| {
            attempts.lock().push(began.elapsed());
            async move { assert!(panics == 5, "planted") }
        };
        let rest = |pause| {
            *rests.lock() += 1;
            let planted = *rests.lock() == 2;
            async move {
                assert!(!planted, "planted");
                sleep(pause).await;
            }
        };
        run_isolated("task", begin, rest).await;
        let attempts = attempts.lock().clone();
        let waits: Vec<_> = attempts.windows(2).map(|two| two[1].saturating_sub(two[0]).as_secs_f64()).collect();
        let bounds = [(2.5, 5.0), (5.0, 10.0), (10.0, 20.0), (20.0, 40.0), (40.0, 80.0)];
        assert!(
            waits.iter().zip(bounds).all(|(wait, (least, most))| (least..=most + 0.01).contains(wait)),
            "{waits:?}"
        );
        assert_eq!((waits.len(), *rests.lock()), (5, 5));
    }

    /// Tasks that log every value, and panic at `0`.
    #[derive(Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Log {
        fn put(&self, supervisor: &mut Supervisor<&'static str, u32>, key: &str, uid: &'static str, value: u32) {
            if supervisor.update(key, &uid, |known| *known = value) {
                return;
            }
            let (begun, rested) = (Arc::clone(&self.0), Arc::clone(&self.0));
            let (name, other) = (format!("{key} {uid}"), format!("{key} {uid}"));
            let begin = move |mut receiver: Receiver<u32>, _| {
                let (log, name) = (Arc::clone(&begun), name.clone());
                async move {
                    loop {
                        let value = *receiver.borrow_and_update();
                        assert!(value != 0, "planted");
                        log.lock().push(format!("{name} {value}"));
                        if receiver.changed().await.is_err() {
                            return;
                        }
                    }
                }
            };
            let rest = move |_, pause| {
                rested.lock().push(format!("{other} rests"));
                sleep(pause)
            };
            supervisor.start(key.to_owned(), uid, value, begin, rest);
        }

        /// Waits for the given number of seconds, and returns what was logged meanwhile.
        async fn after(&self, supervisor: &mut Supervisor<&'static str, u32>, seconds: u64) -> Vec<String> {
            tokio::select! {
                never = supervisor.reap() => match never {},
                () = sleep(Duration::from_secs(seconds)) => {}
            }
            let mut log = std::mem::take(&mut *self.0.lock());
            log.sort();
            log
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_work_for_one_object_alone() {
        let (log, mut supervisor) = (Log::default(), Supervisor::new("object "));
        log.put(&mut supervisor, "a", "1", 0);
        log.put(&mut supervisor, "b", "1", 7);
        assert_eq!(log.after(&mut supervisor, 1).await, ["a 1 rests", "b 1 7"]);
        log.put(&mut supervisor, "a", "1", 8);
        log.put(&mut supervisor, "b", "1", 9);
        assert_eq!(log.after(&mut supervisor, 10).await, ["a 1 8", "b 1 9"]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_identity_gets_another_task() {
        let (log, mut supervisor) = (Log::default(), Supervisor::new("object "));
        log.put(&mut supervisor, "a", "1", 0);
        assert_eq!(log.after(&mut supervisor, 1).await, ["a 1 rests"]);
        // Not even the panics of the task before count for it.
        log.put(&mut supervisor, "a", "2", 3);
        assert_eq!(log.after(&mut supervisor, 60).await, ["a 2 3"]);
        assert_eq!((supervisor.by_key.len(), supervisor.tasks.len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_of_an_object_that_is_gone_ends() {
        let (log, mut supervisor) = (Log::default(), Supervisor::new("object "));
        let key = |object: &&str| (*object).to_owned();
        let apply = |supervisor: &mut Supervisor<_, _>, event| {
            if let Some(object) = supervisor.observe(event, key) {
                log.put(supervisor, object, "1", 1);
            }
        };
        for name in ["a", "b", "c"] {
            apply(&mut supervisor, Event::Apply(name));
        }
        assert_eq!(log.after(&mut supervisor, 1).await, ["a 1 1", "b 1 1", "c 1 1"]);
        apply(&mut supervisor, Event::Delete("a"));
        log.after(&mut supervisor, 1).await;
        assert_eq!((supervisor.senders().count(), supervisor.tasks.len()), (2, 2));
        // A list that fails is not the end of those that were not in it yet, and no part of the next.
        apply(&mut supervisor, Event::InitApply("b"));
        supervisor.note_interruption();
        apply(&mut supervisor, Event::InitApply("c"));
        apply(&mut supervisor, Event::InitDone);
        log.after(&mut supervisor, 1).await;
        assert_eq!(supervisor.by_key.keys().collect::<Vec<_>>(), ["c"]);
        assert_eq!(supervisor.tasks.len(), 1);
    }
}
