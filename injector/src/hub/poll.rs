//! A poll: held until something differs from what the agent has, this replica ends, or the time is over.

use std::time::Duration;

use nudge_protocol::hub::{MAX_WAIT_SECONDS, PollRequest};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Hub;
use super::compose::{Verdict, compose, fingerprint, verdict};
use super::metrics::PollResult;
use super::reply::{Refusal, Reply};
use super::review::Caller;
use super::view::{View, Views, views};
use crate::world::{PodEntry, PodKey, PodState};

/// The longest pause before the same reply is sent over one connection again.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The last reply over a connection: an agent that gets it, asks again and gets the same does not take it.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    last: Option<(u64, Instant)>,
    count: u32,
}

impl Repeats {
    /// When a reply may be sent; `None` is now.
    fn not_before(&self, fingerprint: u64) -> Option<Instant> {
        let (_, at) = self.last.filter(|(last, _)| *last == fingerprint)?;
        let pause = Duration::from_secs(1) * 2_u32.saturating_pow(self.count.min(10));
        Some(at + pause.min(LONGEST_PAUSE))
    }

    fn sent(&mut self, fingerprint: u64) {
        let same = self.last.is_some_and(|(last, _)| last == fingerprint);
        self.count = if same { self.count + 1 } else { 0 };
        self.last = Some((fingerprint, Instant::now()));
    }
}

enum Woken {
    Changed,
    Time,
    Superseded,
    Draining,
}

impl Hub {
    pub(super) async fn poll(&self, caller: &Caller, request: PollRequest, repeats: &mut Repeats) -> Reply {
        let (reply, result) = self.poll_result(caller, request, repeats).await;
        self.metrics.polled(result);
        reply
    }

    async fn poll_result(&self, caller: &Caller, request: PollRequest, repeats: &mut Repeats) -> (Reply, PollResult) {
        let started = Instant::now();
        let wait = Duration::from_secs(request.wait_seconds.min(MAX_WAIT_SECONDS).into());
        let (deadline, behind) = (started + wait, started + self.settings.behind);
        let entry = match self.pod(caller).await {
            Ok(entry) => entry,
            Err(refusal) => return refused(refusal),
        };
        let mut woken = entry.woken();
        drop(entry);
        let seat = self.seats.take(&caller.uid);
        let _held = self.metrics.held();
        let mut woken_at = None;
        loop {
            woken.borrow_and_update();
            let pod = match self.pod_now(caller) {
                Ok(Some(entry)) => entry.state,
                Ok(None) => return refused(GONE),
                Err(refusal) => return refused(refusal),
            };
            let until = {
                let Views { all, fetching, again } = views(&self.world, &self.contents, &pod);
                if let Some(mut landed) = fetching
                    && started.elapsed() < self.settings.resolve
                {
                    // Worth more than to answer that it is worth waiting for.
                    tokio::select! {
                        _ = timeout_at(started + self.settings.resolve, landed.changed()) => {}
                        _ = woken.changed() => {}
                        () = seat.lost() => return (Reply::nothing(), PollResult::Superseded),
                        () = self.sent_away() => return (Reply::draining(), PollResult::Draining),
                    }
                    continue;
                }
                let now = Instant::now();
                let stale = self.is_stale();
                match verdict(&all, &request, &pod.containers_hash, stale) {
                    Verdict::Hold if now >= deadline => return (Reply::nothing(), PollResult::Unchanged),
                    // Another replica may know better than one whose watches are silent. Where none does, this is what it costs.
                    Verdict::Hold if stale && now >= started + self.settings.stale => {
                        let refusal =
                            Refusal::Unavailable("this replica of the hub has heard nothing from the API server");
                        return (refusal.into(), PollResult::Behind);
                    }
                    Verdict::Hold => {
                        self.mend_condition(&pod);
                        let look = now + self.settings.stale;
                        again.map_or(deadline, |again| again.min(deadline)).min(look)
                    }
                    Verdict::Behind if now >= behind => {
                        let refusal = Refusal::Unavailable("this replica of the hub knows less than the agent");
                        return (refusal.into(), PollResult::Behind);
                    }
                    Verdict::Doubt if now < behind => behind,
                    Verdict::Behind => behind,
                    Verdict::Answer | Verdict::Doubt => {
                        let print = fingerprint(&all, &pod.containers_hash);
                        match repeats.not_before(print).filter(|time| *time > now) {
                            Some(_) if now >= deadline => return (Reply::nothing(), PollResult::Unchanged),
                            Some(time) => time.min(deadline),
                            None => {
                                if let Some(at) = woken_at {
                                    self.metrics.answered_after(now.duration_since(at).as_secs_f64());
                                }
                                repeats.sent(print);
                                return self.deliver(&pod, &all, &request);
                            }
                        }
                    }
                }
            };
            drop(pod);
            let why = tokio::select! {
                // It fails when the pod is gone, which is seen above.
                _ = woken.changed() => Woken::Changed,
                () = sleep_until(until) => Woken::Time,
                () = seat.lost() => Woken::Superseded,
                () = self.sent_away() => Woken::Draining,
            };
            match why {
                Woken::Changed => woken_at = Some(Instant::now()),
                Woken::Time => woken_at = None,
                Woken::Superseded => return (Reply::nothing(), PollResult::Superseded),
                Woken::Draining => return (Reply::draining(), PollResult::Draining),
            }
        }
    }

