//! The containers that use the agent, and the ones that it notifies of a change by a signal or a webhook.

mod run_as_user;
mod runtime;

use std::collections::BTreeMap;

use nudge_protocol::Notify;
use nudge_protocol::expectation::Sign;

pub(super) use self::run_as_user::{NOBODY_UID, RunAsUser, reader_of};
use super::refusal::{InjectionRefusal, shorten};
use super::request::PodRequest;
use super::request::annotations::{CHECK, CONTAINERS, KEYS, NOTIFY, VARIABLES, VERIFY, WEBHOOK};
use super::settings::InjectionSettings;
use super::user_pod::{ContainerRole, UserContainer, UserPod};

/// The containers that use the agent.
pub(super) struct Targets<'a> {
    /// The containers that get variables and mounts.
    pub(super) members: Vec<&'a UserContainer>,
    /// The notification of each container, by the container's name, so that the positions of other injectors'
    /// containers make no difference.
    pub(super) notified: BTreeMap<&'a str, Notify>,
}

impl<'a> Targets<'a> {
    /// Returns the targets of a pod. `is_sidecar`: whether the agent starts before the init containers, so that they
    /// can use it, too.
    pub(super) fn of(
        pod: &'a UserPod,
        request: &'a PodRequest,
        settings: &InjectionSettings,
        is_sidecar: bool,
    ) -> Result<Self, InjectionRefusal> {
        let foreign = &settings.foreign_containers;
        if !settings.foreign_containers_allowed {
            refuse_foreign(request, foreign)?;
        }
        let can_use = |member: &UserContainer| is_sidecar || member.role == ContainerRole::Main;
        let members: Vec<&UserContainer> = if let Some(names) = &request.containers {
            let candidates = pod.members.iter().filter(|member| names.iter().any(|name| name == member.name()));
            let candidates: Vec<&UserContainer> = candidates.collect();
            if let Some(init_container) = candidates.iter().find(|member| !can_use(member)) {
                return Err(InjectionRefusal(format!(
                    "annotation {CONTAINERS} names init container {}, which ends before the agent starts: this cluster has no native \
                     sidecars (Kubernetes 1.29); remove it from the annotation",
                    shorten(init_container.name())
                )));
            }
            candidates
        } else {
            let candidates = pod.members.iter().filter(|member| !foreign.iter().any(|name| name == member.name()));
            candidates.filter(|member| can_use(member)).collect()
        };
        let running = members.iter().filter(|member| member.role != ContainerRole::Init);
        let mut notified: BTreeMap<&str, Notify> =
            running.map(|member| (member.name(), request.notify.unwrap_or_default())).collect();
        notified.extend(request.notify_of.iter().map(|(name, notify)| (name.as_str(), *notify)));
        notified.retain(|_, notify| *notify != Notify::None);
        let is_member = |name: &str| members.iter().any(|member| member.name() == name);
        if let Some(name) = request.variables.keys().find(|name| !is_member(name)) {
            return Err(InjectionRefusal(format!(
                "annotation {VARIABLES}.{0} names container {0}, which does not use the agent; add it to {CONTAINERS}, or remove the annotation",
                shorten(name)
            )));
        }
        if let Some(name) = request.keys.keys().find(|name| !notified.contains_key(name.as_str())) {
            return Err(InjectionRefusal(format!(
                "annotation {KEYS}.{0} says which keys container {0} is notified of, and the agent does not notify {0}; set {NOTIFY}.{0} to a \
                 signal or webhook, or remove the annotation",
                shorten(name)
            )));
        }
        check_verified(request, &notified)?;
        Ok(Self { members, notified })
    }

    /// Returns warnings about possible effects of the signals on the containers, as far as the pod shows which programs
    /// the containers run.
    pub(super) fn warnings(&self) -> Vec<String> {
        let signal = |member: &UserContainer| self.notified.get(member.name())?.signal();
        let warning = |member: &&UserContainer| runtime::warning(&member.container, signal(member)?);
        self.members.iter().filter_map(warning).collect()
    }

    /// Returns the containers that are notified by a signal.
    pub(super) fn signalled(&self) -> impl Iterator<Item = &'a str> {
        self.notified.iter().filter(|(_, notify)| notify.signal().is_some()).map(|(name, _)| *name)
    }

    /// Returns the containers that are restarted, with all others of the pod.
    pub(super) fn restarted(&self) -> impl Iterator<Item = &'a str> {
        self.notified.iter().filter(|(_, notify)| **notify == Notify::InPlace).map(|(name, _)| *name)
    }
}

/// Checks that a container with `nudge.dev/verify` is notified, and in a way that lets the agent see the effect.
fn check_verified(request: &PodRequest, notified: &BTreeMap<&str, Notify>) -> Result<(), InjectionRefusal> {
    for (name, expectation) in &request.verify {
        let notify = notified.get(name.as_str());
        let (fault, remedy) = match (notify, &expectation.sign) {
            (None, _) => ("is not notified", format!("set {NOTIFY}.{name} to a signal, or {WEBHOOK}.{name}")),
            (Some(Notify::Webhook), Sign::Workers) => (
                "is notified by webhook, so the agent does not see its processes",
                format!("set {NOTIFY}.{name} to a signal, or write URL newer METRIC or URL is KEY"),
            ),
            (Some(Notify::Webhook), _) if !request.webhooks.contains_key(name) => (
                "subscribes by POST /hooks, so the agent does not know which event must show something",
                format!("set {WEBHOOK}.{name}"),
            ),
            _ => continue,
        };
        return Err(InjectionRefusal(format!(
            "annotation {VERIFY}.{0} says what container {0} must show after its notification, and the container {fault}; \
             {remedy}, or remove the annotation",
            shorten(name)
        )));
    }
    Ok(())
}

/// Refuses annotations that name another injector's container: such a container has rights that this pod's author
/// lacks, such as the identity of a mesh.
fn refuse_foreign(request: &PodRequest, foreign: &[String]) -> Result<(), InjectionRefusal> {
    let listed = request.containers.iter().flatten().map(|name| (CONTAINERS.to_owned(), name));
    let variables = request.variables.keys().map(|name| (format!("{VARIABLES}.{name}"), name));
    let notified = request.notify_of.keys().map(|name| (format!("{NOTIFY}.{name}, or its webhook,"), name));
    let checked = request.checks.keys().map(|name| (format!("{CHECK}.{name}"), name));
    let keys = request.keys.keys().map(|name| (format!("{KEYS}.{name}"), name));
    let verified = request.verify.keys().map(|name| (format!("{VERIFY}.{name}"), name));
    let of_containers = variables.chain(notified).chain(checked).chain(keys).chain(verified);
    let Some((annotation, name)) = listed.chain(of_containers).find(|(_, name)| foreign.contains(name)) else {
        return Ok(());
    };
    Err(InjectionRefusal(format!(
        "annotation {} names container {}, which another injector adds; remove it from the annotation, or rename it \
         if it is this pod's own (an admin of the cluster can set NUDGE_FOREIGN_CONTAINERS_ALLOWED)",
        shorten(&annotation),
        shorten(name)
    )))
}
