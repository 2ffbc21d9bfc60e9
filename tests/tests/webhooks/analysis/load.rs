//! Applications under load, and their metrics: requests that fail or not by the version that the pod runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

/// An application: the version that it serves, and the results of its requests.
#[derive(Default)]
struct Application {
    served: PathBuf,
    requests: u64,
    errors: u64,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Application>,
    /// The version with which every other request fails.
    bad: Option<String>,
    /// All fail, whatever they run.
    outage: bool,
    /// Requests that failed with the bad version, and the pods that had any.
    failed: BTreeMap<String, u64>,
}

/// The load on all applications, until it is dropped.
pub(crate) struct Load {
    state: Arc<Mutex<State>>,
    /// The address of their metrics, below the name of each pod.
    pub(crate) address: SocketAddr,
    tasks: [AbortHandle; 2],
}

impl Drop for Load {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Load {
    pub(crate) async fn start() -> Result<Self> {
        let state: Arc<Mutex<State>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let requests = tokio::spawn(load(Arc::clone(&state)));
        let metrics = tokio::spawn(serve(listener, Arc::clone(&state)));
        Ok(Self { state, address, tasks: [requests.abort_handle(), metrics.abort_handle()] })
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Adds an application that serves the version in this file.
    pub(crate) fn add(&self, pod: &str, served: PathBuf) {
        self.with(|state| state.pods.insert(pod.to_owned(), Application { served, ..Application::default() }));
    }

    pub(crate) fn bad(&self, version: Option<&str>) {
        self.with(|state| state.bad = version.map(str::to_owned));
    }

    pub(crate) fn outage(&self, all_fail: bool) {
        self.with(|state| state.outage = all_fail);
    }

    /// Returns how many requests failed by the bad version, and of how many pods.
    pub(crate) fn failed(&self) -> (u64, usize) {
        self.with(|state| (state.failed.values().sum(), state.failed.len()))
    }
}

/// Fifty requests a second for each application.
async fn load(state: Arc<Mutex<State>>) {
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let mut state = state.lock();
        let State { pods, bad, outage, failed } = &mut *state;
        for (name, pod) in pods {
            let version = std::fs::read_to_string(&pod.served).unwrap_or_default();
            let is_bad = bad.as_deref() == Some(version.trim());
            for number in 0..5 {
                pod.requests += 1;
                let fails = *outage || (is_bad && number % 2 == 0);
                pod.errors += u64::from(fails);
                if is_bad && fails {
                    *failed.entry(name.clone()).or_default() += 1;
                }
            }
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let mut request = vec![0; 4096];
            loop {
                let Ok(read @ 1..) = stream.read(&mut request).await else { return };
                let head = String::from_utf8_lossy(&request[..read]).into_owned();
                let pod = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
                let body = metrics(&state, &pod);
                let reply = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                if stream.write_all(reply.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

fn metrics(state: &Mutex<State>, pod: &str) -> String {
    let state = state.lock();
    let mut text = String::new();
    if let Some(pod) = state.pods.get(pod) {
        let _ = write!(
            text,
            "# TYPE requests_total counter\nrequests_total {}\n# TYPE errors_total counter\nerrors_total {}\n",
            pod.requests, pod.errors
        );
    }
    text
}
