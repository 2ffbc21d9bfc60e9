//! The requests of a pod by its annotations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use nudge_protocol::expectation::{Expectation, ExpectationError, Sign};
use nudge_protocol::limits::{MAX_CHECKS, MAX_KEY_PATTERNS, MAX_VARIABLES, MAX_VERIFIED, MAX_WEBHOOKS};
use nudge_protocol::{Ack, ConfigName, KeyPattern, Notify, VariableName};
use serde_json::Value;

use super::annotations::{self as names, of_container};
use super::opt_in::is_opted_in;
use super::references::{check_count, referenced_secrets, references};
use super::unknown::unknown_keys;
use super::update_way::{ROLLOUT, UpdateWay, parse_way};
use super::webhook_url;
use crate::injection::annotation_values;
use crate::injection::quantity::Quantity;
use crate::injection::refusal::{InjectionRefusal, shorten};
use crate::injection::user_pod::{ContainerRole, UserPod};

/// The requests of a pod, which [`read`] returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest {
    /// The name of the pod's ServiceAccount.
    pub service_account: String,
    pub(in crate::injection) named: Option<Vec<ConfigName>>,
    /// The ConfigMaps that the containers reference, which may be of configs.
    pub config_maps: Vec<String>,
    /// The Secrets that the containers reference, which may be of configs.
    pub secrets: Vec<String>,
    pub(in crate::injection) notify: Option<Notify>,
    pub(in crate::injection) notify_of: BTreeMap<String, Notify>,
    /// The annotation that demands a rolling update for each change of the version. Then no container is notified.
    pub(in crate::injection) rollout: Option<String>,
    pub(in crate::injection) webhooks: BTreeMap<String, String>,
    pub(in crate::injection) checks: BTreeMap<String, String>,
    /// What containers must show after their notification.
    pub(in crate::injection) verify: BTreeMap<String, Expectation>,
    pub(in crate::injection) variables: BTreeMap<String, Vec<VariableName>>,
    pub(in crate::injection) keys: BTreeMap<String, Vec<KeyPattern>>,
    pub(in crate::injection) webhook_allow: Vec<SocketAddr>,
    pub(in crate::injection) port: Option<u16>,
    pub(in crate::injection) mount_path: Option<String>,
    pub(in crate::injection) ack: Option<Ack>,
    pub(in crate::injection) containers: Option<Vec<String>>,
    pub(in crate::injection) run_as_user: Option<i64>,
    pub(in crate::injection) cpu: Option<Quantity>,
    pub(in crate::injection) memory: Option<Quantity>,
    pub(in crate::injection) start_timeout: Option<String>,
    /// The messages about unknown labels and annotations.
    pub(in crate::injection) unknown: Vec<String>,
    /// The warnings about annotations without effect.
    pub(in crate::injection) ignored: Vec<String>,
}

impl PodRequest {
    /// Returns the configs to look up: the ones named by the annotation, or else one for each ConfigMap that the
    /// containers reference, if its name can be a config's.
    pub fn configs(&self) -> Vec<ConfigName> {
        match &self.named {
            Some(named) => named.clone(),
            None => self.config_maps.iter().filter_map(|name| ConfigName::new(name).ok()).collect(),
        }
    }

    /// Returns a config for each Secret that the containers reference, if its name can be a config's: only configs with
    /// the Secret of their name count.
    pub fn configs_of_secrets(&self) -> Vec<ConfigName> {
        self.secrets.iter().filter_map(|name| ConfigName::new(name).ok()).collect()
    }

    /// Returns how a container is notified, and the annotation that says so.
    fn notification(&self, name: &str) -> (Notify, String) {
        match self.notify_of.get(name) {
            Some(notify) => (*notify, format!("{}.{name}", names::NOTIFY)),
            None => (self.notify.unwrap_or_default(), names::NOTIFY.to_owned()),
        }
    }

    /// Returns how the agent notifies a container with this annotation, and notes a rolling update.
    fn take_way(&mut self, annotation: &str, way: UpdateWay) -> Notify {
        match way {
            UpdateWay::Agent(notify) => notify,
            UpdateWay::Rollout => {
                self.rollout.get_or_insert_with(|| annotation.to_owned());
                Notify::None
            }
        }
    }

