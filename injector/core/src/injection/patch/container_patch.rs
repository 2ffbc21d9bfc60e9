//! The variables and mounts that the pod's own containers get.

use k8s_openapi::api::core::v1::VolumeMount;
use nudge_protocol::{VariableName, env, pod};
use serde_json::{Value, json};

use crate::injection::facts::Features;
use crate::injection::mount_paths::{is_within, real};
use crate::injection::refusal::{InjectionRefusal, shorten};
use crate::injection::request::annotations::{self, CONTAINERS, MOUNT_PATH};
use crate::injection::user_pod::{
    FILES_VOLUME, POD_IP, SHARE_VOLUME, UserContainer, UserPod, VARIABLES_VOLUME, certificate_file, token_file,
};

/// The variables and mounts of one container.
#[derive(Clone, Debug, Default)]
pub(in crate::injection) struct ContainerPatch {
    pub(in crate::injection) variables: Vec<Value>,
    pub(in crate::injection) mounts: Vec<Value>,
    pub(in crate::injection) warnings: Vec<String>,
}

impl ContainerPatch {
    pub(in crate::injection) fn of(
        pod: &UserPod,
        member: &UserContainer,
        port: u16,
        files: Option<&str>,
        features: Features,
    ) -> Result<Self, InjectionRefusal> {
        let name = member.name();
        let mut patch = Self::default();
        for variable in variables(name, port, features) {
            let variable_name = variable["name"].as_str().unwrap_or_default();
            if !member.container.env.iter().flatten().any(|variable| variable.name == variable_name) {
                patch.variables.push(variable);
            } else if variable_name == POD_IP {
                return Err(InjectionRefusal(format!(
                    "container {} sets variable {POD_IP}, which is reserved for Nudge; rename the variable",
                    shorten(name)
                )));
            } else {
                patch
                    .warnings
                    .push(format!("container {name} sets {variable_name} itself, so Nudge does not set it there"));
            }
        }
        patch.mount(pod, member, SHARE_VOLUME, pod::CONTAINER_PATH, None)?;
        if let Some(path) = files {
            patch.mount(pod, member, FILES_VOLUME, path, Some(MOUNT_PATH))?;
        }
        Ok(patch)
    }

    /// Adds variables that the kubelet reads from a file of the agent's. The container does not mount the volume.
    pub(in crate::injection) fn add_variables(
        &mut self,
        member: &UserContainer,
        keys: &[VariableName],
    ) -> Result<(), InjectionRefusal> {
        let sets = |name: &str| member.container.env.iter().flatten().any(|variable| variable.name == name);
        for key in keys.iter().map(VariableName::as_str) {
            if sets(key) {
                return Err(InjectionRefusal(format!(
                    "container {0} sets variable {1} itself, and annotation {2}.{0} requests it too; remove one of the two",
                    shorten(member.name()),
                    shorten(key),
                    annotations::VARIABLES
                )));
            }
            let reference = json!({"volumeName": VARIABLES_VOLUME, "path": member.name(), "key": key});
            self.variables.push(json!({"name": key, "valueFrom": {"fileKeyRef": reference}}));
        }
        Ok(())
    }

    /// Mounts a volume read-only. Refuses a container that has another mount at the path, or a service account's token
    /// above it.
    fn mount(
        &mut self,
        pod: &UserPod,
        member: &UserContainer,
        volume: &str,
        path: &str,
        annotation: Option<&str>,
    ) -> Result<(), InjectionRefusal> {
        let mut mounts = member.container.volume_mounts.iter().flatten();
        let at = real(path);
        let hides_path = |mount: &VolumeMount| {
            let taken = real(&mount.mount_path);
            is_within(&taken, &at) || (is_within(&at, &taken) && pod.has_token(&mount.name))
        };
        if let Some(taken) = mounts.find(|mount| hides_path(mount)) {
            let (name, taken) = (shorten(member.name()), shorten(&taken.mount_path));
            let remedy = match annotation {
                Some(annotation) => format!("choose another path with annotation {annotation}"),
                None => "mount it elsewhere".to_owned(),
            };
            return Err(InjectionRefusal(format!(
                "container {name} mounts a volume at {taken}, where Nudge's files would be; {remedy}, or exclude the container with \
                 annotation {CONTAINERS}"
            )));
        }
        self.mounts.push(json!({"name": volume, "mountPath": path, "readOnly": true}));
        Ok(())
    }
}

/// Returns the variables of the container `name`. Each refers only to earlier ones.
fn variables(name: &str, port: u16, features: Features) -> Vec<Value> {
    let mut variables = if features.env_files {
        let from_file = |key: &str| json!({"name": key, "valueFrom": {"fileKeyRef": {"volumeName": SHARE_VOLUME, "path": "env", "key": key}}});
        vec![from_file(env::ENDPOINT), from_file(env::TOKEN)]
    } else {
        let host = if features.ipv6 { format!("[$({POD_IP})]") } else { format!("$({POD_IP})") };
        vec![
            json!({"name": POD_IP, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}),
            json!({"name": env::ENDPOINT, "value": format!("https://{host}:{port}{}", env::CONFIG_PATH)}),
        ]
    };
    for (variable, value) in
        [(env::TOKEN_FILE, token_file()), (env::CERT, certificate_file()), (env::CONTAINER, name.to_owned())]
    {
        variables.push(json!({"name": variable, "value": value}));
    }
    variables
}
