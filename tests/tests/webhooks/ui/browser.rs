//! Chromium without a window, driven by its DevTools protocol over two pipes: no port that others of the machine could
//! reach.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nudge_tests::{Cluster, Process, tools};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

use crate::ui::tab::Tab;

/// How long an answer may take, on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// Chromium runs without its own sandbox, which root can't have: it shows one page, of this project.
///
/// No tab has the focus, so each would be one in the background, which gets less of the processor than what it waits
/// for.
const FLAGS: [&str; 17] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en",
    "--force-color-profile=srgb",
];

/// What the reader of the pipe shares with those who ask.
#[derive(Default)]
struct Inbox {
    answers: HashMap<u64, oneshot::Sender<Value>>,
    /// What each tab complained of: errors of scripts, and what the content security policy forbade.
    complaints: HashMap<String, Vec<String>>,
}

/// A browser without a window.
pub(crate) struct Browser {
    to: Mutex<PipeWriter>,
    inbox: Arc<Mutex<Inbox>>,
    next: AtomicU64,
    _process: Process,
    _home: TempDir,
}

impl Browser {
    /// Returns the browser that the tests of this process share; `None` if there is none, and the test is to be
    /// skipped.
    pub(crate) async fn shared(cluster: &Cluster) -> Result<Option<&'static Self>> {
        static SHARED: OnceCell<Option<Browser>> = OnceCell::const_new();
        Ok(SHARED.get_or_try_init(async || Self::start(cluster)).await?.as_ref())
    }

    fn start(cluster: &Cluster) -> Result<Option<Self>> {
        let Some(program) = tools::find("chromium")? else { return Ok(None) };
        let home = tempfile::tempdir()?;
        let (commands, to) = std::io::pipe()?;
        let (from, answers) = std::io::pipe()?;
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#]).arg(program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", home.path().display())).arg("about:blank");
        command.env("HOME", home.path()).stdin(commands).stdout(answers).stderr(Stdio::null());
        // It is shared, so nobody drops it.
        cluster.guard(&mut command);
        let process = Process::spawn("chromium", &mut command)?;
        // Its ends of the pipes are held by the command until then.
        drop(command);
        let inbox = Arc::<Mutex<Inbox>>::default();
        let shared = Arc::clone(&inbox);
        std::thread::spawn(move || read(from, &shared));
        let next = AtomicU64::new(1);
        Ok(Some(Self { to: Mutex::new(to), inbox, next, _process: process, _home: home }))
    }

    /// Returns a tab that shares nothing with others.
    pub(crate) async fn tab(&'static self) -> Result<Tab> {
        let context = self.call(None, "Target.createBrowserContext", json!({})).await?;
        self.tab_in(context["browserContextId"].as_str().context("no context")?).await
    }

    /// Returns another tab of the same profile.
    pub(crate) async fn tab_in(&'static self, context: &str) -> Result<Tab> {
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = self.call(None, "Target.createTarget", target).await?["targetId"].clone();
        let attached = json!({"targetId": target, "flatten": true});
        let attached = self.call(None, "Target.attachToTarget", attached).await?;
        let session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            self.call(Some(&session), &format!("{domain}.enable"), json!({})).await?;
        }
        Ok(Tab { browser: self, session, context: context.to_owned() })
    }

    /// Asks something of the browser, or of a tab.
    pub(crate) async fn call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.inbox.lock().answers.insert(id, answer);
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.to.lock().write_all(format!("{message}\0").as_bytes())?;
        let answer = timeout(ANSWER_TIMEOUT, answered).await.with_context(|| format!("{method} has no answer"))?;
        let mut answer = answer.with_context(|| format!("chromium ended before it answered {method}"))?;
        if let Some(error) = answer.get("error") {
            bail!("{method}: {error}");
        }
        Ok(answer["result"].take())
    }

    /// Returns what a tab complained of so far.
    pub(crate) fn complaints(&self, session: &str) -> Vec<String> {
        let inbox = self.inbox.lock();
        inbox.complaints.get(session).cloned().unwrap_or_default()
    }
}

/// Reads messages until the browser ends.
fn read(from: PipeReader, inbox: &Mutex<Inbox>) {
    for message in BufReader::new(from).split(0) {
        let Ok(message) = message else { break };
        let Ok(message) = serde_json::from_slice::<Value>(&message) else { continue };
        let mut inbox = inbox.lock();
        if let Some(waiting) = message["id"].as_u64().and_then(|id| inbox.answers.remove(&id)) {
            // Who asked may have given up.
            let _ = waiting.send(message);
        } else if let Some(text) = complaint(&message) {
            let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
            inbox.complaints.entry(session).or_default().push(text);
        }
    }
    // Nobody waits any longer.
    inbox.lock().answers.clear();
}

fn complaint(message: &Value) -> Option<String> {
    let params = &message["params"];
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
        _ => None,
    }
}
