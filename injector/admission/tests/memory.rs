//! The measured memory of a review: at most as much as the server reserves for it, which is at most four times the
//! largest body.

// The measurement covers the whole test.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRangeItem};
use kube::core::ObjectMeta;
use nudge_admission::{
    AdmissionSettings, Caller, IndexLookups, InjectPods, LookupError, Lookups, Outline, PodLookups, ReviewRequest,
    Right, UndecidedDeletions, Webhook, Webhooks, guards, review,
};
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::baseline::BaselineVerdict;
use nudge_core::injection::{AgentDefaults, Features, InjectionSettings, ResolvedConfig, UnknownKeys};

/// Counts allocations.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn grown(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
}

// SAFETY: all is left to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Knows nothing, and allows everything.
struct Nothing;

impl Lookups for Nothing {
    async fn config(&self, _: &str, _: &str) -> Result<Option<VersionedConfig>, LookupError> {
        Ok(None)
    }

    async fn is_enabled(&self, _: &ReviewRequest, _: &str) -> Result<bool, LookupError> {
        Ok(true)
    }

    async fn is_terminating(&self, _: &str) -> Result<bool, LookupError> {
        Ok(false)
    }

    fn index(&self) -> &dyn IndexLookups {
        self
    }

    async fn config_map(&self, _: &ReviewRequest, _: &str, _: &str) -> Result<Option<ConfigMap>, LookupError> {
        Ok(None)
    }

    async fn may(&self, _: &ReviewRequest, _: &str, _: Right<'_>) -> Result<bool, LookupError> {
        Ok(true)
    }
}

impl IndexLookups for Nothing {
    fn subscribers(&self, _: &str, _: &str) -> Option<usize> {
        Some(0)
    }
}

impl PodLookups for Nothing {
    fn basis(&self) -> Result<(Features, Arc<str>), &'static str> {
        Ok((Features::default(), Arc::from("")))
    }

    fn config(&self, _: &str, _: &str, _: &ObjectMeta, _: &str) -> Option<ResolvedConfig> {
        None
    }

    async fn baseline(
        &self,
        _: &ReviewRequest,
        _: PartKind,
        _: &str,
        _: &str,
    ) -> Result<Option<BaselineVerdict>, LookupError> {
        Ok(None)
    }

    async fn limits(&self, _: &str) -> Vec<LimitRangeItem> {
        Vec::new()
    }
}

fn webhooks() -> Webhooks {
    let lookups = Arc::new(Nothing);
    let settings = InjectionSettings {
        agent_image: String::new(),
        agent_kill_image: String::new(),
        image_pull_policy: None,
        image_pull_secrets: Vec::new(),
        hub: String::new(),
        foreign_containers: Vec::new(),
        foreign_containers_allowed: false,
        agent_defaults: AgentDefaults::default(),
        unknown_keys: UnknownKeys::Refuse,
    };
    let key = Arc::new(nudge_core::derived_keys::NoteKey::new(b"key"));
    let mut webhooks = guards(&lookups, key);
    webhooks.push(Arc::new(InjectPods::new(Nothing, settings)));
    webhooks
}

/// A review about an object of this kind that consists of `open`, `element` as often as it fits, and `close`.
fn body(kind: &str, open: &str, element: &str, close: &str, bytes: usize) -> Vec<u8> {
    let group = if kind == "VersionedConfig" { "nudge.dev" } else { "" };
    let old = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","kind":{{"group":"{group}","version":"v1","kind":"{kind}"}},"resource":{{"group":"","version":"v1","resource":"any"}},"name":"a","namespace":"team","operation":"UPDATE","userInfo":{{}},"oldObject":{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"a","labels":{{"nudge.dev/config":"shop","nudge.dev/version":"1"}}}},"spec":{{}}}},"object":"#
    );
    let old = if kind == "Pod" { old.replace("UPDATE", "CREATE") } else { old };
    filled(old + open, element, &format!("{close}}}}}"), bytes)
}

