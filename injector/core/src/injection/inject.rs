//! The injection of one pod: first the decisions, then the patch.

use std::collections::BTreeMap;

use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::{ConfigName, VersionName, pod};
use serde_json::Value;

use super::facts::InjectionFacts;
use super::mountpoints;
use super::moved_mounts::MovedMounts;
use super::patch::{AgentContainer, ContainerPatch, InjectionPlan, Volumes, agent_container, injection_patch, port};
use super::preflight;
use super::refusal::InjectionRefusal;
use super::request::{PodRequest, check_unknown_keys, gate_warning, resolve_configs};
use super::resources::{agent_resources, files_room};
use super::settings::InjectionSettings;
use super::start_gate::Gate;
use super::targets::{RunAsUser, Targets};
use super::uptake_warnings;
use super::user_pod::UserPod;

/// The maximum number of warnings: the API server passes on 4096 characters of them.
const MAX_WARNINGS: usize = MAX_CONFIGS;

/// The injection of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injection {
    /// The patch of the pod, which is empty if nothing is missing.
    pub patch: json_patch::Patch,
    /// The warnings for the user.
    pub warnings: Vec<String>,
    /// The versions whose parts the agent has mounted.
    pub mounted: Vec<(ConfigName, VersionName)>,
}

/// Injects the agent into a pod that opts in. `request` is the result of [`read`](super::read) for the same pod.
///
/// ```
/// use nudge_core::injection::{InjectionFacts, ResolvedConfig, inject, read};
/// # use nudge_core::injection::{AgentDefaults, InjectionSettings, UnknownKeys};
/// # let settings = InjectionSettings {
/// #     agent_image: "nudge-agent".to_owned(), agent_kill_image: "nudge-agent-kill".to_owned(),
/// #     image_pull_policy: None, image_pull_secrets: Vec::new(), hub: "https://nudge-hub".to_owned(),
/// #     foreign_containers: Vec::new(), foreign_containers_allowed: false,
/// #     agent_defaults: AgentDefaults::default(), unknown_keys: UnknownKeys::Refuse,
/// # };
/// let mut pod = serde_json::json!({
///     "metadata": {"labels": {"nudge.dev/inject": "true"}, "annotations": {"nudge.dev/configs": "shop"}},
///     "spec": {"containers": [{"name": "app"}]},
/// });
/// let shop = ("shop".parse().unwrap(), ResolvedConfig::default());
/// let facts = InjectionFacts { configs: [shop].into(), ..InjectionFacts::default() };
///
/// let request = read(&pod)?.expect("the pod opts in");
/// let injection = inject(&pod, &request, &facts, &settings)?;
/// json_patch::patch(&mut pod, &injection.patch).unwrap();
/// assert_eq!(pod["spec"]["containers"][0]["name"], "nudge-agent");
/// # Ok::<(), nudge_core::injection::InjectionRefusal>(())
/// ```
pub fn inject(
    raw: &Value,
    request: &PodRequest,
    facts: &InjectionFacts,
    settings: &InjectionSettings,
) -> Result<Injection, InjectionRefusal> {
    let pod = UserPod::of(raw)?;
    let sidecar = facts.features.native_sidecars;
    let mut warnings = check_unknown_keys(&request.unknown, settings.unknown_keys)?;
    warnings.extend(request.ignored.iter().cloned());

    let gate = Gate::of(&pod, facts.features);
    warnings.extend(gate_warning(gate, &pod, request));
    let (configs, config_warnings) = resolve_configs(&pod, request, facts, settings, gate)?;
    warnings.extend(config_warnings);
    let targets = Targets::of(&pod, request, settings, sidecar)?;
    warnings.extend(preflight::check(&pod, request, &targets, settings, facts.features)?);
    if targets.restarted().next().is_some() {
        preflight::check_rules(raw)?;
        preflight::check_policies(raw)?;
    }
    warnings.extend(targets.warnings());
    let run_as_user = RunAsUser::of(&pod, request, &targets);
    warnings.extend(run_as_user.warnings.iter().cloned());
    let files = files_room(request, &configs, facts);
    let mount_paths: Vec<&str> = [pod::CONTAINER_PATH].into_iter().chain(request.mount_path.as_deref()).collect();
    let mut moved = MovedMounts::of(&pod, &targets.members, &configs, facts, run_as_user.uid, &mount_paths);
    let resources_with = |room| agent_resources(&pod, request, &settings.agent_defaults, files, room, &facts.limits);
    let mut resources = resources_with(moved.room());
    if resources.is_err() && moved.room().is_some() {
        moved = moved.without_memory(run_as_user.uid);
        resources = resources_with(None);
    }
    let (resources, resource_warnings) = resources?;
    warnings.extend(resource_warnings);
    warnings.extend(uptake_warnings::warnings(&pod, request, &targets, &configs, &moved, facts));
    warnings.extend(moved.warnings());
    let mount_path = request.mount_path.as_deref();
    warnings.extend(mountpoints::check(&pod, &targets.members, mount_path)?);
    let volumes = Volumes::of(&configs, files, &moved, !request.variables.is_empty(), facts);
    warnings.extend(volumes.warnings.iter().cloned());
    let mut container_patches = BTreeMap::new();
    for member in &targets.members {
        let mut patch = ContainerPatch::of(&pod, member, port(request, settings), mount_path, facts.features)?;
        if let Some(keys) = request.variables.get(member.name()) {
            patch.add_variables(member, keys)?;
        }
        warnings.extend(patch.warnings.iter().cloned());
        container_patches.insert(member.name().to_owned(), patch);
    }

    warnings.truncate(MAX_WARNINGS);
    let agent = agent_container(&AgentContainer {
        configs: &configs,
        request,
        targets: &targets,
        run_as_user: &run_as_user,
        moved: &moved,
        resources,
        volumes: &volumes,
        facts,
        settings,
        gate,
        end_with_containers: !sidecar && pod.restart_policy() != "Always",
        host_network: pod.spec.host_network == Some(true),
    });
    let plan = InjectionPlan {
        agent,
        list: if sidecar { "initContainers" } else { "containers" },
        volumes: &volumes.list,
        moved: &moved,
        container_patches,
        share_processes: targets.signalled().next().is_some() && pod.spec.host_pid != Some(true),
        pull_secrets: &settings.image_pull_secrets,
        warnings: &warnings,
        birth_labels: configs.iter().any(|name| facts.configs.get(name).is_some_and(|config| config.selects)),
    };
    let patch =
        injection_patch(raw, &plan).map_err(|error| InjectionRefusal(format!("this pod can't be changed: {error}")))?;
    Ok(Injection { patch, warnings, mounted: volumes.mounted.clone() })
}
