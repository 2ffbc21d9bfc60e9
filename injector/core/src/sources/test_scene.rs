//! The scene of tests: a source and a config.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    ConditionType, ConfigSource, ConfigSourceStatus, Explanation, PartKind, PartStatus, Reason, RolloutFailure,
    RolloutStage, VersionState, VersionStatus, VersionedConfig, VersionedConfigStatus, find_condition,
};
use nudge_protocol::labels;
use serde_json::json;

use super::debounced_version::DebouncedVersion;
use super::periods::debounce;
use super::{Act, SourceSnapshot, Upstream, decide};
use crate::requester::{Requester, noted_retry_time};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

pub(super) fn sealed(version: &str) -> VersionStatus {
    let part =
        PartStatus { kind: PartKind::ConfigMap, name: version.into(), uid: version.into(), digest: String::new() };
    VersionStatus {
        version: version.to_owned(),
        state: VersionState::Available,
        digest: String::new(),
        parts: vec![part],
        keys: 1,
        bytes: 1,
        seal_time: None,
        consent: None,
    }
}

/// A source, its content, and the config that it makes versions of.
pub(super) struct Scene {
    pub(super) source: ConfigSource,
    pub(super) newest: Option<DebouncedVersion>,
    pub(super) gone: bool,
    pub(super) config: Option<VersionedConfig>,
    pub(super) last: Option<String>,
    pub(super) rival: Option<&'static str>,
    pub(super) refusal: Option<Explanation>,
    pub(super) now: i64,
    /// The acts, with their times.
    pub(super) acts: Vec<(i64, Act)>,
}

