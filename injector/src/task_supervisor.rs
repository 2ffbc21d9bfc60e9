//! Supervises the long-running tasks of `serve`, each with a name. When a task ends by itself, the process ends or the
//! task is restarted.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use nudge_cluster::jitter::with_jitter;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep};

/// The number of threads of a separate runtime.
const RUNTIME_THREADS: usize = 2;
/// The delays before a task is restarted. After a task has run for longer than the longest delay, they begin again with
/// the first.
const RESTART_BACKOFF: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(16) };

/// The end of a task that nothing had asked to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// The task of this name panicked.
    #[error("task {name:?} panicked, which is a bug")]
    Panicked { name: &'static str, source: JoinError },
    /// The task returned, although it must not.
    #[error("task {0:?} returned, which is a bug")]
    Returned(&'static str),
}

/// A stage of the shutdown, which ends certain tasks. Tasks without a stage are cancelled when all stages are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownStage {
    /// The first stage: tasks hand their work over to other replicas.
    HandOver,
    /// The second stage: the tasks that had to serve until the hand-over was complete end.
    Close,
}

/// A receiver that shows whether a stage of the shutdown has begun.
pub(crate) type Stopping = watch::Receiver<bool>;

/// Waits until the stage begins.
pub(crate) async fn wait_for_stop(mut stopping: Stopping) {
    let _ = stopping.wait_for(|has_begun| *has_begun).await;
}

#[derive(Debug)]
struct RunningTask {
    name: &'static str,
    stage: Option<ShutdownStage>,
}

/// The supervised tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    set: JoinSet<()>,
    running: HashMap<Id, RunningTask>,
    /// The separate runtimes.
    runtimes: Vec<Runtime>,
    /// The runtime for tasks that are started now, if it is not the caller's.
    runtime: Option<Handle>,
    hand_over: watch::Sender<bool>,
    close: watch::Sender<bool>,
}

impl Drop for Tasks {
    /// Shuts the runtimes down in the background: they may be dropped on another runtime, which must not wait for them.
    fn drop(&mut self) {
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}

impl Tasks {
    /// Begins a runtime whose threads have this name. All tasks that are started before [`Self::end_runtime`] run on
    /// it.
    pub(crate) fn begin_runtime(&mut self, name: &'static str) -> io::Result<Handle> {
        let runtime =
            Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).thread_name(name).enable_all().build()?;
        let handle = runtime.handle().clone();
        self.runtime = Some(handle.clone());
        self.runtimes.push(runtime);
        Ok(handle)
    }

    /// Makes further tasks run on the runtime of their caller.
    pub(crate) fn end_runtime(&mut self) {
        self.runtime = None;
    }

