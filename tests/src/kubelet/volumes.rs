//! A pod's volumes as folders, in the layout and with the modes that a kubelet gives them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};

use super::{environment, security};
use crate::cluster::TestNamespace;

/// The content of one file.
struct File {
    bytes: Vec<u8>,
    mode: u32,
    /// Its owner if that is not root.
    owner: Option<u32>,
}

type Files = BTreeMap<String, File>;

/// Returns an object's values by key; `None` if it is not there.
pub(super) async fn values(
    space: &TestNamespace,
    resource: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
    let object = if resource == "secrets" {
        let object = space.api::<Secret>().get_opt(name).await?;
        object.map(serde_json::to_value).transpose()?
    } else {
        let object = space.api::<ConfigMap>().get_opt(name).await?;
        object.map(serde_json::to_value).transpose()?
    };
    let Some(object) = object else { return Ok(None) };
    let mut values = BTreeMap::new();
    let texts = |field: &str| object[field].as_object().cloned().unwrap_or_default();
    let encoded = if resource == "secrets" { texts("data") } else { texts("binaryData") };
    for (key, value) in encoded {
        values.insert(key, STANDARD.decode(value.as_str().unwrap_or_default())?);
    }
    if resource == "configmaps" {
        for (key, value) in texts("data") {
            values.insert(key, value.as_str().unwrap_or_default().into());
        }
    }
    Ok(Some(values))
}

/// Makes the folder of one volume.
pub(super) async fn make(space: &TestNamespace, pod: &Value, volume: &Value, folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    if volume["emptyDir"].is_object() {
        fs::set_permissions(folder, Permissions::from_mode(0o777))?;
        return own_folder(pod, folder, 0o2777);
    }
    let name = volume["name"].as_str().unwrap_or_default();
    let sources: Vec<(&str, Value, u32)> = if volume["projected"].is_object() {
        let projected = &volume["projected"];
        let mode = mode_of(&projected["defaultMode"], 0o644);
        let sources = projected["sources"].as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
        sources.map(|(kind, source)| (kind.as_str(), source.clone(), mode)).collect()
    } else if volume["configMap"].is_object() {
        vec![("configMap", volume["configMap"].clone(), mode_of(&volume["configMap"]["defaultMode"], 0o644))]
    } else if volume["secret"].is_object() {
        let mut source = volume["secret"].clone();
        source["name"] = source["secretName"].clone();
        vec![("secret", source, mode_of(&volume["secret"]["defaultMode"], 0o644))]
    } else {
        bail!("this kubelet knows no such volume: {volume}");
    };
    let mut files = Files::new();
    for (kind, source, mode) in sources {
        let read = read(space, pod, kind, &source, mode).await;
        files.extend(read.with_context(|| format!("FailedMount: volume {name}"))?);
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    write(pod, folder, &files)?;
    own_folder(pod, folder, 0o2755)
}

fn mode_of(mode: &Value, default: u32) -> u32 {
    mode.as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default)
}

async fn read(space: &TestNamespace, pod: &Value, kind: &str, source: &Value, mode: u32) -> Result<Files> {
    let mut files = Files::new();
    match kind {
        "serviceAccountToken" => {
            let token = token(space, pod, source).await?;
            let path = source["path"].as_str().context("no path")?.to_owned();
            let owner = security::only_user(pod);
            // As measured: for the one user of all containers alone, else for everyone, unless a group is requested.
            let mode = if owner.is_some() || security::volumes_group(pod).is_some() { 0o600 } else { 0o644 };
            files.insert(path, File { bytes: token.into_bytes(), mode, owner });
        }
        "configMap" | "secret" => {
            let name = source["name"].as_str().context("no name")?;
            let resource = if kind == "secret" { "secrets" } else { "configmaps" };
            let optional = source["optional"] == true;
            let values = match values(space, resource, name).await? {
                Some(values) => values,
                None if optional => BTreeMap::new(),
                None => bail!("{resource} {name} is not there"),
            };
            match source["items"].as_array() {
                None => files.extend(values.into_iter().map(|(key, bytes)| (key, File { bytes, mode, owner: None }))),
                Some(items) => {
                    for item in items {
                        let key = item["key"].as_str().context("no key")?;
                        let path = item["path"].as_str().context("no path")?.to_owned();
                        match values.get(key) {
                            Some(bytes) => {
                                let mode = mode_of(&item["mode"], mode);
                                files.insert(path, File { bytes: bytes.clone(), mode, owner: None });
                            }
                            None if optional => {}
                            None => bail!("{resource} {name} has no key {key}"),
                        }
                    }
                }
            }
        }
        "downwardAPI" => {
            for item in source["items"].as_array().into_iter().flatten() {
                let path = item["path"].as_str().context("no path")?.to_owned();
                let text = environment::field(pod, item["fieldRef"]["fieldPath"].as_str().context("no field")?)?;
                files.insert(path, File { bytes: text.into_bytes(), mode, owner: None });
            }
        }
        other => bail!("this kubelet knows no such source: {other}"),
    }
    Ok(files)
}

/// Returns a token of the pod's account, bound to the pod.
async fn token(space: &TestNamespace, pod: &Value, source: &Value) -> Result<String> {
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    let bound: Pod = serde_json::from_value(json!({"metadata": pod["metadata"]}))?;
    match source["audience"].as_str() {
        Some(audience) => space.token(account, audience, Some(&bound)).await,
        None => space.token(account, crate::cluster::servers::ISSUER, Some(&bound)).await,
    }
}

/// Writes files as the kubelet does (`AtomicWriter`): links to `..data`, which is a link to a folder.
fn write(pod: &Value, folder: &Path, files: &Files) -> Result<()> {
    let version = "..2026_01_01_00_00_00.000000001";
    fs::create_dir(folder.join(version))?;
    fs::set_permissions(folder.join(version), Permissions::from_mode(0o755))?;
    symlink(version, folder.join("..data"))?;
    for (path, file) in files {
        let place = folder.join(version).join(path);
        let parent = place.parent().context("no folder")?;
        fs::create_dir_all(parent)?;
        fs::write(&place, &file.bytes)?;
        let group = security::volumes_group(pod);
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        fs::set_permissions(&place, Permissions::from_mode(mode))?;
        chown(&place, file.owner, group)?;
        let first = path.split('/').next().unwrap_or_default();
        if fs::symlink_metadata(folder.join(first)).is_err() {
            symlink(Path::new("..data").join(first), folder.join(first))?;
        }
    }
    Ok(())
}

fn own_folder(pod: &Value, folder: &Path, mode: u32) -> Result<()> {
    if let Some(group) = security::volumes_group(pod) {
        chown(folder, None, Some(group))?;
        fs::set_permissions(folder, Permissions::from_mode(mode))?;
    }
    Ok(())
}
