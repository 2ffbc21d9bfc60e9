//! The view of a container's processes: the image's program and the mounted volumes under a root of their own, in a
//! mount namespace of their own. Processes, network and time are the machine's, as in a pod that shares its process
//! namespace.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::environment::{Variables, expand};
use super::security::Security;
use crate::tools;

/// Folders of the machine that programs need which are not static.
const SYSTEM: [&str; 5] = ["usr", "lib", "lib64", "bin", "sbin"];
/// Devices of every container.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Where the reason of an end goes.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// What an image without one of its own is given.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What an image holds, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its one program.
    pub program: PathBuf,
    /// Where in the image that is; also what is started where the specification names no command.
    pub path: &'static str,
    /// Its user.
    pub user: u32,
}

/// Returns whether containers can be started here; the reason for skipping is printed.
pub(super) fn is_possible() -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        tools::skipped("only root may start containers as a kubelet does");
        return Ok(false);
    }
    for tool in ["unshare", "setpriv", "chroot", "mount"] {
        if tools::find(tool)?.is_none() {
            return Ok(false);
        }
    }
    let tried = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "mount", "--bind", "/usr", "/usr"])
        .output()?;
    if !tried.status.success() {
        tools::skipped(&format!(
            "no mount namespace can be made here: {}",
            String::from_utf8_lossy(&tried.stderr).trim()
        ));
        return Ok(false);
    }
    Ok(true)
}

/// One container before it is started.
pub(super) struct Sandbox {
    root: PathBuf,
    script: String,
    variables: Variables,
    security: Security,
}

impl Sandbox {
    /// Makes the root and the places for mounts in it. `volumes` holds a folder for each volume of the pod.
    pub(super) fn new(
        root: &Path,
        container: &Value,
        image: &Image,
        volumes: &Path,
        security: Security,
        variables: Variables,
    ) -> Result<Self> {
        fs::create_dir(root)?;
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        let mut mounts = Vec::new();
        for name in SYSTEM {
            let place = Path::new("/").join(name);
            match fs::read_link(&place) {
                Ok(target) => symlink(target, root.join(name))?,
                Err(_) if place.is_dir() => mounts.push(folder_mount(root, &place, &place, true)?),
                Err(_) => {}
            }
        }
        mounts.push(folder_mount(root, Path::new("/proc"), Path::new("/proc"), false)?);
        for name in DEVICES {
            let place = Path::new("/dev").join(name);
            mounts.push(file_mount(root, &place, &place)?);
        }
        let log = root.with_extension("termination-log");
        fs::write(&log, "")?;
        fs::set_permissions(&log, fs::Permissions::from_mode(0o666))?;
        mounts.push(file_mount(root, &log, Path::new(TERMINATION_LOG))?);
        mounts.push(file_mount(root, &image.program, Path::new(image.path))?);
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let name = mount["name"].as_str().context("a mount without a name")?;
            let at = Path::new(mount["mountPath"].as_str().context("a mount without a path")?);
            let source = volumes.join(name).join(mount["subPath"].as_str().unwrap_or_default());
            mounts.push(folder_mount(root, &source, at, mount["readOnly"] == true)?);
        }
        // The places are there, so the root may become read-only before they are filled.
        let mut script = vec!["set -e".to_owned(), format!("mount --bind {0} {0}", quoted(root))];
        if security.read_only_root {
            script.push(format!("mount -o remount,bind,ro {}", quoted(root)));
        }
        script.extend(mounts);
        let variables = [("PATH".to_owned(), PATH.to_owned())].into_iter().chain(variables).collect();
        Ok(Self { root: root.to_owned(), script: script.join("\n"), variables, security })
    }

    /// Returns what the container has said about its end.
    pub(super) fn termination_message(&self) -> String {
        fs::read_to_string(self.root.with_extension("termination-log")).unwrap_or_default()
    }

    /// Returns the variables of its processes.
    pub(super) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Returns a command in here, whose process joins a control group first.
    pub(super) fn command(&self, words: &[String], group: &Path) -> Command {
        let mut script =
            format!("echo $$ > {}\n{}\nexec chroot {} setpriv", quoted(group), self.script, quoted(&self.root));
        for word in self.security.arguments().iter().chain([&"--".to_owned()]).chain(words) {
            script.push(' ');
            script.push_str(&quoted(Path::new(word)));
        }
        let mut command = Command::new(tools::look("unshare").unwrap_or_else(|| "unshare".into()));
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.env_clear().envs(&self.variables).current_dir("/");
        command
    }

    /// Returns what the container is to run: its command or the image's, and its arguments.
    pub(super) fn words(&self, container: &Value, image: &Image) -> Vec<String> {
        let words = |field: &str| {
            let words = container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.map(|word| expand(word, &self.variables)).collect::<Vec<_>>()
        };
        let command = words("command");
        let command = if command.is_empty() { vec![image.path.to_owned()] } else { command };
        command.into_iter().chain(words("args")).collect()
    }
}

/// Returns a line that mounts a folder.
fn folder_mount(root: &Path, source: &Path, at: &Path, read_only: bool) -> Result<String> {
    let place = inside(root, at);
    fs::create_dir_all(&place)?;
    let (source, place) = (quoted(source), quoted(&place));
    let protect = if read_only { format!("\nmount -o remount,bind,ro {place}") } else { String::new() };
    Ok(format!("mount --rbind {source} {place}{protect}"))
}

/// Returns a line that mounts a file.
fn file_mount(root: &Path, source: &Path, at: &Path) -> Result<String> {
    let place = inside(root, at);
    fs::create_dir_all(place.parent().context("no folder")?)?;
    fs::write(&place, "")?;
    Ok(format!("mount --bind {} {}", quoted(source), quoted(&place)))
}

fn inside(root: &Path, at: &Path) -> PathBuf {
    root.join(at.strip_prefix("/").unwrap_or(at))
}

/// Returns a path as a shell reads it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
