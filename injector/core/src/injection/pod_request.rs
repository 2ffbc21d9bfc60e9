//! What a pod asks for by its annotations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use nudge_protocol::limits::MAX_WEBHOOKS;
use nudge_protocol::{Ack, ConfigName, Notify, labels, pod};
use serde_json::Value;

use super::annotations as names;
use super::candidates::{bounded, referenced_maps};
use super::quantity::Quantity;
use super::refusal::{Refusal, shown};
use super::user_pod::{Role, UserPod};
use super::{nearest, url, values};

/// What a pod asks for; made by [`read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRequest {
    pub(super) named: Option<Vec<ConfigName>>,
    pub(super) maps: Vec<String>,
    pub(super) notify: Option<Notify>,
    pub(super) notify_of: BTreeMap<String, Notify>,
    pub(super) webhooks: BTreeMap<String, String>,
    pub(super) webhook_allow: Vec<SocketAddr>,
    pub(super) port: Option<u16>,
    pub(super) mount_path: Option<String>,
    pub(super) ack: Option<Ack>,
    pub(super) containers: Option<Vec<String>>,
    pub(super) run_as_user: Option<i64>,
    pub(super) cpu: Option<Quantity>,
    pub(super) memory: Option<Quantity>,
    pub(super) start_timeout: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl PodRequest {
    /// The configs to look up: those that the annotation names, else those of the ConfigMaps that could be meant.
    pub fn configs(&self) -> Vec<ConfigName> {
        match &self.named {
            Some(named) => named.clone(),
            None => self.maps.iter().filter_map(|name| ConfigName::new(name).ok()).collect(),
        }
    }

    /// The plain ConfigMaps whose metadata must be looked up: those that could be meant where no annotation names the configs.
    pub fn maps(&self) -> Vec<String> {
        if self.named.is_some() { Vec::new() } else { self.maps.clone() }
    }
}

/// What a pod asks for by its annotations; `None` where it does not opt in.
pub fn read(pod: &Value) -> Result<Option<PodRequest>, Refusal> {
    if !opts_in(pod)? {
        return Ok(None);
    }
    let user = UserPod::of(pod)?;
    Reader { user: &user }.read().map(Some)
}

/// Annotation of what a kubelet shows of a pod that it runs from a file: it runs already, and the API server takes no token for it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation comes before the label of the same name.
fn opts_in(pod: &Value) -> Result<bool, Refusal> {
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Ok(false);
    }
    let of = |map: &str| pod["metadata"][map][names::INJECT].as_str();
    match of("annotations").or_else(|| of("labels")) {
        None => Ok(false),
        Some(text) => values::flag(text).map_err(|allowed| Refusal::value(names::INJECT, text, allowed)),
    }
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
        let maps = if named.is_some() { Vec::new() } else { referenced_maps(self.user, containers.as_deref(), &[]) };
        bounded(&maps)?;
        let mut request = PodRequest {
            maps: maps.into_iter().map(|map| map.name).collect(),
            named,
            notify: self.get(names::NOTIFY, parsed)?,
            notify_of: BTreeMap::new(),
            webhooks: BTreeMap::new(),
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
        self.of_containers(&mut request)?;
        self.exclusions(&request)?;
        request.warnings = self.unknown();
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

    /// Annotations that end with a container's name.
    fn of_containers(&self, request: &mut PodRequest) -> Result<(), Refusal> {
        for (annotation, text) in &self.user.annotations {
            if let Some(name) = of_container(annotation, names::NOTIFY) {
                self.told(annotation, name)?;
                let way: Notify = parsed(text).map_err(|allowed| Refusal::value(annotation, text, allowed))?;
                request.notify_of.insert(name.to_owned(), way);
            } else if let Some(name) = of_container(annotation, names::WEBHOOK) {
                self.told(annotation, name)?;
                let refused = |allowed| Refusal::value(annotation, &url::without_secrets(text), allowed);
                url::check(text, &request.webhook_allow).map_err(refused)?;
                request.webhooks.insert(name.to_owned(), text.clone());
            }
        }
        if request.webhooks.len() > MAX_WEBHOOKS {
            return Err(Refusal::Pod(format!(
                "{} annotations {}.… are too many: a pod can have {MAX_WEBHOOKS} webhooks",
                request.webhooks.len(),
                names::WEBHOOK
            )));
        }
        for name in request.webhooks.keys() {
            let (single, own) = (request.notify_of.get(name).copied(), format!("{}.{name}", names::NOTIFY));
            let (way, annotation) = match single {
                Some(way) => (way, own.as_str()),
                None => (request.notify.unwrap_or_default(), names::NOTIFY),
            };
            if let Some(signal) = way.signal() {
                let message =
                    format!("container {name} is told by {signal} or by webhook; set {own}: webhook for the hook");
                return Err(Refusal::both(annotation, &format!("{}.{name}", names::WEBHOOK), &message));
            }
            request.notify_of.insert(name.clone(), Notify::Webhook);
        }
        Ok(())
    }

    /// A container that is to be told must be there, and keep running.
    fn told(&self, annotation: &str, name: &str) -> Result<(), Refusal> {
        if self.member(annotation, name)? == Role::Init {
            return Err(Refusal::Pod(format!(
                "annotation {} names init container {}, which ends before a change could be told; take the annotation out",
                shown(annotation),
                shown(name)
            )));
        }
        Ok(())
    }

    /// Annotations that contradict each other or what there is.
    fn exclusions(&self, request: &PodRequest) -> Result<(), Refusal> {
        if self.get(names::REFRESH, values::flag)? == Some(true) {
            let message = "refresh is for pods without an agent; take one of the two out";
            return Err(Refusal::both(names::REFRESH, names::INJECT, message));
        }
        let restarts = self.get(names::CONFIG_RESTARTS, |text| match text {
            "in-place" => Err("\"in-place\" is not there yet; write \"true\" or \"false\"".to_owned()),
            text => values::flag(text),
        })?;
        let ways = request.notify.iter().chain(request.notify_of.values());
        if restarts == Some(true) && ways.into_iter().any(|way| *way != Notify::None) {
            let single = request.notify_of.keys().next().map(|name| format!("{}.{name}", names::NOTIFY));
            let other = single.filter(|_| request.notify.unwrap_or_default() == Notify::None);
            let message = "a change restarts the containers or is told to them; choose one";
            return Err(Refusal::both(names::CONFIG_RESTARTS, other.as_deref().unwrap_or(names::NOTIFY), message));
        }
        Ok(())
    }

    /// Annotations that look like ours and are not.
    fn unknown(&self) -> Vec<String> {
        let ours = self.user.annotations.keys().filter(|name| name.starts_with(labels::PREFIX));
        let strange = ours.filter(|name| {
            let single = [names::NOTIFY, names::WEBHOOK].iter().any(|base| of_container(name, base).is_some());
            !single
                && name.as_str() != names::WEBHOOK
                && !names::OURS.contains(&name.as_str())
                && !names::KNOWN.contains(&name.as_str())
        });
        let mut warnings: Vec<String> = strange
            .map(|name| match nearest::nearest(name, &names::KNOWN) {
                Some(known) => format!("annotation {} is not known; did you mean {known}?", shown(name)),
                None => format!("annotation {} is not known; see the README for those that are", shown(name)),
            })
            .collect();
        if self.user.annotations.contains_key(names::WEBHOOK) {
            warnings.push(format!("annotation {0} is not known; did you mean {0}.CONTAINER?", names::WEBHOOK));
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
        // The value stands in the sentence already.
        text.split_once(": ").map_or(text.clone(), |(_, rule)| rule.to_owned())
    })
}
