//! The volumes that injection adds, and the agent's mounts of them.

use nudge_api::PartKind;
use nudge_protocol::{ConfigName, VersionName, pod};
use serde_json::{Value, json};

use crate::injection::facts::Facts;
use crate::injection::moved_mounts::{MovedMounts, MovedVolume};
use crate::injection::quantity::Quantity;
use crate::injection::user_pod::{BOOTSTRAP, FILES, HUB, SHARE, STATE, VARIABLES};

/// The agent's own folders.
pub(super) const STATE_DIR: &str = "/run/nudge/state";
pub(super) const SHARE_DIR: &str = "/run/nudge/share";
pub(super) const FILES_DIR: &str = "/run/nudge/files";
pub(super) const VARIABLES_DIR: &str = "/run/nudge/variables";
pub(super) const BOOTSTRAP_DIR: &str = "/run/nudge/bootstrap";

/// The maximum of volumes with parts of versions in one pod.
const MAX_PART_VOLUMES: usize = 32;
/// Readable for every user: the agent's user differs from pod to pod, and only the agent mounts these volumes.
const MODE: u32 = 0o444;

/// The volumes and mounts.
#[derive(Clone, Debug, Default)]
pub(in crate::injection) struct Volumes {
    pub(in crate::injection) list: Vec<Value>,
    /// The agent's mounts.
    pub(in crate::injection) mounts: Vec<Value>,
    pub(in crate::injection) bootstrap: bool,
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
        facts: &Facts,
    ) -> Self {
        let mut all = Self::default();
        all.memory(STATE, "16Mi", STATE_DIR);
        all.memory(SHARE, "1Mi", SHARE_DIR);
        if let Some(room) = files {
            all.memory(FILES, &room.memory(), FILES_DIR);
        }
        for MovedVolume { name, kept, room } in &moved.volumes {
            all.memory(name, &room.memory(), &kept.folder);
        }
        if variables {
            // Each file twice, while one replaces another.
            all.memory(VARIABLES, "8Mi", VARIABLES_DIR);
        }
        all.list.push(hub());
        all.mounts.push(json!({"name": HUB, "mountPath": pod::HUB_PATH, "readOnly": true}));
        all.bootstrap(configs, facts);
        all
    }

    fn memory(&mut self, name: &str, size: &str, path: &str) {
        self.list.push(json!({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}));
        self.mounts.push(json!({"name": name, "mountPath": path}));
    }

    /// The current versions, each whole or not at all: the agent takes what it finds for the whole version.
    fn bootstrap(&mut self, configs: &[ConfigName], facts: &Facts) {
        let (mut count, mut omitted): (usize, Vec<&str>) = (0, Vec::new());
        for name in configs {
            let Some(config) = facts.configs.get(name) else { continue };
            let version = config.version.as_deref().and_then(|version| VersionName::new(version).ok());
            let whole = (1..).zip(&config.parts).all(|(number, part)| part.part == number);
            let Some(version) = version.filter(|_| whole) else { continue };
            if count + config.parts.len() > MAX_PART_VOLUMES {
                omitted.push(name.as_str());
                continue;
            }
            if !config.parts.is_empty() {
                self.mounted.push((name.clone(), version.clone()));
            }
            for part in &config.parts {
                count += 1;
                let volume = format!("{BOOTSTRAP}{count}");
                let suffix = if part.kind == PartKind::Secret { pod::SECRET_SUFFIX } else { "" };
                let path = format!("{BOOTSTRAP_DIR}/{name}/{version}/{}{suffix}", part.part);
                self.mounts.push(json!({"name": volume, "mountPath": path, "readOnly": true}));
                self.list.push(match part.kind {
                    PartKind::ConfigMap => {
                        json!({"name": volume, "configMap": {"name": part.name, "optional": true, "defaultMode": MODE}})
                    }
                    PartKind::Secret => {
                        json!({"name": volume, "secret": {"secretName": part.name, "optional": true, "defaultMode": MODE}})
                    }
                });
            }
        }
        self.bootstrap = count > 0;
        if !omitted.is_empty() {
            let omitted = omitted.join(", ");
            self.warnings.push(format!(
                "at most {MAX_PART_VOLUMES} parts of versions are mounted: while the hub is away, this pod does not start with {omitted}"
            ));
        }
    }
}

/// The agent's token for the hub.
fn hub() -> Value {
    json!({"name": HUB, "projected": {"sources": [
        {"serviceAccountToken": {"audience": pod::TOKEN_AUDIENCE, "expirationSeconds": 3600, "path": "token"}},
    ]}})
}