    /// Returns the annotation that restarts the containers in place.
    fn in_place_annotation(&self) -> Option<String> {
        let way = format!(": {}", Notify::InPlace);
        if self.notify == Some(Notify::InPlace) {
            return Some(format!("{}{way}", names::NOTIFY));
        }
        let (name, _) = self.notify_of.iter().find(|(_, notify)| **notify == Notify::InPlace)?;
        let is_implied = self.variables.contains_key(name);
        Some(if is_implied { format!("{}.{name}", names::VARIABLES) } else { format!("{}.{name}{way}", names::NOTIFY) })
    }

    /// Returns the annotations that request signals and webhooks, or say when these are sent.
    fn notifications(&self) -> Vec<String> {
        let is_notified = |notify: &Notify| !matches!(notify, Notify::None | Notify::InPlace);
        let of_pod = self.notify.filter(is_notified).map(|_| names::NOTIFY.to_owned());
        let of_containers = self
            .notify_of
            .iter()
            .filter(|(name, notify)| is_notified(notify) && !self.webhooks.contains_key(*name))
            .map(|(name, _)| format!("{}.{name}", names::NOTIFY));
        let webhooks = self.webhooks.keys().map(|name| format!("{}.{name}", names::WEBHOOK));
        let keys = self.keys.keys().map(|name| format!("{}.{name}", names::KEYS));
        of_pod.into_iter().chain(of_containers).chain(webhooks).chain(keys).collect()
    }

    /// Applies the restart that one container requests to all containers of the pod: none of them is notified.
    fn decide_for_pod(&mut self) -> Result<(), InjectionRefusal> {
        let rollout = self.rollout.as_ref().map(|annotation| format!("{annotation}: {ROLLOUT}"));
        let (deciding_annotation, restarted, way) = match (rollout, self.in_place_annotation()) {
            (Some(rollout), Some(in_place)) => {
                let message = "another version either replaces this pod by a rolling update of its workload, or its containers are \
                               restarted in place; choose one for all of its containers";
                return Err(InjectionRefusal::both(&rollout, &in_place, message));
            }
            (Some(rollout), None) => (rollout, "replaced by a rolling update", Notify::None),
            (None, Some(in_place)) => (in_place, "restarted in place", Notify::InPlace),
            (None, None) => return Ok(()),
        };
        refuse_questions(self, &deciding_annotation)?;
        let warning = |annotation: String| {
            format!(
                "annotation {annotation} has no effect: {deciding_annotation} decides for all containers of the pod, which are {restarted}; remove one \
                 of the two"
            )
        };
        self.ignored = self.notifications().into_iter().map(warning).collect();
        for notify in
            self.notify.iter_mut().chain(self.notify_of.values_mut()).filter(|notify| **notify != Notify::None)
        {
            *notify = way;
        }
        self.webhooks.clear();
        self.keys.clear();
        Ok(())
    }
}

/// Reads the requests of a pod; `None` if it does not opt in.
pub fn read(raw: &Value) -> Result<Option<PodRequest>, InjectionRefusal> {
    if !is_opted_in(raw)? {
        return Ok(None);
    }
    let pod = UserPod::of(raw)?;
    AnnotationReader { pod: &pod }.read().map(Some)
}

struct AnnotationReader<'a> {
    pod: &'a UserPod,
}

