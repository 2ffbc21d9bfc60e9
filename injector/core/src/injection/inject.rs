//! The whole injection: the parts decided one after the other, then the changes.

use std::collections::BTreeMap;

use nudge_protocol::limits::MAX_CONFIGS;
use serde_json::Value;

use super::agent::{self, Parts, port};
use super::apply::{Plan, apply};
use super::container_patch::ContainerPatch;
use super::facts::Facts;
use super::pod_request::PodRequest;
use super::refusal::Refusal;
use super::run_as_user::RunAsUser;
use super::settings::InjectionSettings;
use super::targets::Targets;
use super::user_pod::UserPod;
use super::volumes::Volumes;
use super::{candidates, preflight, resources};

/// Most warnings: the API server passes on 4096 characters of them.
const MAX_WARNINGS: usize = MAX_CONFIGS;

/// What becomes of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injection {
    /// What to change; empty where all is there.
    pub patch: json_patch::Patch,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// Puts the agent into a pod that asks for it with `request`, as [`read`](super::read) has read it.
pub fn inject(
    pod: &Value,
    request: &PodRequest,
    facts: &Facts,
    settings: &InjectionSettings,
) -> Result<Injection, Refusal> {
    let user = UserPod::of(pod)?;
    let foreign = &settings.foreign_containers;
    let sidecar = facts.features.native_sidecars;
    let mut warnings = request.warnings.clone();

    let (configs, more) = candidates::resolve(&user, request, facts, foreign)?;
    warnings.extend(more);
    let targets = Targets::of(&user, request, foreign, sidecar)?;
    warnings.extend(preflight::check(&user, request, &targets, sidecar)?);
    let run_as_user = RunAsUser::of(&user, request, &targets);
    warnings.extend(run_as_user.warnings.iter().cloned());
    let (amounts, more) = resources::amounts(&user, request, &facts.limits)?;
    warnings.extend(more);
    let files = request.mount_path.as_deref();
    let volumes = Volumes::of(&configs, files.is_some(), facts);
    warnings.extend(volumes.warnings.iter().cloned());
    let mut container_patch = BTreeMap::new();
    for member in &targets.members {
        let own = ContainerPatch::of(member, port(request), files, facts.features)?;
        warnings.extend(own.warnings.iter().cloned());
        container_patch.insert(member.name().to_owned(), own);
    }

    warnings.truncate(MAX_WARNINGS);
    let agent = agent::container(&Parts {
        configs: &configs,
        request,
        targets: &targets,
        run_as_user: &run_as_user,
        amounts,
        volumes: &volumes,
        facts,
        settings,
        ends: !sidecar && user.spec.restart_policy.as_deref().unwrap_or("Always") != "Always",
        on_node: user.spec.host_network == Some(true),
    });
    let plan = Plan {
        agent,
        list: if sidecar { "initContainers" } else { "containers" },
        volumes: &volumes.list,
        container_patch,
        share_processes: targets.signalled().next().is_some() && user.spec.host_pid != Some(true),
        pull_secrets: &settings.image_pull_secrets,
        warnings: &warnings,
    };
    let patch = apply(pod, &plan).map_err(|error| Refusal::Pod(format!("this pod can't be changed: {error}")))?;
    Ok(Injection { patch, warnings })
}
