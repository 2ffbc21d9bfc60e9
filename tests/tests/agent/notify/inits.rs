//! Below real inits, the application alone gets the signal, and its sibling processes survive.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;
use nudge_protocol::status::Outcome;
use nudge_tests::{AgentUnderTest, procfs, tools};

use super::signalled_app::{APP, USR1, was_delivered};

/// The inits of these tests, as they stand before a command.
const INITS: [&[&str]; 6] = [
    &["dumb-init"],
    &["dumb-init", "-c"],
    &["tini", "-s", "--"],
    &["tini", "-s", "-g", "--"],
    &["catatonit", "--"],
    &["sh", "-c", r#"trap : TERM INT CHLD; "$@" & wait; wait"#, "init"],
];

/// Runs `command`, which starts the application and a helper, switches, and checks both.
async fn only_the_application_is_notified(command: &[OsString]) -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, command).await?;
    let app = agent.ready().await?;
    let before = procfs::descendants(agent.agent.pid())?;
    ensure!(before.len() > 2, "there is no helper: {before:?}");
    agent.dir.switch("shop", "1.0.1")?;
    let container = agent.notified_when("the signal is delivered", was_delivered).await?;
    ensure!(container.notified.processes == [app], "{:?}, not {app}", container.notified.processes);
    agent.wait_for_lines(1, "SIGUSR1").await?;
    // What a signal has ended is gone, or a zombie, before another switch has gone through.
    agent.dir.switch("shop", "1.0.2")?;
    agent.wait_for_lines(2, "SIGUSR1").await?;
    let lives = |pid: &i32| procfs::state(*pid).is_some_and(|state| state != 'Z');
    ensure!(before.iter().all(lives), "a helper has ended");
    agent.agent.check()
}

/// Returns a shell with the application and a helper, below `init`.
fn below(init: &[&str]) -> Vec<OsString> {
    // The helper ends with the shell.
    let script = format!("setpriv --pdeathsig KILL sleep 100000 & {APP} --catch SIGUSR1 & wait; wait");
    init.iter().copied().chain(["sh", "-c", &script]).map(OsString::from).collect()
}

#[tokio::test]
async fn below_an_init_only_the_application_is_notified() -> Result<()> {
    for init in INITS {
        if tools::find(init[0])?.is_some() {
            only_the_application_is_notified(&below(init)).await.with_context(|| init.join(" "))?;
        }
    }
    if !Uid::effective().is_root() {
        tools::skipped("only root can run gosu");
    } else if tools::find("gosu")?.is_some() {
        only_the_application_is_notified(&below(&["gosu", "root"])).await.context("gosu")?;
    }
    Ok(())
}

#[tokio::test]
async fn below_a_supervisor_only_the_application_is_notified() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = |name: &str, command: &str| -> Result<()> {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().context("no folder")?)?;
        fs::write(&file, format!("#!/bin/sh\nexec {command}\n"))?;
        Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?)
    };
    if let Some(s6) = tools::find("s6-svscan")? {
        script("s6/app/run", &format!("{APP} --catch SIGUSR1"))?;
        script("s6/helper/run", "sleep 100000")?;
        let command = [s6.into(), folder.path().join("s6").into()];
        only_the_application_is_notified(&command).await.context("s6")?;
    }
    if let Some(supervisord) = tools::find("supervisord")? {
        let file = folder.path().join("supervisord.conf");
        let base = "[supervisord]\nnodaemon=true\nsilent=true\nlogfile=/dev/null\nlogfile_maxbytes=0\n";
        let out = "stdout_logfile=/dev/fd/1\nstdout_logfile_maxbytes=0\n";
        let app = format!("[program:app]\ncommand={APP} --catch SIGUSR1\n{out}");
        let pid = folder.path().join("pid");
        let text = format!("{base}pidfile={}\n{app}[program:helper]\ncommand=sleep 100000\n", pid.display());
        fs::write(&file, text)?;
        let command = [supervisord.into(), "-c".into(), file.into()];
        only_the_application_is_notified(&command).await.context("supervisord")?;
    }
    Ok(())
}

