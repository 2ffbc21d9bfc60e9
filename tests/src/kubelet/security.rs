//! The user and the capabilities of a container: its specification as arguments of setpriv(1), which gives the first
//! process the same as runc(8).

use anyhow::{Result, ensure};
use serde_json::Value;

/// What containerd lets a container do that says nothing of it.
const DEFAULT: [&str; 14] = [
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
];

/// A container's user, and what that user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Security {
    /// The user.
    pub(super) uid: u32,
    /// Its group.
    pub(super) gid: u32,
    /// Other groups.
    pub(super) groups: Vec<u32>,
    /// The file system cannot be written, apart from volumes.
    pub(super) read_only_root: bool,
    no_new_privileges: bool,
    capabilities: Vec<String>,
}

/// Returns the user that a pod's or container's security context names.
fn named(pod: &Value, container: &Value, field: &str) -> Option<u32> {
    let id_in = |context: &Value| context[field].as_u64().and_then(|id| u32::try_from(id).ok());
    id_in(&container["securityContext"]).or_else(|| id_in(&pod["spec"]["securityContext"]))
}

/// Returns the one user of all containers, if there is one: the kubelet gives service-account tokens to it.
pub(super) fn only_user(pod: &Value) -> Option<u32> {
    let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod["spec"][list].as_array()).flatten();
    let mut users = lists.map(|container| named(pod, container, "runAsUser"));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first)
}

/// Returns the group that volumes belong to, if one is requested.
pub(super) fn volumes_group(pod: &Value) -> Option<u32> {
    pod["spec"]["securityContext"]["fsGroup"].as_u64().and_then(|id| u32::try_from(id).ok())
}

impl Security {
    /// Returns what the specification says, over the user that the image has.
    pub(super) fn of(pod: &Value, container: &Value, image_user: u32) -> Result<Self> {
        let context = &container["securityContext"];
        let uid = named(pod, container, "runAsUser");
        let gid = named(pod, container, "runAsGroup").unwrap_or(if uid.is_some() { 0 } else { image_user });
        let uid = uid.unwrap_or(image_user);
        let either = |field: &str| context[field].as_bool().or_else(|| pod["spec"]["securityContext"][field].as_bool());
        ensure!(
            uid != 0 || either("runAsNonRoot") != Some(true),
            "CreateContainerConfigError: runAsNonRoot, and the user is root"
        );
        let list = |field: &str| {
            let names = context["capabilities"][field].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.map(str::to_lowercase).collect::<Vec<_>>()
        };
        let (drop, add) = (list("drop"), list("add"));
        let dropped = |name: &str| drop.iter().any(|dropped| dropped == "all" || dropped == name);
        let kept = DEFAULT.into_iter().filter(|name| !dropped(name)).map(str::to_owned);
        let mut capabilities: Vec<String> = kept.chain(add).collect();
        capabilities.sort();
        capabilities.dedup();
        let supplemental = pod["spec"]["securityContext"]["supplementalGroups"].as_array().into_iter().flatten();
        let supplemental = supplemental.filter_map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
        Ok(Self {
            uid,
            gid,
            groups: supplemental.chain(volumes_group(pod)).collect(),
            read_only_root: context["readOnlyRootFilesystem"] == true,
            no_new_privileges: context["allowPrivilegeEscalation"] == false,
            capabilities,
        })
    }

    /// Returns the arguments of setpriv(1).
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut bounding = vec!["-all".to_owned()];
        bounding.extend(self.capabilities.iter().map(|name| format!("+{name}")));
        // Like runc(8), keeps what may be kept until the program is started: only a file with capabilities keeps more
        // than nothing then.
        let mut arguments =
            ["--securebits", "+no_setuid_fixup", "--inh-caps", "-all", "--bounding-set"].map(str::to_owned).to_vec();
        arguments.push(bounding.join(","));
        arguments.push(format!("--reuid={}", self.uid));
        arguments.push(format!("--regid={}", self.gid));
        if self.groups.is_empty() {
            arguments.push("--clear-groups".to_owned());
        } else {
            let groups: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
            arguments.push(format!("--groups={}", groups.join(",")));
        }
        if self.no_new_privileges {
            arguments.push("--no-new-privs".to_owned());
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_containers_context_comes_before_the_pods_and_that_before_the_image() {
        let pod = json!({"spec": {
            "securityContext": {"runAsUser": 5, "fsGroup": 7},
            "containers": [{}, {"securityContext": {"runAsUser": 6}}],
        }});
        let [first, second] = [0, 1].map(|at| Security::of(&pod, &pod["spec"]["containers"][at], 9).unwrap());
        assert_eq!((first.uid, first.gid, second.uid), (5, 0, 6));
        assert_eq!(first.groups, [7]);
        assert_eq!(only_user(&pod), None);
        assert_eq!(only_user(&json!({"spec": {"securityContext": {"runAsUser": 5}, "containers": [{}, {}]}})), Some(5));
        assert_eq!(Security::of(&json!({}), &json!({}), 9).unwrap().uid, 9);
        assert!(Security::of(&json!({}), &json!({"securityContext": {"runAsNonRoot": true}}), 0).is_err());
    }

    #[test]
    fn capabilities_are_dropped_before_they_are_added() {
        let context = json!({"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["KILL"]}, "allowPrivilegeEscalation": false}});
        let security = Security::of(&json!({}), &context, 9).unwrap();
        assert_eq!(security.capabilities, ["kill"]);
        assert!(security.arguments().contains(&"--no-new-privs".to_owned()));
        assert_eq!(Security::of(&json!({}), &json!({}), 0).unwrap().capabilities.len(), DEFAULT.len());
    }
}