impl Scene {
    /// Creates a scene with a debounce of 2 s and 60 s between versions.
    pub(super) fn new() -> Self {
        let source = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop", "generation": 1},
            "spec": {"from": {"git": {"url": "https://git.example.com/shop"}}}
        });
        let source = serde_json::from_value(source).unwrap();
        Self {
            source,
            newest: None,
            gone: false,
            config: None,
            last: None,
            rival: None,
            refusal: None,
            now: 1_000_000,
            acts: Vec::new(),
        }
    }

    pub(super) fn changes(&mut self, content: &str) {
        let (version, now) = (format!("src-{content}"), at(self.now));
        match &mut self.newest {
            Some(newest) => newest.observe(version, debounce(&self.source), now),
            None => self.newest = Some(DebouncedVersion::first(version, now)),
        }
        self.gone = false;
    }

    pub(super) fn config(&mut self) -> &mut VersionedConfig {
        self.config.as_mut().unwrap()
    }

    pub(super) fn status(&mut self) -> &mut VersionedConfigStatus {
        self.config().status.as_mut().unwrap()
    }

    /// Decides until there is nothing to do, and does it. The config seals at once, and begins a rollout if there is a
    /// version already.
    pub(super) fn settle(&mut self) {
        for _ in 0..5 {
            let gone = Reason::SourceGone.explained("secret shop does not exist");
            let upstream = match &self.newest {
                _ if self.gone => Upstream::Refused(&gone),
                Some(newest) => Upstream::Content(newest),
                None => Upstream::Unknown,
            };
            let config = self.config.as_ref();
            let observed = SourceSnapshot {
                source: &self.source,
                upstream,
                refusal: self.refusal.as_ref(),
                config,
                last: self.last.as_deref(),
                rival: self.rival,
                trouble: None,
                now: at(self.now),
            };
            let decision = decide(&observed);
            assert!(decision.recheck_at.is_none_or(|recheck_at| recheck_at > at(self.now)), "{decision:?}");
            self.source.status = Some(decision.status);
            let Some(act) = decision.act else {
                // The controller acts after the source has seen its own write.
                if self.tries_again() {
                    continue;
                }
                return;
            };
            self.act(&act);
            self.acts.push((self.now, act));
        }
        panic!("it never comes to an end: {:?}", self.acts);
    }

    pub(super) fn act(&mut self, act: &Act) {
        let newest = self.newest.clone().unwrap().version;
        let now = self.now;
        let took = |status: &mut ConfigSourceStatus, version: &str| {
            if status.version.as_deref() != Some(version) {
                status.version = Some(version.to_owned());
                status.make_time = Some(Time(at(now)));
            }
        };
        let status = self.source.status.as_mut().unwrap();
        match act {
            Act::CreateConfig => {
                let status = VersionedConfigStatus::default();
                self.config = Some(VersionedConfig { status: Some(status), ..VersionedConfig::default() });
                self.config().metadata.name = Some("shop".to_owned());
            }
            Act::Make => {
                status.version = Some(newest.clone());
                status.make_time = Some(Time(at(now)));
                self.status().versions.retain(|sealed| sealed.version != newest);
                self.status().versions.push(sealed(&newest));
            }
            Act::Retry(_) => {
                let note = Requester::new("sources", at(now)).at.0.to_string();
                self.config().metadata.annotations = Some([(labels::RETRY.to_owned(), note)].into());
            }
            Act::Activate(version) => {
                took(status, version);
                self.config().spec.version = Some(version.clone());
                let status = self.status();
                // A failed version stays failed, until somebody requests another attempt.
                if status.rollout.failure.as_ref().is_some_and(|failure| failure.version == *version) {
                    return;
                }
                status.rollout.failure = None;
                if status.current_version.is_some() {
                    status.target_version = Some(version.clone());
                    status.rollout.stage = Some(RolloutStage::Moving);
                } else {
                    status.current_version = Some(version.clone());
                }
            }
            Act::KeepOnly(last) => {
                self.last.clone_from(last);
            }
        }
    }

    /// Returns whether the rollout of a version that failed begins again, because somebody has requested that.
    fn tries_again(&mut self) -> bool {
        let Some(config) = self.config.as_mut() else { return false };
        let (retry, named) = (noted_retry_time(config), config.spec.version.clone());
        let Some(status) = config.status.as_mut() else { return false };
        let failure = status.rollout.failure.as_ref();
        if failure.is_none_or(|failure| retry == failure.retry_time || named.as_ref() != Some(&failure.version)) {
            return false;
        }
        status.rollout.failure = None;
        (status.target_version, status.rollout.stage) = (named, Some(RolloutStage::Moving));
        true
    }

    pub(super) fn passes(&mut self, millis: i64) {
        self.now += millis;
        self.settle();
    }

    pub(super) fn rollout_ends(&mut self, good: bool) {
        let retry_time = noted_retry_time(self.config());
        let status = self.status();
        let Some(target) = status.target_version.take() else { return };
        status.rollout.stage = None;
        if good {
            status.current_version = Some(target);
        } else {
            status.rollout.failure = Some(RolloutFailure {
                version: target,
                digest: String::new(),
                retry_time,
                reason: Reason::PodNotReady,
                message: String::new(),
                overridden: None,
            });
        }
        self.settle();
    }

    pub(super) fn taken_by(&mut self, manager: &str, version: &str) {
        let fields = json!({"f:spec": {"f:version": {}}});
        let entry = json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
        self.config().spec.version = Some(version.to_owned());
        self.config().metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
        self.settle();
    }

    pub(super) fn ready(&self) -> (bool, String) {
        let conditions = &self.source.status.as_ref().unwrap().conditions;
        let ready = find_condition(conditions, ConditionType::Ready).unwrap();
        (ready.status == "True", ready.reason.clone())
    }

    pub(super) fn stalled(&self) -> bool {
        let conditions = &self.source.status.as_ref().unwrap().conditions;
        find_condition(conditions, ConditionType::Stalled).is_some_and(|stalled| stalled.status == "True")
    }

    pub(super) fn is(&self, ready: bool, reason: &str) {
        assert_eq!(self.ready(), (ready, reason.to_owned()));
    }

    pub(super) fn activated(&self) -> Vec<&str> {
        let activated = |(_, act): &'_ (i64, Act)| matches!(act, Act::Activate(_));
        let of = self.acts.iter().filter(|act| activated(act));
        of.map(|(_, act)| if let Act::Activate(version) = act { version.as_str() } else { "" }).collect()
    }

    /// Returns how often another attempt was requested.
    pub(super) fn retried(&self) -> usize {
        self.acts.iter().filter(|(_, act)| matches!(act, Act::Retry(_))).count()
    }

    pub(super) fn sync(&mut self) {
        let asked = [(labels::SYNC.to_owned(), self.now.to_string())];
        self.source.metadata.annotations = Some(asked.into());
        self.settle();
    }
}

/// Creates a scene with one version, which is current.
pub(super) fn running() -> Scene {
    let mut scene = Scene::new();
    scene.changes("a");
    scene.settle();
    scene.passes(2000);
    scene.is(true, "Activated");
    scene.passes(60_000);
    scene
}
