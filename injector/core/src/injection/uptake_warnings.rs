//! The warnings about containers that do not take a version while they run: they read variables or files that stay the
//! same, or an object that does not belong to the config.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::{Ack, ConfigName, env};

use super::facts::InjectionFacts;
use super::moved_mounts::{MovedMounts, owns};
use super::named_objects::volume_objects;
use super::refusal::shorten;
use super::request::PodRequest;
use super::request::annotations::{MOUNT_PATH, NOTIFY};
use super::targets::Targets;
use super::uptake::{ContainerUptake, MAX_PAIRS, PodReads, PodView, ReadPath, RestartCause, UnmovedMounts, Uptake};
use super::user_pod::UserPod;

/// Returns a warning for each container that takes versions only by a restart because of what it reads, and for each
/// notified container that reads an object which only has the config's name.
pub(super) fn warnings(
    pod: &UserPod,
    request: &PodRequest,
    targets: &Targets<'_>,
    configs: &[ConfigName],
    moved: &MovedMounts,
    facts: &InjectionFacts,
) -> Vec<String> {
    let reads = pod_reads(pod, request, targets, configs, moved);
    let uptakes = reads.uptakes(|config, kind| owns(config, kind, facts));
    let by_restart = uptakes.iter().filter_map(|uptake| {
        let Uptake::Restart(RestartCause::Reads(_)) = uptake.uptake else { return None };
        let fixed = reads.fixed_reads(uptake.config.as_str(), |kind| owns(uptake.config, kind, facts));
        let of_container = fixed.filter(|(container, _)| *container == uptake.container);
        let paths: Vec<ReadPath> = of_container.map(|(_, path)| path).collect();
        // Nobody expects these to change while the container runs, unless it is notified.
        let is_expected = |path: &ReadPath| matches!(path, ReadPath::Variables(_) | ReadPath::ObjectPart(_));
        let is_notified = targets.notified.contains_key(uptake.container);
        let warns = is_notified || !paths.iter().all(is_expected);
        warns.then(|| restart_warning(pod, moved, uptake, paths))
    });
    // A container that can read the config in another way is not warned of an object that has only its name.
    let has_other_way = |container: &str| {
        request.mount_path.is_some()
            || request.ack == Some(Ack::Fetched)
            || request.variables.contains_key(container)
            || !targets.notified.contains_key(container)
    };
    let of_others = reads.uptakes(|_, _| true).into_iter().filter_map(|uptake| {
        let Uptake::Restart(RestartCause::Reads(path)) = uptake.uptake else { return None };
        let is_of_others = path.object().is_some_and(|kind| !owns(uptake.config, kind, facts));
        let (container, config) = (shorten(uptake.container), shorten(uptake.config.as_str()));
        (is_of_others && !has_other_way(uptake.container)).then(|| {
            format!(
                "container {container} is notified of config {config}, but reads {path}, which is not in its spec.objects; let it read {}, or \
                 files by {MOUNT_PATH}",
                env::ENDPOINT
            )
        })
    });
    by_restart.chain(of_others).collect()
}

fn restart_warning(pod: &UserPod, moved: &MovedMounts, uptake: &ContainerUptake<'_>, paths: Vec<ReadPath>) -> String {
    let (container, config) = (shorten(uptake.container), shorten(uptake.config.as_str()));
    let volumes = pod.spec.volumes.iter().flatten();
    let mut of_config =
        volumes.filter(|volume| volume_objects(volume).any(|object| object.name == uptake.config.as_str()));
    let cause = of_config.find_map(|volume| moved.unmoved.iter().find(|(name, _)| *name == volume.name));
    let describe = |path: ReadPath| match (path, cause) {
        (ReadPath::ObjectFiles(_), Some((_, cause))) => format!("{path} ({cause})"),
        _ => path.to_string(),
    };
    let reads = paths.into_iter().map(describe).collect::<Vec<_>>().join(", and ");
    let remedy =
        if reads.ends_with(')') { String::new() } else { format!("; set {NOTIFY}.{container}: none to leave it out") };
    format!("container {container} takes config {config} only by a restart: it reads {reads}{remedy}")
}

/// Returns what the containers of the pod will read.
fn pod_reads(
    pod: &UserPod,
    request: &PodRequest,
    targets: &Targets<'_>,
    configs: &[ConfigName],
    moved: &MovedMounts,
) -> PodReads {
    let is_member = |name: &str| targets.members.iter().any(|member| member.name() == name);
    PodReads::read(&PodView {
        meta: &ObjectMeta { annotations: Some(pod.annotations.clone()), ..ObjectMeta::default() },
        spec: &pod.spec,
        configs,
        notified: targets.notified.clone(),
        kept_volume: &|name| moved.volumes.iter().map(|volume| &volume.kept).find(|kept| kept.volume == name),
        has_endpoint: &|container| is_member(&container.name),
        has_files: &|container| request.mount_path.is_some() && is_member(&container.name),
        mounts: UnmovedMounts::Stay,
        max_pairs: MAX_PAIRS,
    })
}
