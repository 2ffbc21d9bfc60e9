//! What a pod asks for by its annotations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use nudge_protocol::limits::{MAX_CHECKS, MAX_VARIABLES, MAX_WEBHOOKS};
use nudge_protocol::{Ack, ConfigName, Notify, VariableName};
use serde_json::Value;

use super::annotations::{self as names, of_container};
use super::notify::{ROLLOUT, Way, way};
use super::opt_in::asks;
use super::references::{check_count, mounted_secrets, references};
use super::unknown::unknown_keys;
use super::webhook_url;
use crate::injection::quantity::Quantity;
use crate::injection::refusal::{Refusal, shown};
use crate::injection::user_pod::{Role, UserPod};
use crate::injection::values;

/// What a pod asks for; made by [`read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRequest {
    pub(in crate::injection) service_account: String,
    pub(in crate::injection) named: Option<Vec<ConfigName>>,
    pub(in crate::injection) references: Vec<String>,
    /// The Secrets that the containers mount, which may be of configs.
    pub(in crate::injection) mounted_secrets: Vec<String>,
    pub(in crate::injection) notify: Option<Notify>,
    pub(in crate::injection) notify_of: BTreeMap<String, Notify>,
    /// The annotation that says that only a rolling update brings another version; then no container is notified.
    pub(in crate::injection) rollout: Option<String>,
    pub(in crate::injection) webhooks: BTreeMap<String, String>,
    pub(in crate::injection) checks: BTreeMap<String, String>,
    pub(in crate::injection) variables: BTreeMap<String, Vec<VariableName>>,
    pub(in crate::injection) webhook_allow: Vec<SocketAddr>,
    pub(in crate::injection) port: Option<u16>,
    pub(in crate::injection) mount_path: Option<String>,
    pub(in crate::injection) ack: Option<Ack>,
    pub(in crate::injection) containers: Option<Vec<String>>,
    pub(in crate::injection) run_as_user: Option<i64>,
    pub(in crate::injection) cpu: Option<Quantity>,
    pub(in crate::injection) memory: Option<Quantity>,
    pub(in crate::injection) start_timeout: Option<String>,
    /// Messages about labels and annotations that are not known.
    pub(in crate::injection) unknown: Vec<String>,
    /// Warnings about annotations without effect.
    pub(in crate::injection) ignored: Vec<String>,
}

impl PodRequest {
    /// Returns the configs that the annotation names, else those that may be of the ConfigMaps that the containers reference.
    pub fn configs(&self) -> Vec<ConfigName> {
        match &self.named {
            Some(named) => named.clone(),
            None => self.references.iter().filter_map(|name| ConfigName::new(name).ok()).collect(),
        }
    }

    /// Returns the configs that may be of the Secrets that the containers mount: those that have the Secret of their name.
    pub fn configs_of_secrets(&self) -> Vec<ConfigName> {
        self.mounted_secrets.iter().filter_map(|name| ConfigName::new(name).ok()).collect()
    }

    /// The service account of the pod.
    pub fn service_account(&self) -> &str {
        &self.service_account
    }

    /// How a container is notified, and the annotation that says so.
    fn notified_by(&self, name: &str) -> (Notify, String) {
        match self.notify_of.get(name) {
            Some(notify) => (*notify, format!("{}.{name}", names::NOTIFY)),
            None => (self.notify.unwrap_or_default(), names::NOTIFY.to_owned()),
        }
    }

    /// What the agent does for a container with this annotation.
    fn notified(&mut self, annotation: &str, way: Way) -> Notify {
        match way {
            Way::Agent(notify) => notify,
            Way::Rollout => {
                self.rollout.get_or_insert_with(|| annotation.to_owned());
                Notify::None
            }
        }
    }

    /// The annotation that says that the containers are restarted in place.
    fn in_place(&self) -> Option<String> {
        let way = format!(": {}", Notify::InPlace);
        if self.notify == Some(Notify::InPlace) {
            return Some(format!("{}{way}", names::NOTIFY));
        }
        let (name, _) = self.notify_of.iter().find(|(_, notify)| **notify == Notify::InPlace)?;
        let implied = self.variables.contains_key(name);
        Some(if implied { format!("{}.{name}", names::VARIABLES) } else { format!("{}.{name}{way}", names::NOTIFY) })
    }

    /// The annotations that ask for signals and webhooks.
    fn notifications(&self) -> Vec<String> {
        let notifies = |notify: &Notify| !matches!(notify, Notify::None | Notify::InPlace);
        let of_pod = self.notify.filter(notifies).map(|_| names::NOTIFY.to_owned());
        let of_containers = self
            .notify_of
            .iter()
            .filter(|(name, notify)| notifies(notify) && !self.webhooks.contains_key(*name))
            .map(|(name, _)| format!("{}.{name}", names::NOTIFY));
        let webhooks = self.webhooks.keys().map(|name| format!("{}.{name}", names::WEBHOOK));
        of_pod.into_iter().chain(of_containers).chain(webhooks).collect()
    }