#[tokio::test]
async fn an_init_without_an_application_that_handles_the_signal_gets_none() -> Result<()> {
    if tools::find("dumb-init")?.is_none() {
        return Ok(());
    }
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &USR1, &["dumb-init", APP]).await?;
    let app = agent.ready().await?;
    agent.dir.switch("shop", "1.0.1")?;
    let verdict = |outcome| !matches!(outcome, Outcome::NothingYet | Outcome::Pending);
    let given_up = agent.notified_when("there is a verdict", |notified| verdict(notified.outcome)).await?.notified;
    ensure!(given_up.outcome == Outcome::NoHandler, "{given_up:?}");
    ensure!(given_up.message.contains("passes signals on"), "{}", given_up.message);
    ensure!(procfs::state(app).is_some_and(|state| state != 'Z'), "the application has ended");
    agent.agent.check()
}

// ---------------------------------------------------------------------------------------------------------------------
// Runtimes that catch signals by themselves

/// Programs that print `PID ready`, and a line for each `SIGUSR1` (Node.js: `SIGUSR2`).
fn runtimes(folder: &Path) -> Result<Vec<(&'static str, Vec<OsString>)>> {
    let mut programs = Vec::new();
    let source = |name: &str, text: &str| -> Result<_> {
        let file = folder.join(name);
        fs::write(&file, text)?;
        Ok(file)
    };
    if let Some(go) = tools::find("go")? {
        for (name, signals) in [("one.go", ", syscall.SIGUSR1"), ("all.go", "")] {
            let text = format!(
                r#"package main
import ("fmt"; "os"; "os/signal"; "syscall")
func main() {{
  caught := make(chan os.Signal, 9); signal.Notify(caught{signals}); fmt.Println(os.Getpid(), "ready")
  for one := range caught {{ if one == syscall.SIGUSR1 {{ fmt.Println(os.Getpid(), "SIGUSR1") }} }}
}}"#
            );
            let (file, program) = (source(name, &text)?, folder.join(name).with_extension("bin"));
            let mut build = Command::new(&go);
            build.args(["build", "-o"]).arg(&program).arg(file);
            build.env("GOCACHE", folder.join("cache")).env("GO111MODULE", "off");
            ensure!(build.status()?.success(), "go can't build");
            programs.push(("SIGUSR1", vec![program.into()]));
        }
    }
    if let Some(java) = tools::find("java")? {
        let text = r#"import sun.misc.Signal;
public class App { public static void main(String[] arguments) throws Exception {
  long pid = ProcessHandle.current().pid();
  Signal.handle(new Signal("HUP"), one -> System.out.println(pid + " SIGHUP"));
  System.out.println(pid + " ready"); Thread.sleep(Long.MAX_VALUE);
} }"#;
        programs.push(("SIGHUP", vec![java.into(), source("App.java", text)?.into()]));
    }
    if let Some(node) = tools::find("node")? {
        let text = "process.on('SIGUSR2', () => console.log(process.pid, 'SIGUSR2'));
console.log(process.pid, 'ready'); setInterval(() => {}, 1e6);";
        programs.push(("SIGUSR2", vec![node.into(), source("app.js", text)?.into()]));
    }
    Ok(programs)
}

#[tokio::test]
async fn programs_of_runtimes_are_notified_alone_below_a_shell_and_below_an_init() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let dumb_init: Vec<&[&str]> = tools::find("dumb-init")?.map(|_| &["dumb-init"][..]).into_iter().collect();
    let shell: &[&str] = &["sh", "-c", r#""$@"; exit"#, "sh"];
    for (signal, program) in runtimes(folder.path())? {
        for above in [&[][..], shell].into_iter().chain(dumb_init.iter().copied()) {
            let command: Vec<OsString> = above.iter().map(OsString::from).chain(program.iter().cloned()).collect();
            let notified = async {
                let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", signal], &command).await?;
                let app = agent.ready().await?;
                agent.dir.switch("shop", "1.0.1")?;
                agent.wait_for_lines(1, signal).await?;
                let container = agent.notified_when("the signal is delivered", was_delivered).await?;
                ensure!(container.notified.processes == [app], "{:?}, not {app}", container.notified.processes);
                agent.agent.check()
            };
            notified.await.with_context(|| format!("{command:?}"))?;
        }
    }
    Ok(())
}
