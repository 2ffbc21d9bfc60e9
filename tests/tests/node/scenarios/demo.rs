//! Records the film at the top of README: a person at a terminal, six real pods. Only where `NUDGE_DEMO` names the file
//! to write.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use nudge_tests::commands::recording::film;
use nudge_tests::commands::terminal::Terminal;
use nudge_tests::{binary, tools};
use serde_json::json;

use crate::objects::{config, deployment, list, opted_in, python};
use crate::place::Place;
use crate::scenarios::rollout;
use crate::space::ScenarioNamespace;
use crate::suite::Suite;

const FILE: &str = "NUDGE_DEMO";
const SIZE: (u16, u16) = (34, 104);
const TITLE: &str = "kubectl nudge moves six running pods to another version in steps; a bad version stops at the first pod and comes back";

/// What is typed.
const COMMANDS: [&str; 8] = [
    "kubectl get pods",
    "kubectl nudge create shop 1.0.1 --from-literal=name=welcome --from-literal=healthy=yes",
    "kubectl nudge use shop 1.0.1 --wait",
    "kubectl logs deployment/web -c app --tail=2",
    "kubectl nudge create shop 1.0.2 --from-literal=name=broken",
    "kubectl nudge use shop 1.0.2 --wait",
    "kubectl nudge versions shop",
    "kubectl get pods",
];

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let Some(file) = env::var_os(FILE) else {
        tools::skipped(&format!("the film of README is recorded where {FILE} names the file to write"));
        return Ok(());
    };
    let home = ScenarioNamespace::enabled(suite, "demo").await?;
    let rollout = json!({"steps": [{"pods": 1}, {"pods": "50%"}], "minReadySeconds": 2, "bakeSeconds": 2});
    // As if the plugin had made it: what another tool has made it warns of.
    let ours = ["--server-side", "--field-manager=nudge-cli"];
    home.apply_with(&ours, &config("shop", &[("1.0.0", json!({"name": "hello", "healthy": "yes"}))], &rollout))?;
    let mut container = python(&home, rollout::APP);
    container["readinessProbe"] = rollout::probe();
    let annotations = [("configs", "shop"), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    home.apply(&list([deployment(&opted_in("web", &container, &annotations), 6)]))?;
    rollout::ready(&home).await?;
    home.wait_until_current("shop", "1.0.0").await?;

    let folder = tempfile::tempdir()?;
    let script = folder.path().join("demo");
    let typed = COMMANDS.map(|command| {
        format!("printf '$ '; sleep 0.4; printf '%s\\n' '{command}'; sleep 1\n{command}\nsleep 2.5; echo\n")
    });
    fs::write(&script, typed.concat())?;
    let mut command = home.place.command("sh");
    command.arg(&script).env("TERM", "xterm").env("NO_COLOR", "1").env("PATH", with_plugin(home.place, folder.path())?);
    // What is typed names no namespace.
    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(home.place.kubeconfig(), &kubeconfig)?;
    command.env("KUBECONFIG", &kubeconfig);
    let context = ["config", "set-context", "--current", "--namespace", &home.space.name];
    crate::place::succeed(home.place.command("kubectl").env("KUBECONFIG", &kubeconfig).args(context))?;

    let terminal = Terminal::spawn("demo", &mut command, SIZE)?;
    let (status, frames, _) = terminal.ends_with_frames().await?;
    ensure!(status.success(), "the commands have ended with {status}");
    let seen = frames.iter().map(|(_, screen)| screen.join("\n")).collect::<Vec<_>>().join("\n");
    for expected in ["version 1.0.1 is current", "version 1.0.2 failed and 1.0.1 runs again"] {
        ensure!(seen.contains(expected), "nobody saw {expected:?}: {seen}");
    }
    fs::write(PathBuf::from(file), film(&frames, SIZE.1, SIZE.0, TITLE))?;
    Ok(())
}

/// Returns the search path with the plugin under the name that kubectl looks for.
pub(crate) fn with_plugin(place: &Place, folder: &Path) -> Result<std::ffi::OsString> {
    std::os::unix::fs::symlink(binary::kubectl_nudge()?, folder.join("kubectl-nudge"))?;
    let paths = env::split_paths(place.search());
    Ok(env::join_paths(std::iter::once(folder.to_owned()).chain(paths))?)
}