    fn deliver(&self, pod: &PodState, views: &[View], request: &PollRequest) -> (Reply, PollResult) {
        match compose(views, request, pod, self.settings.agents) {
            Ok(composed) => {
                for view in composed.blocks.iter().filter_map(|&index| views.get(index)) {
                    self.metrics.block_sent();
                    audit(pod, view);
                }
                (Reply::poll(composed.body), PollResult::Changed)
            }
            Err(error) => {
                tracing::error!(%error, namespace = pod.namespace, pod = pod.name, "a reply can't be made");
                (Refusal::Internal.into(), PollResult::Refused)
            }
        }
    }

    /// The pod of `caller`, which must exist: a review says so. Waits for a pod that is new here.
    pub(super) async fn pod(&self, caller: &Caller) -> Result<PodEntry, Refusal> {
        let until = Instant::now() + self.settings.behind;
        let mut added = self.world.pod_added();
        loop {
            added.borrow_and_update();
            if let Some(entry) = self.pod_now(caller)? {
                return Ok(entry);
            }
            if self.gone.contains(&caller.uid) {
                return Err(GONE);
            }
            if timeout_at(until, added.changed()).await.is_err() {
                // The next request is reviewed anew, in case there is another pod of this name by now.
                self.identities.forget(&caller.uid);
                return Err(Refusal::Unavailable("this replica of the hub does not know the pod yet"));
            }
        }
    }

    fn pod_now(&self, caller: &Caller) -> Result<Option<PodEntry>, Refusal> {
        if !self.world.is_enabled(&caller.namespace) {
            return Err(Refusal::NotEnabled(caller.namespace.clone()));
        }
        let entry = self.world.pod(&PodKey::new(caller.namespace.clone(), caller.name.clone()));
        match entry.filter(|entry| entry.state.uid == caller.uid) {
            Some(entry) if entry.state.finished => Err(Refusal::Unauthorized("the pod has finished")),
            entry => Ok(entry),
        }
    }
}

const GONE: Refusal = Refusal::Unauthorized("the pod is gone");

fn refused(refusal: Refusal) -> (Reply, PollResult) {
    let result = match refusal {
        Refusal::Unavailable(_) => PollResult::Unavailable,
        _ => PollResult::Refused,
    };
    (refusal.into(), result)
}

