//! What the audit trail has of a pod.

use std::io;

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// What this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this text.
    fn lines(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(" audit: ") && line.contains(text)).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_again_over_and_over_has_one_line_in_ten_seconds_and_another_pod_its_own() {
    let fixture = Fixture::with_one();
    let (log, _guard) = Log::start();
    // Each as over a new connection.
    for _ in 0..1000 {
        fixture.head(PollRequest::default()).await;
    }
    assert_eq!(log.lines("version delivered").len(), 1);
    let other = PodState { name: "other".to_owned(), ..pod("v", &["shop"]) };
    fixture.index.put_pod(other.clone());
    let elsewhere = Session { address: [10, 0, 0, 2].into(), ..session("u") };
    for session in [session_of(&other), elsewhere] {
        fixture.hub.poll_result(&session, PollRequest::default(), &mut Talk::default()).await;
    }
    assert_eq!(log.lines("version delivered").len(), 3);
    tokio::time::advance(Duration::from_secs(11)).await;
    fixture.head(PollRequest::default()).await;
    assert!(log.lines("version delivered")[3].contains("left_out=999"));
}

#[tokio::test(start_paused = true)]
async fn each_config_that_is_withheld_has_a_line() {
    let mut fixture = Fixture::with_one();
    let one = fixture.stored.add("1", b"x");
    fixture.put("other", 1, Some(&one));
    fixture.index.put_pod(pod("u", &["shop", "other"]));
    fixture.admit("shop", &["worker"]);
    fixture.admit("other", &["worker"]);
    let (log, _guard) = Log::start();
    for _ in 0..10 {
        fixture.head(PollRequest::default()).await;
    }
    let lines = log.lines("config withheld");
    assert!(
        lines.len() == 2 && lines[0].contains("config=\"shop\"") && lines[1].contains("config=\"other\""),
        "{lines:?}"
    );
}