    /// Runs a task that is cancelled at the end of the shutdown.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name, None, task);
    }

    /// Runs a task that ends by itself when its stage of the shutdown begins.
    pub(crate) fn spawn_until<F>(&mut self, stage: ShutdownStage, name: &'static str, task: impl FnOnce(Stopping) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stage_task = task(self.stopping(stage));
        self.start(name, Some(stage), stage_task);
    }

    /// Runs a task, and restarts it whenever it ends. The replica is still of use without this task.
    pub(crate) fn spawn_restarted<F>(&mut self, name: &'static str, mut task: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let stopping = self.stopping(ShutdownStage::HandOver);
        self.spawn(name, async move {
            let mut failures = 0;
            loop {
                let began = Instant::now();
                let result = AssertUnwindSafe(async { task().await }).catch_unwind().await;
                // Tasks return when leadership is finally given up.
                if *stopping.borrow() {
                    return;
                }
                let error = match &result {
                    Ok(()) => "it returned",
                    Err(panic) => panic_message(&**panic).unwrap_or("it panicked"),
                };
                failures = if began.elapsed() > RESTART_BACKOFF.longest { 1 } else { failures + 1 };
                let delay = RESTART_BACKOFF.wait(failures);
                tracing::error!(task = name, error, pause = ?delay, "task ended unexpectedly; restarting it");
                sleep(with_jitter(delay)).await;
            }
        });
    }

    /// Returns a receiver that shows whether this stage of the shutdown has begun.
    pub(crate) fn stopping(&self, stage: ShutdownStage) -> Stopping {
        self.stage(stage).subscribe()
    }

    /// Waits for a signal, or for a task that ends by itself. Then ends all tasks in order, until `limit` is over or a
    /// second signal arrives.
    pub(crate) async fn run(mut self, mut signal: impl AsyncFnMut(), limit: Duration) -> Result<(), TaskError> {
        let result = tokio::select! {
            error = self.failure() => Err(error),
            () = signal() => Ok(()),
        };
        match &result {
            Ok(()) => tracing::info!("shutdown started"),
            Err(error) => tracing::error!(error = chain(error), "task ended unexpectedly; shutting down"),
        }
        tokio::select! {
            () = self.shut_down() => tracing::info!("shutdown completed"),
            () = sleep(limit) => tracing::warn!(tasks = ?self.unfinished(), ?limit, "tasks did not end in time; exiting"),
            () = signal() => tracing::warn!(tasks = ?self.unfinished(), "second signal received; exiting at once"),
        }
        result
    }

    async fn shut_down(&mut self) {
        for stage in [ShutdownStage::HandOver, ShutdownStage::Close] {
            self.stage(stage).send_replace(true);
            while self.running.values().any(|task| task.stage == Some(stage)) {
                if let Some((name, Err(error))) = self.join_next().await {
                    tracing::error!(task = name, error = chain(&error), "task panicked during shutdown");
                }
            }
        }
        self.set.shutdown().await;
    }

    async fn failure(&mut self) -> TaskError {
        match self.join_next().await {
            Some((name, Err(source))) => TaskError::Panicked { name, source },
            Some((name, Ok(()))) => TaskError::Returned(name),
            None => std::future::pending().await,
        }
    }

    async fn join_next(&mut self) -> Option<(&'static str, Result<(), JoinError>)> {
        let (id, result) = match self.set.join_next_with_id().await? {
            Ok((id, ())) => (id, Ok(())),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.running.remove(&id)?.name, result))
    }

    fn start(
        &mut self,
        name: &'static str,
        stage: Option<ShutdownStage>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = match &self.runtime {
            Some(runtime) => self.set.spawn_on(task, runtime).id(),
            None => self.set.spawn(task).id(),
        };
        self.running.insert(id, RunningTask { name, stage });
    }

    fn stage(&self, stage: ShutdownStage) -> &watch::Sender<bool> {
        match stage {
            ShutdownStage::HandOver => &self.hand_over,
            ShutdownStage::Close => &self.close,
        }
    }

    fn unfinished(&self) -> Vec<&'static str> {
        self.running.values().filter(|task| task.stage.is_some()).map(|task| task.name).collect()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;

    use super::*;

    const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

    fn tasks() -> Tasks {
        let mut tasks = Tasks::default();
        tasks.spawn("healthy", pending());
        tasks
    }

    /// Signals after these waits, and then never.
    fn signals(waits: &[u64]) -> impl AsyncFnMut() {
        let mut waits = waits.iter().copied().map(Duration::from_secs).collect::<Vec<_>>().into_iter();
        async move || match waits.next() {
            Some(wait) => sleep(wait).await,
            None => pending().await,
        }
    }

    #[tokio::test(start_paused = true)]
    #[allow(clippy::panic)] // what is tested
    async fn a_task_that_panics_ends_the_process_with_its_name_and_cause() {
        let mut tasks = tasks();
        tasks.spawn("doomed", async { panic!("no more {}", "luck") });
        let error = chain(&tasks.run(signals(&[]), SHUTDOWN_TIMEOUT).await.unwrap_err());
        assert!(error.starts_with("task \"doomed\" panicked") && error.contains("no more luck"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_returns_ends_the_process_after_the_others_have_handed_over() {
        let (mut tasks, handed_over) = (tasks(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&handed_over);
        tasks.spawn_until(ShutdownStage::HandOver, "hub", async move |stopping| {
            wait_for_stop(stopping).await;
            count.fetch_add(1, Ordering::Relaxed);
        });
        tasks.spawn("short", async {});
        let error = tasks.run(signals(&[]), SHUTDOWN_TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), "task \"short\" returned, which is a bug");
        assert_eq!(handed_over.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    #[allow(clippy::panic)] // what is tested
    async fn an_auxiliary_task_is_restarted_with_back_off_however_it_ends() {
        let (mut tasks, runs) = (tasks(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&runs);
        tasks.spawn_restarted("warnings", move || {
            let run = count.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run % 2 == 0, "an odd run") }
        });
        tasks.run(signals(&[6000]), SHUTDOWN_TIMEOUT).await.unwrap();
        // After 0, 1, 3, 7, 15, 31 and 63 min, give or take the jitter; the longest pause is 16 min.
        assert!((8..=11).contains(&runs.load(Ordering::Relaxed)), "{runs:?}");
    }

    /// A task that logs its end `seconds` after its stage of the shutdown began.
    fn slow(
        tasks: &mut Tasks,
        log: &Arc<Mutex<Vec<&'static str>>>,
        stage: ShutdownStage,
        name: &'static str,
        seconds: u64,
    ) {
        let log = Arc::clone(log);
        tasks.spawn_until(stage, name, async move |stopping| {
            wait_for_stop(stopping).await;
            sleep(Duration::from_secs(seconds)).await;
            log.lock().unwrap().push(name);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_the_tasks_in_order() {
        let (mut tasks, log, began) = (tasks(), Arc::default(), Instant::now());
        slow(&mut tasks, &log, ShutdownStage::Close, "admission", 1);
        slow(&mut tasks, &log, ShutdownStage::HandOver, "hub", 5);
        slow(&mut tasks, &log, ShutdownStage::HandOver, "lease", 2);
        tasks.run(signals(&[3]), SHUTDOWN_TIMEOUT).await.unwrap();
        assert_eq!(*log.lock().unwrap(), ["lease", "hub", "admission"]);
        assert_eq!(began.elapsed().as_secs(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_or_the_limit_ends_a_shutdown_that_takes_too_long() {
        for (waits, seconds) in [(&[3][..], 13), (&[3, 4], 7)] {
            let (mut tasks, log, began) = (tasks(), Arc::default(), Instant::now());
            slow(&mut tasks, &log, ShutdownStage::HandOver, "hub", 3600);
            tasks.run(signals(waits), SHUTDOWN_TIMEOUT).await.unwrap();
            assert!(log.lock().unwrap().is_empty());
            assert_eq!(began.elapsed().as_secs(), seconds);
        }
    }

    /// A part like the hub, next to controllers that keep all of their threads busy, like an observation that never
    /// ends.
    #[tokio::test]
    async fn what_blocks_the_runtime_of_the_controllers_does_not_delay_the_hub() {
        let mut tasks = Tasks::default();
        let (blocked, mut blocks) = mpsc::unbounded_channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let controllers = tasks.begin_runtime("controllers").unwrap();
        for _ in 0..RUNTIME_THREADS {
            let (blocked, released) = (blocked.clone(), Arc::clone(&released));
            tasks.spawn("controllers", async move {
                blocked.send(std::thread::current().name().unwrap_or_default().to_owned()).unwrap();
                // Until the test ends.
                let _ = released.lock().unwrap().recv();
                pending::<()>().await;
            });
        }
        tasks.end_runtime();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn("hub", async move {
            while let Ok((mut agent, _)) = listener.accept().await {
                let mut byte = [0];
                agent.read_exact(&mut byte).await.unwrap();
                agent.write_all(&byte).await.unwrap();
            }
        });
        for _ in 0..RUNTIME_THREADS {
            assert_eq!(blocks.recv().await.unwrap(), "controllers");
        }
        controllers.spawn(async move { blocked.send("not blocked".to_owned()).unwrap() });
        for byte in 0..100 {
            let mut agent = tokio::net::TcpStream::connect(address).await.unwrap();
            agent.write_all(&[byte]).await.unwrap();
            assert_eq!(agent.read_u8().await.unwrap(), byte);
        }
        assert!(blocks.try_recv().is_err(), "the controllers are blocked all the time");
        drop(release);
        assert_eq!(blocks.recv().await.unwrap(), "not blocked");
    }
}