/// One line for each delivery of Secrets: who got what, never a value.
fn audit(pod: &PodState, view: &View) {
    let Some(content) = view.content.as_ref().ok().filter(|content| !content.secrets.is_empty()) else { return };
    tracing::info!(
        target: "audit",
        namespace = pod.namespace,
        pod = pod.name,
        pod_uid = pod.uid,
        config = view.name.as_str(),
        version = view.version.as_ref().map(nudge_protocol::VersionName::as_str),
        parts = content.secrets.join(","),
        "Secret parts delivered"
    );
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use hyper::StatusCode;
    use nudge_protocol::ConfigName;
    use nudge_protocol::hub::{Held, PollHead};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::api::{VersionStatus, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus};
    use crate::hub::content::tests::hmac_key;
    use crate::hub::contents::tests::Stored;
    use crate::hub::{Cluster, Condition, ConditionWriter, ReviewError, Reviewer, Settings, WriteError};
    use crate::world::World;

    struct Anyone;

    impl Reviewer for Anyone {
        fn review<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
            Box::pin(async move { Ok(caller(uid)) })
        }
    }

    struct Nobody;

    impl ConditionWriter for Nobody {
        fn write<'a>(&'a self, _: &'a PodState, _: &'a Condition) -> BoxFuture<'a, Result<(), WriteError>> {
            Box::pin(async { Ok(()) })
        }
    }

    fn caller(uid: &str) -> Caller {
        Caller { namespace: "ns".to_owned(), name: "web".to_owned(), uid: uid.to_owned() }
    }

    struct Scene {
        world: Arc<World>,
        stored: Arc<Stored>,
        hub: Arc<Hub>,
        writes: u64,
    }

    impl Scene {
        fn new() -> Self {
            let (world, stored) = (Arc::new(World::default()), Arc::new(Stored::default()));
            world.set_enabled(["ns".to_owned()].into());
            world.put_pod(pod("u", &["shop"]));
            let cluster =
                Cluster { reviewer: Arc::new(Anyone), parts: Arc::clone(&stored) as _, conditions: Arc::new(Nobody) };
            let registry = &mut Registry::default();
            let hub = Hub::new(Arc::clone(&world), cluster, Settings::default(), Arc::new(hmac_key()), registry);
            Self { world, stored, hub, writes: 0 }
        }

        fn put(&mut self, name: &str, revision: u64, current: Option<&VersionStatus>) {
            self.writes += 1;
            let mut config = VersionedConfig::new(name, VersionedConfigSpec::default());
            config.metadata.namespace = Some("ns".to_owned());
            config.metadata.uid = Some(format!("uid-{name}"));
            config.metadata.resource_version = Some(self.writes.to_string());
            let mut status = VersionedConfigStatus {
                current: current.map(|version| version.version.clone()),
                versions: current.cloned().into_iter().collect(),
                ..VersionedConfigStatus::default()
            };
            status.rollout.revision = revision;
            config.status = Some(status);
            self.world.put_config(config);
        }

        async fn poll(&self, request: PollRequest) -> (Reply, PollResult) {
            self.hub.poll_result(&caller("u"), request, &mut Repeats::default()).await
        }

        /// Polls for the head.
        async fn head(&self, request: PollRequest) -> PollHead {
            let (reply, result) = self.poll(request).await;
            assert_eq!((reply.status, result), (StatusCode::OK, PollResult::Changed));
            let bytes = reply.into_bytes().concat();
            let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let length = u32::from_be_bytes(bytes[body..body + 4].try_into().unwrap()) as usize;
            serde_json::from_slice(&bytes[body + 4..body + 4 + length]).unwrap()
        }
    }

    fn pod(uid: &str, configs: &[&str]) -> PodState {
        PodState {
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
            configs: configs.iter().map(|name| ConfigName::new(name).unwrap()).collect(),
            ..PodState::default()
        }
    }

    /// What an agent sends that has taken in `head`.
    fn after(head: &PollHead) -> PollRequest {
        let held = |config: &nudge_protocol::hub::PollConfig| Held {
            name: config.name.clone(),
            uid: config.uid.clone(),
            revision: config.revision,
            version: config.version.clone(),
            sha256: config.sha256.clone(),
            problem: config.problem.as_ref().map(|problem| problem.reason),
        };
        PollRequest {
            configs: head.configs.iter().map(held).collect(),
            containers_hash: head.containers_hash.clone(),
            wait_seconds: 300,
            ..PollRequest::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_is_held_until_another_version_is_assigned() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let head = scene.head(PollRequest::default()).await;
        assert_eq!(head.configs[0].version.as_ref().unwrap().as_str(), "1");
        assert!(head.configs[0].length.is_some());

        let (hub, request) = (Arc::clone(&scene.hub), after(&head));
        let poll = async move { hub.poll_result(&caller("u"), request, &mut Repeats::default()).await };
        tokio::pin!(poll);
        assert!(poll.as_mut().now_or_never().is_none());
        assert!(scene.hub.is_connected("u"));
        let two = scene.stored.add("2", b"y");
        scene.put("shop", 2, Some(&two));
        let (reply, result) = poll.await;
        assert_eq!((reply.status, result), (StatusCode::OK, PollResult::Changed));
        assert!(!scene.hub.is_connected("u"));
        let head = scene.head(after(&head)).await;
        assert_eq!((head.configs[0].revision, head.configs[0].version.as_ref().unwrap().as_str()), (2, "2"));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_new_is_told_when_the_wait_is_over() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let head = scene.head(PollRequest::default()).await;
        let started = Instant::now();
        let (reply, _) = scene.poll(after(&head)).await;
        assert_eq!(reply.status, StatusCode::NO_CONTENT);
        assert_eq!(started.elapsed().as_secs(), 300);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_behind_the_agent_says_so_after_five_seconds_and_never_what_it_knows() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let mut ahead = after(&scene.head(PollRequest::default()).await);
        ahead.configs[0].revision = 2;
        let started = Instant::now();
        let (reply, result) = scene.poll(ahead.clone()).await;
        assert_eq!((reply.status, result), (StatusCode::SERVICE_UNAVAILABLE, PollResult::Behind));
        assert_eq!(started.elapsed().as_secs(), 5);
        // It catches up meanwhile.
        let hub = Arc::clone(&scene.hub);
        let poll = async move { hub.poll_result(&caller("u"), ahead, &mut Repeats::default()).await };
        tokio::pin!(poll);
        assert!(poll.as_mut().now_or_never().is_none());
        let two = scene.stored.add("2", b"y");
        scene.put("shop", 3, Some(&two));
        assert_eq!(poll.await.1, PollResult::Changed);
    }

    #[tokio::test(start_paused = true)]
    async fn another_uid_is_told_when_it_has_stayed() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let mut other = after(&scene.head(PollRequest::default()).await);
        other.configs[0].uid = "another".to_owned();
        other.configs[0].revision = 9;
        let started = Instant::now();
        assert_eq!(scene.head(other).await.configs[0].revision, 1);
        assert_eq!(started.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_a_problem_and_comes_when_it_is_there() {
        let mut scene = Scene::new();
        let head = scene.head(PollRequest::default()).await;
        assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, nudge_protocol::hub::HubReason::NotFound);
        scene.put("shop", 0, None);
        let head = scene.head(after(&head)).await;
        assert!(head.configs[0].problem.as_ref().unwrap().message.contains("no current version yet"));
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        assert!(scene.head(after(&head)).await.configs[0].problem.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_content_that_is_long_in_coming_is_told_and_comes_later() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.stored.failures.store(12, Ordering::SeqCst);
        scene.put("shop", 1, Some(&one));
        let started = Instant::now();
        let head = scene.head(PollRequest::default()).await;
        assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, nudge_protocol::hub::HubReason::Resolving);
        assert_eq!(started.elapsed().as_secs(), 10);
        let mut request = after(&head);
        while request.configs[0].problem.is_some() {
            request = after(&scene.head(request).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_take_a_reply_gets_it_ever_more_seldom() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let (mut repeats, started) = (Repeats::default(), Instant::now());
        let mut times = Vec::new();
        for _ in 0..5 {
            let request = PollRequest { wait_seconds: 300, ..PollRequest::default() };
            let (_, result) = scene.hub.poll_result(&caller("u"), request, &mut repeats).await;
            assert_eq!(result, PollResult::Changed);
            times.push(started.elapsed().as_secs());
        }
        assert_eq!(times, [0, 1, 3, 7, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_third_poll_of_a_pod_ends_the_first() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let request = after(&scene.head(PollRequest::default()).await);
        let poll = || Box::pin(scene.poll(request.clone()));
        let (mut first, mut second) = (poll(), poll());
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        let mut third = poll();
        assert!(third.as_mut().now_or_never().is_none());
        assert_eq!(first.await.1, PollResult::Superseded);
        assert!(second.now_or_never().is_none() && third.now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn agents_are_sent_away_one_after_the_other() {
        let mut scene = Scene::new();
        let one = scene.stored.add("1", b"x");
        scene.put("shop", 1, Some(&one));
        let request = after(&scene.head(PollRequest::default()).await);
        let mut held: Vec<_> = (0..2).map(|_| Box::pin(scene.poll(request.clone()))).collect();
        assert!(held.iter_mut().all(|poll| poll.as_mut().now_or_never().is_none()));
        scene.hub.drain();
        let started = Instant::now();
        for (reply, result) in futures::future::join_all(held).await {
            assert_eq!((reply.status, result), (StatusCode::SERVICE_UNAVAILABLE, PollResult::Draining));
            assert!(reply.close);
        }
        assert!(started.elapsed() <= Settings::default().drain);
    }

    /// Status and seconds of a poll by a pod that the world does not have, or no more.
    async fn answer_to(uid: &str) -> (StatusCode, u64) {
        let scene = Scene::new();
        let started = Instant::now();
        if uid == "gone" {
            scene.world.put_pod(pod("gone", &["shop"]));
            scene.world.remove_pod(&PodKey::new("ns", "web"));
        }
        let (reply, _) = scene.hub.poll_result(&caller(uid), PollRequest::default(), &mut Repeats::default()).await;
        (reply.status, started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_not_there_is_waited_for_and_one_that_is_gone_is_refused() {
        let scene = Scene::new();
        assert_eq!(answer_to("new").await, (StatusCode::SERVICE_UNAVAILABLE, 5));
        assert_eq!(answer_to("gone").await, (StatusCode::UNAUTHORIZED, 0));

        let caller = caller("new");
        let poll = scene.hub.pod(&caller);
        tokio::pin!(poll);
        assert!(poll.as_mut().now_or_never().is_none());
        scene.world.put_pod(pod("new", &["shop"]));
        assert_eq!(poll.await.unwrap().state.uid, "new");
        scene.world.put_pod(PodState { finished: true, ..pod("new", &["shop"]) });
        assert!(matches!(scene.hub.pod(&caller).await, Err(Refusal::Unauthorized(_))));
        scene.world.set_enabled([].into());
        assert!(matches!(scene.hub.pod(&caller).await, Err(Refusal::NotEnabled(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn secret_parts_are_served_where_they_are_allowed() {
        let mut scene = Scene::new();
        let (sealed, stored) =
            crate::hub::content::tests::part(crate::api::PartKind::Secret, "pin", true, &[("k", b"0".to_vec())]);
        scene.stored.objects.lock().unwrap().insert("pin".to_owned(), (stored.uid, stored.contents));
        let version = crate::hub::contents::tests::sealed("1", vec![sealed]);
        scene.put("shop", 1, Some(&version));
        let head = scene.head(PollRequest::default()).await;
        assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, nudge_protocol::hub::HubReason::NotAllowed);
        assert_eq!(scene.stored.reads.load(Ordering::SeqCst), 0);
        scene.world.see_secrets("ns", Vec::new());
        let head = scene.head(after(&head)).await;
        assert!(head.configs[0].length.is_some());
        scene.world.unsee_secrets("ns");
        let head = scene.head(PollRequest { configs: Vec::new(), ..after(&head) }).await;
        assert!(head.configs[0].length.is_none(), "also when it was read before");
    }
}
