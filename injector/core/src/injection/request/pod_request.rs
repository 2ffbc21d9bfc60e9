//! What a pod asks for by its annotations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use nudge_protocol::limits::{MAX_CHECKS, MAX_VARIABLES, MAX_WEBHOOKS};
use nudge_protocol::{Ack, ConfigName, Notify, VariableName, labels, pod};
use serde_json::Value;

use super::annotations as names;
use super::opt_in::asks;
use super::references::{check_count, references};
use super::suggestion::suggestion;
use super::{values, webhook_url};
use crate::injection::quantity::Quantity;
use crate::injection::refusal::{Refusal, shown};
use crate::injection::user_pod::{Role, UserPod};

/// What a pod asks for; made by [`read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRequest {
    pub(in crate::injection) service_account: String,
    pub(in crate::injection) named: Option<Vec<ConfigName>>,
    pub(in crate::injection) references: Vec<String>,
    pub(in crate::injection) notify: Option<Notify>,
    pub(in crate::injection) notify_of: BTreeMap<String, Notify>,
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
    pub(in crate::injection) warnings: Vec<String>,
}

impl PodRequest {
    /// The configs to look up: those that the annotation names, else those of the ConfigMaps that the containers reference.
    pub fn configs(&self) -> Vec<ConfigName> {
        match &self.named {
            Some(named) => named.clone(),
            None => self.references.iter().filter_map(|name| ConfigName::new(name).ok()).collect(),
        }
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
        let references = if named.is_some() { Vec::new() } else { references(self.user, containers.as_deref(), &[]) };
        check_count(&references)?;
        let mut request = PodRequest {
            service_account: self.user.service_account().to_owned(),
            references: references.into_iter().map(|reference| reference.name).collect(),
            named,
            notify: self.get(names::NOTIFY, parsed)?,
            notify_of: BTreeMap::new(),
            webhooks: BTreeMap::new(),
            checks: BTreeMap::new(),
            variables: BTreeMap::new(),
            webhook_allow: self.get(names::WEBHOOK_ALLOW, values::targets)?.unwrap_or_default(),
            port: self.get(names::PORT, values::port)?,
            mount_path: self.get(names::MOUNT_PATH, values::mount_path)?,
            ack: self.get(names::ACK, parsed)?,
            containers,
            run_as_user: self.get(names::RUN_AS_USER, values::uid)?,
            cpu: self.get(names::CPU, values::cpu)?,
            memory: self.get(names::MEMORY, values::memory)?,
            start_timeout: self.get(names::START_TIMEOUT, values::start_timeout)?,
            warnings: Vec::new(),
        };
        self.read_container_annotations(&mut request)?;
        self.check_exclusions(&request)?;
        request.warnings = self.unknown_annotations();
        Ok(request)
    }