    /// Where one container asks for a restart, it decides for all of its pod: no other container is notified.
    fn decide_for_pod(&mut self) -> Result<(), Refusal> {
        let rollout = self.rollout.as_ref().map(|annotation| format!("{annotation}: {ROLLOUT}"));
        let (decides, restarted, way) = match (rollout, self.in_place()) {
            (Some(rollout), Some(in_place)) => {
                let message = "another version either replaces this pod by a rolling update of its workload, or its containers are \
                               restarted in place; choose one for all of its containers";
                return Err(Refusal::both(&rollout, &in_place, message));
            }
            (Some(rollout), None) => (rollout, "replaced by a rolling update", Notify::None),
            (None, Some(in_place)) => (in_place, "restarted in place", Notify::InPlace),
            (None, None) => return Ok(()),
        };
        check_unasked(self, &decides)?;
        let warning = |annotation: String| {
            format!(
                "annotation {annotation} has no effect: {decides} decides for all containers of the pod, which are {restarted}; remove one \
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
        Ok(())
    }

    /// Names of the ConfigMaps to look up: those that the containers reference, where no annotation names the configs.
    pub fn config_maps(&self) -> &[String] {
        &self.references
    }
}

/// What a pod asks for by its annotations; `None` where it does not opt in.
pub fn read(pod: &Value) -> Result<Option<PodRequest>, Refusal> {
    if !asks(pod)? {
        return Ok(None);
    }
    let user = UserPod::of(pod)?;
    Reader { user: &user }.read().map(Some)
}

struct Reader<'a> {
    user: &'a UserPod,
}

impl Reader<'_> {
    fn read(&self) -> Result<PodRequest, Refusal> {
        let containers: Option<Vec<String>> =
            self.get(names::CONTAINERS, |text| Ok(values::list(text).map(str::to_owned).collect()))?;
        for name in containers.iter().flatten() {
            self.member(names::CONTAINERS, name)?;
        }
        let named = self.get(names::CONFIGS, values::configs)?;
        let (references, mounted_secrets) = if named.is_some() {
            (Vec::new(), Vec::new())
        } else {
            let containers = containers.as_deref();
            (references(self.user, containers, &[]), mounted_secrets(self.user, containers, &[]))
        };
        check_count(references.len())?;
        let mut request = PodRequest {
            service_account: self.user.service_account().to_owned(),
            references: references.into_iter().map(|reference| reference.name).collect(),
            mounted_secrets,
            named,
            notify: None,
            notify_of: BTreeMap::new(),
            rollout: None,
            webhooks: BTreeMap::new(),
            checks: BTreeMap::new(),
            variables: BTreeMap::new(),
            webhook_allow: self.get(names::WEBHOOK_ALLOW, values::targets)?.unwrap_or_default(),
            port: self.get(names::AGENT_PORT, values::port)?,
            mount_path: self.get(names::MOUNT_PATH, values::mount_path)?,
            ack: self.get(names::ACK, parsed)?,
            containers,
            run_as_user: self.get(names::AGENT_RUN_AS_USER, values::uid)?,
            cpu: self.get(names::AGENT_CPU, values::cpu)?,
            memory: self.get(names::AGENT_MEMORY, values::memory)?,
            start_timeout: self.get(names::AGENT_START_TIMEOUT, values::start_timeout)?,
            unknown: unknown_keys(self.user),
            ignored: Vec::new(),
        };
        request.notify = self.get(names::NOTIFY, way)?.map(|way| request.notified(names::NOTIFY, way));
        self.read_container_annotations(&mut request)?;
        self.check_restart()?;
        request.decide_for_pod()?;
        Ok(request)
    }