/// A review by a user of whom there is as much.
fn user_body(open: &str, element: &str, close: &str, bytes: usize) -> Vec<u8> {
    let rest = r#"},"uid":"7","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"any"},"name":"a","namespace":"team","operation":"CREATE","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"nudge.dev/config":"shop","nudge.dev/version":"1"}}}}}"#;
    let head = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"userInfo":{"#;
    filled(format!("{head}{open}"), element, &format!("{close}{rest}"), bytes)
}

fn filled(mut text: String, element: &str, close: &str, bytes: usize) -> Vec<u8> {
    let mut number = 0;
    while text.len() < bytes {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&element.replace('#', &format!("{number:x}")));
        number += 1;
    }
    text.push_str(close);
    text.into_bytes()
}

/// The most memory that a review took at a time, beyond its body.
fn measured(webhook: &dyn Webhook, body: &[u8]) -> (usize, &'static str) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = match review::parse(body, Caller::unauthenticated([10, 0, 0, 1])) {
        Ok(request) => match webhook.review(&request).now_or_never().expect("no look-up waits") {
            Ok(_) => "reviewed",
            Err(_) => "not usable",
        },
        Err(_) => "not parsed",
    };
    (PEAK.load(Ordering::Relaxed) - before, outcome)
}

/// The fields of a user that may be long.
const USERS: [(&str, &str, &str); 5] = [
    (r#""groups":["#, r#""""#, "]"),
    (r#""groups":["#, r#""\u0001""#, "]"),
    (r#""extra":{"#, r##""#":[""]"##, "}"),
    (r#""extra":{"a":["#, r#""""#, "]}"),
    (r#""username":""#, r"\n\n\n\n", "\""),
];

/// Reviews that are too large are read in outline without room for it, by at most as many threads as the server has.
#[test]
fn an_outline_takes_at_most_twice_its_body() {
    let _alone = ALONE.lock();
    let large = 1024 * 1024;
    let measured = |body: &[u8]| {
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let answer =
            Outline::read(body).and_then(|outline| outline.deny_too_large(UndecidedDeletions::Deny, "too large"));
        (PEAK.load(Ordering::Relaxed) - before, answer.is_some())
    };
    for (open, element, close) in USERS {
        let (peak, denied) = measured(&user_body(open, element, close, large - 1024));
        assert!(peak <= 2 * large && denied, "{open}: {peak}");
    }
    for (open, element, denied) in [
        (r#""uid":""#, "a".repeat(1000), false),
        (r#""operation":""#, "a".repeat(1000), false),
        (r#""operation":""#, r"\n".repeat(1000), false),
        (r#"""#, r"\n".repeat(1000), false),
        (r#""object":"#, "[".repeat(1000), false),
        (r#""object":["#, r#"{"a":[{"":""}]}"#.to_owned(), false),
    ] {
        let body = filled(format!("{{\"request\":{{{open}"), &element, "", large - 1024);
        let (peak, answered) = measured(&body);
        assert!(peak <= 2 * large && answered == denied, "{open}: {peak}");
    }
}

#[test]
fn no_review_takes_more_memory_than_is_reserved_for_it() {
    const META: &str = r#"{"apiVersion":"v1","kind":"K","spec":{},"metadata":{"name":"a","labels":{"nudge.dev/config":"shop","nudge.dev/inject":"true"#;
    let _alone = ALONE.lock();
    let in_meta = |more: &str| format!("{META}\"}}{more}");
    let shapes = [
        ("numbers", in_meta("},\"x\":["), "0".to_owned(), "]}"),
        ("texts", in_meta("},\"x\":["), "\"\"".to_owned(), "]}"),
        ("lists", in_meta("},\"x\":["), "[]".to_owned(), "]}"),
        ("lists of one", in_meta("},\"x\":["), "[0]".to_owned(), "]}"),
        ("objects", in_meta("},\"x\":["), "{}".to_owned(), "]}"),
        ("objects of one", in_meta("},\"x\":["), "{\"a\":0}".to_owned(), "]}"),
        ("deep lists", in_meta("},\"x\":["), format!("{}{}", "[".repeat(100), "]".repeat(100)), "]}"),
        ("deep objects", in_meta("},\"x\":["), format!("{}0{}", "{\"a\":".repeat(100), "}".repeat(100)), "]}"),
        ("keys", in_meta("},\"x\":{"), "\"#\":0".to_owned(), "}}"),
        ("data", in_meta("},\"data\":{"), "\"#\":\"\"".to_owned(), "}}"),
        ("escapes", in_meta("},\"data\":{\"a\":\"\\u0001"), "\\u0001".to_owned(), "\"}}"),
        ("labels", format!("{META}\","), "\"#\":\"\"".to_owned(), "}}}"),
        ("annotations", in_meta(",\"annotations\":{"), "\"#\":\"\"".to_owned(), "}}}"),
        ("finalizers", in_meta(",\"finalizers\":["), "\"\"".to_owned(), "]}}"),
        (
            "owners",
            in_meta(",\"ownerReferences\":["),
            r#"{"apiVersion":"","kind":"","name":"","uid":""}"#.to_owned(),
            "]}}",
        ),
        ("managed fields", in_meta(",\"managedFields\":["), "{\"fieldsV1\":{\"f:a\":{}}}".to_owned(), "]}}"),
        ("managed nothing", in_meta(",\"managedFields\":["), "{}".to_owned(), "]}}"),
        ("containers", in_meta("},\"spec\":{\"containers\":["), "{\"name\":\"\"}".to_owned(), "]}}"),
        ("volumes", in_meta("},\"spec\":{\"containers\":[],\"volumes\":["), "{\"name\":\"\"}".to_owned(), "]}}"),
        ("tolerations", in_meta("},\"spec\":{\"containers\":[],\"tolerations\":["), "{}".to_owned(), "]}}"),
        (
            "variables",
            in_meta("},\"spec\":{\"containers\":[{\"name\":\"\",\"env\":["),
            "{\"name\":\"\"}".to_owned(),
            "]}]}}",
        ),
        ("conditions", in_meta("},\"status\":{\"versions\":["), "{}".to_owned(), "]}}"),
    ];
    let settings = AdmissionSettings::new(([127, 0, 0, 1], 0).into());
    assert_eq!(settings.all_objects_bytes / 4, 4 * settings.max_body_bytes, "what one review may take");
    let mut over = Vec::new();
    for (name, open, element, close) in &shapes {
        for kind in ["ConfigMap", "VersionedConfig", "Pod"] {
            for webhook in webhooks() {
                let body = body(kind, open, element, close, 64 * 1024);
                let weight = review::weight(&body);
                let (peak, outcome) = measured(webhook.as_ref(), &body);
                if peak > weight {
                    over.push(format!("{name} {kind} {}: {outcome}, {peak} of {weight} reserved", webhook.path()));
                }
            }
        }
    }
    for (open, element, close) in USERS {
        for webhook in webhooks() {
            let body = user_body(open, element, close, 64 * 1024);
            let (weight, (peak, outcome)) = (review::weight(&body), measured(webhook.as_ref(), &body));
            if peak > weight {
                over.push(format!("{open} {}: {outcome}, {peak} of {weight} reserved", webhook.path()));
            }
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));

    // The largest body that the API server or anybody else may send is refused unparsed, or takes no more than that.
    let open = in_meta("},\"x\":[");
    let numbers = body("ConfigMap", &open, "0", "]}", settings.max_body_bytes - 1024);
    assert!(review::weight(&numbers) > settings.all_objects_bytes / 4);
    let open = in_meta("},\"data\":{\"a\":\"\\u0001");
    let escapes = body("ConfigMap", &open, &"\\u0001".repeat(1000), "\"}}", settings.max_body_bytes - 1024);
    for webhook in webhooks() {
        let (peak, _) = measured(webhook.as_ref(), &escapes);
        assert!(peak <= settings.all_objects_bytes / 4 && peak <= review::weight(&escapes), "{peak}");
    }
}