    /// One annotation, where it is set.
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
                let notify: Notify = parsed(text).map_err(|allowed| Refusal::value(annotation, text, allowed))?;
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
                let message =
                    format!("annotations {base}.… ask for {count}, which are too many: a pod can have {most} {what}");
                return Err(Refusal::Pod(message));
            }
        }
        for name in request.webhooks.keys() {
            let (notify, annotation) = request.notified_by(name);
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
            if !matches!(notify, Notify::None | Notify::Restart) {
                let message = format!(
                    "a variable changes by a restart alone, and container {name} is notified by {notify}; remove one of the two"
                );
                return Err(Refusal::both(&annotation, &format!("{}.{name}", names::VARIABLES), &message));
            }
            request.notify_of.insert(name.clone(), Notify::Restart);
        }
        Ok(())
    }

    /// A container that is posted to must keep running, and the URL must be in the pod or allowed.
    fn check_url(&self, annotation: &str, name: &str, text: &str, allowed: &[SocketAddr]) -> Result<(), Refusal> {
        self.check_notified(annotation, name)?;
        let refused = |rule| Refusal::value(annotation, &webhook_url::without_secrets(text), rule);
        webhook_url::check(text, allowed).map_err(refused)
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

    /// Refuses annotations that exclude each other.
    fn check_exclusions(&self, request: &PodRequest) -> Result<(), Refusal> {
        if self.get(names::REFRESH, values::flag)? == Some(true) {
            let message = "refresh is for pods without an agent; remove one of the two";
            return Err(Refusal::both(names::REFRESH, names::INJECT, message));
        }
        let restarts = self.get(names::CONFIG_RESTARTS, |text| match text {
            "in-place" => {
                Err("write \"true\" or \"false\"; for a restart in place, set nudge.dev/notify: restart".to_owned())
            }
            text => values::flag(text),
        })?;
        let notified = request.notify.iter().chain(request.notify_of.values());
        if restarts == Some(true) && notified.into_iter().any(|notify| *notify != Notify::None) {
            let single = request.notify_of.keys().next().map(|name| format!("{}.{name}", names::NOTIFY));
            let other = single.filter(|_| request.notify.unwrap_or_default() == Notify::None);
            let message = "a change either restarts the workload, or its containers are notified or restarted in place; choose one";
            return Err(Refusal::both(names::CONFIG_RESTARTS, other.as_deref().unwrap_or(names::NOTIFY), message));
        }
        if let Some(name) = request.checks.keys().next().filter(|_| restarts == Some(true)) {
            let message = "containers that get a version by a restart are not asked about it; choose one";
            return Err(Refusal::both(names::CONFIG_RESTARTS, &format!("{}.{name}", names::CHECK), message));
        }
        let ways: Vec<Notify> = request.notify.iter().chain(request.notify_of.values()).copied().collect();
        if !ways.contains(&Notify::Restart) {
            return Ok(());
        }
        if let Some(other) = ways.iter().find(|way| !matches!(way, Notify::None | Notify::Restart)) {
            return Err(Refusal::Pod(format!(
                "a container of this pod is notified by {other}, and {}: restart of another one ends all containers; choose one for all",
                names::NOTIFY
            )));
        }
        if let Some(name) = request.checks.keys().next() {
            let message = "containers that get a version by a restart are not asked about it; choose one";
            return Err(Refusal::both(
                &format!("{}: restart", names::NOTIFY),
                &format!("{}.{name}", names::CHECK),
                message,
            ));
        }
        Ok(())
    }

    /// Warnings about annotations with our prefix that we do not know.
    fn unknown_annotations(&self) -> Vec<String> {
        let ours = self.user.annotations.keys().filter(|name| name.starts_with(labels::PREFIX));
        let strange = ours.filter(|name| {
            let single = [names::NOTIFY, names::WEBHOOK, names::CHECK, names::VARIABLES]
                .iter()
                .any(|base| of_container(name, base).is_some());
            !single
                && ![names::WEBHOOK, names::CHECK, names::VARIABLES].contains(&name.as_str())
                && !names::OURS.contains(&name.as_str())
                && !names::KNOWN.contains(&name.as_str())
        });
        let mut warnings: Vec<String> = strange
            .map(|name| match suggestion(name, &names::KNOWN) {
                Some(known) => format!("annotation {} is not known; did you mean {known}?", shown(name)),
                None => format!("annotation {} is not known; the README lists the known ones", shown(name)),
            })
            .collect();
        for base in [names::WEBHOOK, names::CHECK, names::VARIABLES] {
            if self.user.annotations.contains_key(base) {
                warnings.push(format!("annotation {base} is not known; did you mean {base}.CONTAINER?"));
            }
        }
        warnings
    }
}

/// The container's name at the end of an annotation `<base>.<name>`. The agent's own does not count.
fn of_container<'a>(annotation: &'a str, base: &str) -> Option<&'a str> {
    annotation.strip_prefix(base)?.strip_prefix('.').filter(|name| *name != pod::AGENT_CONTAINER)
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| {
        let text = error.to_string();
        // The refusal names the value already.
        text.split_once(": ").map_or(text.clone(), |(_, rule)| rule.to_owned())
    })
}