    /// Returns the value of an annotation, where it is set.
    fn get<T>(&self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, Refusal> {
        let Some(text) = self.user.annotations.get(name) else { return Ok(None) };
        read(text).map(Some).map_err(|allowed| Refusal::value(name, text, allowed))
    }

    fn member(&self, annotation: &str, name: &str) -> Result<Role, Refusal> {
        let member = self.user.member(name);
        member.map(|member| member.role).ok_or_else(|| Refusal::container(annotation, name, self.user.names()))
    }

    /// Reads the annotations that end with a container's name.
    fn read_container_annotations(&self, request: &mut PodRequest) -> Result<(), Refusal> {
        for (annotation, text) in &self.user.annotations {
            if let Some(name) = of_container(annotation, names::NOTIFY) {
                self.check_notified(annotation, name)?;
                let way = way(text).map_err(|allowed| Refusal::value(annotation, text, allowed))?;
                let notify = request.notified(annotation, way);
                request.notify_of.insert(name.to_owned(), notify);
            } else if let Some(name) = of_container(annotation, names::WEBHOOK) {
                self.check_url(annotation, name, text, &request.webhook_allow)?;
                request.webhooks.insert(name.to_owned(), text.clone());
            } else if let Some(name) = of_container(annotation, names::CHECK) {
                self.check_url(annotation, name, text, &request.webhook_allow)?;
                request.checks.insert(name.to_owned(), text.clone());
            } else if let Some(name) = of_container(annotation, names::VARIABLES) {
                self.check_notified(annotation, name)?;
                let keys = values::variables(text).map_err(|allowed| Refusal::value(annotation, text, allowed))?;
                request.variables.insert(name.to_owned(), keys);
            }
        }
        let variables = request.variables.values().map(Vec::len).sum();
        for (base, count, most, what) in [
            (names::VARIABLES, variables, MAX_VARIABLES, "variables from configs"),
            (names::WEBHOOK, request.webhooks.len(), MAX_WEBHOOKS, "webhooks"),
            (names::CHECK, request.checks.len(), MAX_CHECKS, "checks"),
        ] {
            if count > most {
                let message = format!("annotations {base}.… ask for {count} {what}, and a pod can have at most {most}");
                return Err(Refusal::Pod(message));
            }
        }
        for name in request.webhooks.keys() {
            let (notify, annotation) = request.notified_by(name);
            if notify == Notify::InPlace {
                continue;
            }
            if !matches!(notify, Notify::None | Notify::Webhook) {
                let message = format!(
                    "container {name} is notified by {notify} or by webhook; set {}.{name}: webhook for the webhook",
                    names::NOTIFY
                );
                return Err(Refusal::both(&annotation, &format!("{}.{name}", names::WEBHOOK), &message));
            }
            request.notify_of.insert(name.clone(), Notify::Webhook);
        }
        for name in request.variables.keys() {
            let (notify, annotation) = request.notified_by(name);
            let left_alone = request.notify_of.get(name) == Some(&Notify::None) && request.rollout.is_none();
            if left_alone || !matches!(notify, Notify::None | Notify::InPlace) {
                let is = if left_alone { "left alone".to_owned() } else { format!("notified by {notify}") };
                let message = format!(
                    "a variable changes only by a restart, and container {name} is {is}; remove one of the two"
                );
                return Err(Refusal::both(&annotation, &format!("{}.{name}", names::VARIABLES), &message));
            }
            request.notify_of.insert(name.clone(), Notify::InPlace);
        }
        Ok(())
    }

    /// A container that is posted to must keep running, and the URL must be in the pod or allowed.
    fn check_url(&self, annotation: &str, name: &str, text: &str, allowed: &[SocketAddr]) -> Result<(), Refusal> {
        self.check_notified(annotation, name)?;
        let refusal = |rule| Refusal::value(annotation, &webhook_url::without_secrets(text), rule);
        webhook_url::check(text, allowed).map_err(refusal)
    }

    /// A container that is notified must exist and keep running.
    fn check_notified(&self, annotation: &str, name: &str) -> Result<(), Refusal> {
        if self.member(annotation, name)? == Role::Init {
            return Err(Refusal::Pod(format!(
                "annotation {} names init container {}, which ends before the agent can notify it of a change; remove the annotation",
                shown(annotation),
                shown(name)
            )));
        }
        Ok(())
    }

    /// Refuses an annotation of pods without an agent.
    fn check_restart(&self) -> Result<(), Refusal> {
        if self.user.annotations.contains_key(names::RESTART) {
            let message = format!(
                "restart is for pods without an agent; set {}: none in place of it for containers that are never to be restarted",
                names::NOTIFY
            );
            return Err(Refusal::both(names::RESTART, names::INJECT, &message));
        }
        Ok(())
    }
}

/// Refuses checks of a pod whose containers get a version by a restart.
fn check_unasked(request: &PodRequest, restart: &str) -> Result<(), Refusal> {
    let Some(name) = request.checks.keys().next() else { return Ok(()) };
    let message = "containers that get a version by a restart are not asked about it; choose one";
    Err(Refusal::both(restart, &format!("{}.{name}", names::CHECK), message))
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| {
        let text = error.to_string();
        // The refusal names the value already.
        text.split_once(": ").map_or(text.clone(), |(_, rule)| rule.to_owned())
    })
}
