//! Whatever bytes a client sends, the endpoint answers in HTTP or not at all, and reveals nothing to a client that
//! lacks the token or is not in the pod. TLS is left out; the rest of the way is the real one, with the same bounds.
#![cfg_attr(fuzzing, no_main)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use libfuzzer_sys::fuzz_target;
use nudge_agent::content::{Dictionary, EtagKey, Value, VersionContent};
use nudge_agent::identity::Token;
use nudge_agent::metrics::Metrics;
use nudge_agent::notify::{TargetPolicy, Webhooks};
use nudge_agent::publish::{Current, Publisher, publish};
use nudge_agent::serve::{App, Connections, Limits, RequestOrigin};
use nudge_agent::status::StatusPage;
use nudge_protocol::{ConfigName, Key, VersionName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::runtime::Runtime;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
const TOKEN: &str = "bnVkZ2UgZnV6eiB0b2tlbiBvZiAzMiBieXRlcyEhISE=";
/// Stands in a value, in a key, and in the names of the config and of its version, and so in every reply that reveals
/// one of them.
const SECRET: &str = "only-for-the-pod";
/// More than all replies to one input can have.
const PIPE_BYTES: usize = 16 << 20;

struct Endpoint {
    runtime: Runtime,
    app: Arc<App>,
    connections: Connections,
    /// Kept, because without it nothing new could come and requests would not wait.
    _publisher: Publisher,
}

thread_local!(static ENDPOINT: RefCell<Endpoint> = RefCell::new(Endpoint::new()));

fuzz_target!(|bytes: &[u8]| {
    ENDPOINT.with_borrow(|endpoint| {
        for (origin, hangs_up) in [(RequestOrigin::Pod, false), (RequestOrigin::Foreign, false), (RequestOrigin::Pod, true)] {
            let reply = endpoint.exchange(bytes, origin, hangs_up);
            assert!(reply.is_empty() || reply.starts_with(b"HTTP/1."), "{}", reply.escape_ascii());
            assert!(!holds(&reply, TOKEN), "the token is never sent");
            if origin == RequestOrigin::Foreign || !holds(bytes, TOKEN) {
                assert!(!holds(&reply, SECRET), "{}", reply.escape_ascii());
            }
        }
        assert_eq!(endpoint.connections.count(), 0, "the slot is free again");
    });
});

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

impl Endpoint {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let token = Token::parse(TOKEN).unwrap();
        let etags = EtagKey::new(&token.secret());
        let (publisher, current) = tokio::sync::watch::channel(None);
        publish(&publisher, Arc::new(dictionary(&etags)), time::OffsetDateTime::UNIX_EPOCH);
        let status = StatusPage::new("dir", Vec::new(), Instant::now());
        let metrics = Metrics::default();
        let hooks = hooks(&token, &current, &status, &metrics);
        let limits = Arc::new(Limits::default());
        let connections = Connections::new(&limits, metrics.connections());
        let candidate = tokio::sync::watch::channel(None).1;
        let app = App { limits, token, etags, ready: current.clone(), current, candidate, status, hooks, metrics };
        Self { runtime, app: Arc::new(app), connections, _publisher: publisher }
    }

    /// Sends `bytes` and hears out what is said to them, whether the client says at once that no more will come or
    /// stays silent until it is cut off.
    fn exchange(&self, bytes: &[u8], origin: RequestOrigin, hangs_up: bool) -> Vec<u8> {
        self.runtime.block_on(async {
            let slot = self.connections.slots(origin).take(PEER, Instant::now()).unwrap();
            slot.mark_established();
            let connection = self.connections.connection(slot);
            let (mut client, server) = duplex(PIPE_BYTES);
            client.write_all(bytes).await.unwrap();
            if hangs_up {
                client.shutdown().await.unwrap();
            }
            let answer = |request| {
                let answer = Arc::clone(&self.app).answer(connection.clone(), request);
                async move { Ok::<_, Infallible>(answer.await) }
            };
            let conversation = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.app.limits.head)
                .max_header_size(self.app.limits.head_bytes)
                .max_buf_size(16 * 1024)
                .serve_connection(TokioIo::new(server), service_fn(answer));
            // The clock of this runtime runs only while all wait, so this is no time to spend.
            let ended = tokio::time::timeout(Duration::from_hours(1), conversation).await;
            assert!(ended.is_ok(), "every wait has its bound");
            let mut reply = Vec::new();
            client.read_to_end(&mut reply).await.unwrap();
            for hook in self.app.hooks.list("") {
                self.app.hooks.remove(&hook.id);
            }
            reply
        })
    }
}

fn dictionary(etags: &EtagKey) -> Dictionary {
    let key = |text: &str| Key::new(text).unwrap();
    let value = |bytes: &[u8]| Value::from(bytes);
    let values = BTreeMap::from([
        (key(SECRET), value(b"1")),
        (key("k"), value(SECRET.as_bytes())),
        (key("binary"), value(&[0xff, 0])),
        (key("escaped"), value(b"\"\\\n")),
    ]);
    let (config, version) = (ConfigName::new(SECRET).unwrap(), VersionName::new(SECRET).unwrap());
    Dictionary::merge(&[Arc::new(VersionContent::new(config, version, values))], etags).unwrap()
}

fn hooks(token: &Token, current: &Current, status: &StatusPage, metrics: &Metrics) -> Webhooks {
    Webhooks::new(4, token.secret(), TargetPolicy::default(), current.clone(), status.clone(), metrics.clone())
}
