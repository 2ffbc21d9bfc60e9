//! The volumes that injection adds, and the agent's mounts of them.

use nudge_api::PartKind;
use nudge_protocol::{ConfigName, VersionName, pod};
use serde_json::{Value, json};

use crate::injection::facts::InjectionFacts;
use crate::injection::moved_mounts::{MovedMounts, MovedVolume};
use crate::injection::quantity::Quantity;
use crate::injection::user_pod::{
    BOOTSTRAP_VOLUME_PREFIX, FILES_VOLUME, HUB_VOLUME, SHARE_VOLUME, STATE_VOLUME, VARIABLES_VOLUME,
};

/// The agent's own folders.
pub(super) const STATE_DIR: &str = "/run/nudge/state";
pub(super) const SHARE_DIR: &str = "/run/nudge/share";
pub(super) const FILES_DIR: &str = "/run/nudge/files";
pub(super) const VARIABLES_DIR: &str = "/run/nudge/variables";
pub(super) const BOOTSTRAP_DIR: &str = "/run/nudge/bootstrap";

/// The maximum number of volumes with parts of versions in one pod.
const MAX_PART_VOLUMES: usize = 32;
/// The mode of files, which every user may read: the agent's user differs from pod to pod, and only the agent mounts
/// these volumes.
const FILE_MODE: u32 = 0o444;

/// The volumes, and the agent's mounts of them.
#[derive(Clone, Debug, Default)]
pub(in crate::injection) struct Volumes {
    pub(in crate::injection) list: Vec<Value>,
    pub(in crate::injection) mounts: Vec<Value>,
    /// Whether parts of versions are mounted.
    pub(in crate::injection) has_bootstrap: bool,
    /// The versions whose parts are mounted.
    pub(in crate::injection) mounted: Vec<(ConfigName, VersionName)>,
    pub(in crate::injection) warnings: Vec<String>,
}

impl Volumes {
    pub(in crate::injection) fn of(
        configs: &[ConfigName],
        files: Option<Quantity>,
        moved: &MovedMounts,
        variables: bool,
        facts: &InjectionFacts,
    ) -> Self {
        let mut volumes = Self::default();
        volumes.add_memory(STATE_VOLUME, "16Mi", STATE_DIR);
        volumes.add_memory(SHARE_VOLUME, "1Mi", SHARE_DIR);
        if let Some(room) = files {
            volumes.add_memory(FILES_VOLUME, &room.memory(), FILES_DIR);
        }
        for MovedVolume { name, kept, room } in &moved.volumes {
            volumes.add_memory(name, &room.memory(), &kept.folder);
        }
        if variables {
            // There is room for each file twice, while one replaces another.
            volumes.add_memory(VARIABLES_VOLUME, "8Mi", VARIABLES_DIR);
        }
        let token = json!({"audience": pod::TOKEN_AUDIENCE, "expirationSeconds": 3600, "path": "token"});
        let sources = json!([{"serviceAccountToken": token}]);
        volumes.list.push(json!({"name": HUB_VOLUME, "projected": {"sources": sources}}));
        volumes.mounts.push(json!({"name": HUB_VOLUME, "mountPath": pod::HUB_PATH, "readOnly": true}));
        volumes.add_bootstrap(configs, facts);
        volumes
    }

    fn add_memory(&mut self, name: &str, size: &str, path: &str) {
        self.list.push(json!({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}));
        self.mounts.push(json!({"name": name, "mountPath": path}));
    }

    /// Adds the parts of the current versions, of each version all or none: the agent takes the mounted parts for the
    /// whole version.
    fn add_bootstrap(&mut self, configs: &[ConfigName], facts: &InjectionFacts) {
        let (mut count, mut omitted): (usize, Vec<&str>) = (0, Vec::new());
        for name in configs {
            let Some(config) = facts.configs.get(name) else { continue };
            let version = config.version.as_deref().and_then(|version| VersionName::new(version).ok());
            let is_whole = (1..).zip(&config.parts).all(|(number, part)| part.part == number);
            let Some(version) = version.filter(|_| is_whole) else { continue };
            if count + config.parts.len() > MAX_PART_VOLUMES {
                omitted.push(name.as_str());
                continue;
            }
            if !config.parts.is_empty() {
                self.mounted.push((name.clone(), version.clone()));
            }
            for part in &config.parts {
                count += 1;
                let volume = format!("{BOOTSTRAP_VOLUME_PREFIX}{count}");
                let suffix = match (part.kind, &part.digest) {
                    (PartKind::Secret, _) => pod::SECRET_SUFFIX.to_owned(),
                    (PartKind::ConfigMap, Some(digest)) => format!("{}{digest}", pod::DIGEST_SUFFIX),
                    (PartKind::ConfigMap, None) => String::new(),
                };
                let path = format!("{BOOTSTRAP_DIR}/{name}/{version}/{}{suffix}", part.part);
                self.mounts.push(json!({"name": volume, "mountPath": path, "readOnly": true}));
                self.list.push(match part.kind {
                    PartKind::ConfigMap => {
                        json!({"name": volume, "configMap": {"name": part.name, "optional": true, "defaultMode": FILE_MODE}})
                    }
                    PartKind::Secret => {
                        json!({"name": volume, "secret": {"secretName": part.name, "optional": true, "defaultMode": FILE_MODE}})
                    }
                });
            }
        }
        self.has_bootstrap = count > 0;
        if !omitted.is_empty() {
            let omitted = omitted.join(", ");
            self.warnings.push(format!(
                "at most {MAX_PART_VOLUMES} parts of versions are mounted: while the hub is away, this pod does not start with {omitted}"
            ));
        }
    }
}
