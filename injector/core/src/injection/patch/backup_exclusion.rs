//! The annotation that keeps the agent's volumes out of file-system backups of Velero, which takes every `emptyDir`
//! unless it is listed: they hold keys and values of Secrets
//! (<https://velero.io/docs/v1.17/file-system-backup/>, "opt-out approach").

use std::collections::BTreeSet;

use json_patch::PatchError;
use serde_json::Value;

use super::patch_builder::PatchBuilder;
use crate::injection::user_pod::is_our_volume;

/// The annotation of Velero: names of volumes, with commas between them.
const EXCLUDED_VOLUMES: &str = "backup.velero.io/backup-volumes-excludes";

/// Adds the agent's volumes to those that the pod's author excludes, and removes volumes that an earlier injection
/// added.
pub(super) fn write(builder: &mut PatchBuilder, volumes: &[Value]) -> Result<(), PatchError> {
    let present = builder.object()["metadata"]["annotations"][EXCLUDED_VOLUMES].as_str().unwrap_or_default();
    let is_ours = |name: &str| is_our_volume(&serde_json::json!({"name": name}));
    let by_author = present.split(',').map(str::trim).filter(|name| !name.is_empty() && !is_ours(name));
    let in_memory = volumes.iter().filter(|volume| !volume["emptyDir"].is_null());
    let ours: BTreeSet<&str> = in_memory.filter_map(|volume| volume["name"].as_str()).collect();
    let names: Vec<&str> = by_author.chain(ours).collect();
    let text = (!names.is_empty()).then(|| names.join(","));
    builder.set_annotation(EXCLUDED_VOLUMES, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(annotations: &Value, volumes: &[&str]) -> (Value, usize) {
        let mut builder = PatchBuilder::new(&json!({"metadata": {"annotations": annotations}}));
        let volumes: Vec<Value> = volumes.iter().map(|name| json!({"name": name, "emptyDir": {}})).collect();
        write(&mut builder, &[&volumes[..], &[json!({"name": "nudge-hub", "projected": {}})]].concat()).unwrap();
        (builder.object()["metadata"]["annotations"][EXCLUDED_VOLUMES].clone(), builder.patch().0.len())
    }

    #[test]
    fn the_agents_volumes_are_excluded_and_those_of_the_author_stay() {
        let volumes = ["nudge-state", "nudge-files-1"];
        let (text, _) = after(&Value::Null, &volumes);
        assert_eq!(text, "nudge-files-1,nudge-state");
        assert_eq!(after(&json!({EXCLUDED_VOLUMES: text}), &volumes).1, 0, "a second run changes nothing");
        let (text, _) = after(&json!({EXCLUDED_VOLUMES: "cache, tmp,nudge-files-2"}), &volumes);
        assert_eq!(text, "cache,tmp,nudge-files-1,nudge-state");
        assert_eq!(after(&json!({EXCLUDED_VOLUMES: "nudge-state"}), &[]).0, Value::Null);
    }
}