impl AnnotationReader<'_> {
    fn read(&self) -> Result<PodRequest, InjectionRefusal> {
        let containers: Option<Vec<String>> =
            self.get(names::CONTAINERS, |text| Ok(annotation_values::list(text).map(str::to_owned).collect()))?;
        for name in containers.iter().flatten() {
            self.member(names::CONTAINERS, name)?;
        }
        let named = self.get(names::CONFIGS, annotation_values::configs)?;
        let (references, secrets) = if named.is_some() {
            (Vec::new(), Vec::new())
        } else {
            let containers = containers.as_deref();
            (references(self.pod, containers, &[]), referenced_secrets(self.pod, containers, &[]))
        };
        check_count(references.len())?;
        let mut request = PodRequest {
            service_account: self.pod.service_account().to_owned(),
            config_maps: references.into_iter().map(|reference| reference.name).collect(),
            secrets,
            named,
            webhook_allow: self.get(names::WEBHOOK_ALLOW, annotation_values::targets)?.unwrap_or_default(),
            port: self.get(names::AGENT_PORT, annotation_values::port)?,
            mount_path: self.get(names::MOUNT_PATH, annotation_values::mount_path)?,
            ack: self.get(names::ACK, parse)?,
            containers,
            run_as_user: self.get(names::AGENT_RUN_AS_USER, annotation_values::uid)?,
            cpu: self.get(names::AGENT_CPU, annotation_values::cpu)?,
            memory: self.get(names::AGENT_MEMORY, annotation_values::memory)?,
            start_timeout: self.get(names::AGENT_START_TIMEOUT, annotation_values::start_timeout)?,
            unknown: unknown_keys(self.pod),
            ..PodRequest::default()
        };
        request.notify = self.get(names::NOTIFY, parse_way)?.map(|way| request.take_way(names::NOTIFY, way));
        self.read_container_annotations(&mut request)?;
        self.check_restart()?;
        request.decide_for_pod()?;
        Ok(request)
    }

    /// Returns the value of an annotation, if it is set.
    fn get<T>(&self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, InjectionRefusal> {
        let Some(text) = self.pod.annotations.get(name) else { return Ok(None) };
        read(text).map(Some).map_err(|allowed| InjectionRefusal::value(name, text, allowed))
    }

    fn member(&self, annotation: &str, name: &str) -> Result<ContainerRole, InjectionRefusal> {
        let member = self.pod.member(name);
        member.map(|member| member.role).ok_or_else(|| InjectionRefusal::container(annotation, name, self.pod.names()))
    }

    /// Reads the annotations that end with a container's name.
    fn read_container_annotations(&self, request: &mut PodRequest) -> Result<(), InjectionRefusal> {
        for (annotation, text) in &self.pod.annotations {
            if let Some(name) = of_container(annotation, names::NOTIFY) {
                let way = parse_way(text).map_err(|allowed| InjectionRefusal::value(annotation, text, allowed))?;
                if way == UpdateWay::Agent(Notify::None) {
                    self.member(annotation, name)?;
                } else {
                    self.check_notified(annotation, name)?;
                }
                let notify = request.take_way(annotation, way);
                request.notify_of.insert(name.to_owned(), notify);
            } else if let Some(name) = of_container(annotation, names::WEBHOOK) {
                self.check_url(annotation, name, text, &request.webhook_allow)?;
                request.webhooks.insert(name.to_owned(), text.clone());
            } else if let Some(name) = of_container(annotation, names::CHECK) {
                self.check_url(annotation, name, text, &request.webhook_allow)?;
                request.checks.insert(name.to_owned(), text.clone());
            } else if let Some(name) = of_container(annotation, names::VERIFY) {
                let expectation = self.expectation(annotation, name, text, &request.webhook_allow)?;
                request.verify.insert(name.to_owned(), expectation);
            } else if let Some(name) = of_container(annotation, names::VARIABLES) {
                self.check_notified(annotation, name)?;
                let keys = annotation_values::variables(text)
                    .map_err(|allowed| InjectionRefusal::value(annotation, text, allowed))?;
                request.variables.insert(name.to_owned(), keys);
            } else if let Some(name) = of_container(annotation, names::KEYS) {
                self.check_notified(annotation, name)?;
                let patterns = annotation_values::key_patterns(text)
                    .map_err(|allowed| InjectionRefusal::value(annotation, text, allowed))?;
                request.keys.insert(name.to_owned(), patterns);
            }
        }
        let variables = request.variables.values().map(Vec::len).sum();
        let patterns = request.keys.values().map(Vec::len).sum();
        for (base, count, max, items) in [
            (names::VARIABLES, variables, MAX_VARIABLES, "variables from configs"),
            (names::KEYS, patterns, MAX_KEY_PATTERNS, "patterns of keys"),
            (names::WEBHOOK, request.webhooks.len(), MAX_WEBHOOKS, "webhooks"),
            (names::CHECK, request.checks.len(), MAX_CHECKS, "checks"),
            (names::VERIFY, request.verify.len(), MAX_VERIFIED, "verifications"),
        ] {
            if count > max {
                let message = format!("annotations {base}.… request {count} {items}, and a pod can have at most {max}");
                return Err(InjectionRefusal(message));
            }
        }
        for name in request.webhooks.keys() {
            let (notify, annotation) = request.notification(name);
            if notify == Notify::InPlace {
                continue;
            }
            if !matches!(notify, Notify::None | Notify::Webhook) {
                let message = format!(
                    "container {name} is notified by {notify} or by webhook; set {}.{name}: webhook for the webhook",
                    names::NOTIFY
                );
                return Err(InjectionRefusal::both(&annotation, &format!("{}.{name}", names::WEBHOOK), &message));
            }
            request.notify_of.insert(name.clone(), Notify::Webhook);
        }
        for name in request.variables.keys() {
            let (notify, annotation) = request.notification(name);
            let is_left_alone = request.notify_of.get(name) == Some(&Notify::None) && request.rollout.is_none();
            if is_left_alone || !matches!(notify, Notify::None | Notify::InPlace) {
                let state = if is_left_alone { "left alone".to_owned() } else { format!("notified by {notify}") };
                let message = format!(
                    "a variable changes only by a restart, and container {name} is {state}; remove one of the two"
                );
                return Err(InjectionRefusal::both(&annotation, &format!("{}.{name}", names::VARIABLES), &message));
            }
            request.notify_of.insert(name.clone(), Notify::InPlace);
        }
        Ok(())
    }

    /// Checks that the container keeps running, and that the URL is in the pod or allowed.
    fn check_url(
        &self,
        annotation: &str,
        name: &str,
        text: &str,
        allowed: &[SocketAddr],
    ) -> Result<(), InjectionRefusal> {
        self.check_notified(annotation, name)?;
        let refusal = |rule| InjectionRefusal::value(annotation, &webhook_url::without_secrets(text), rule);
        webhook_url::check(text, allowed).map_err(refusal)
    }

    /// Reads what the container must show after its notification.
    fn expectation(
        &self,
        annotation: &str,
        name: &str,
        text: &str,
        allowed: &[SocketAddr],
    ) -> Result<Expectation, InjectionRefusal> {
        self.check_notified(annotation, name)?;
        let refusal = |rule: String| InjectionRefusal::value(annotation, &webhook_url::without_secrets(text), rule);
        let expectation: Expectation = text.parse().map_err(|error: ExpectationError| refusal(error.to_string()))?;
        if let Sign::Page { url, .. } = &expectation.sign {
            webhook_url::check(url.as_str(), allowed).map_err(refusal)?;
        }
        Ok(expectation)
    }

    /// Checks that the container exists and keeps running, so that it can be notified.
    fn check_notified(&self, annotation: &str, name: &str) -> Result<(), InjectionRefusal> {
        if self.member(annotation, name)? == ContainerRole::Init {
            return Err(InjectionRefusal(format!(
                "annotation {} names init container {}, which ends before the agent can notify it of a change; remove the annotation",
                shorten(annotation),
                shorten(name)
            )));
        }
        Ok(())
    }

    /// Refuses an annotation of pods without an agent.
    fn check_restart(&self) -> Result<(), InjectionRefusal> {
        if self.pod.annotations.contains_key(names::RESTART) {
            let message = format!(
                "restart is for pods without an agent; set {}: none in place of it for containers that are never to be restarted",
                names::NOTIFY
            );
            return Err(InjectionRefusal::both(names::RESTART, names::INJECT, &message));
        }
        Ok(())
    }
}

/// Refuses checks and verifications of a pod whose containers get a version by a restart.
fn refuse_questions(request: &PodRequest, restart: &str) -> Result<(), InjectionRefusal> {
    let checks = request.checks.keys().map(|name| (names::CHECK, name));
    let verifications = request.verify.keys().map(|name| (names::VERIFY, name));
    let Some((base, name)) = checks.chain(verifications).next() else { return Ok(()) };
    let message = "containers that get a version by a restart are not asked about it; choose one";
    Err(InjectionRefusal::both(restart, &format!("{base}.{name}"), message))
}

/// Parses a value; the error is the rule that the text breaks.
fn parse<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| {
        let text = error.to_string();
        // The refusal names the value already.
        text.split_once(": ").map_or(text.clone(), |(_, rule)| rule.to_owned())
    })
}
