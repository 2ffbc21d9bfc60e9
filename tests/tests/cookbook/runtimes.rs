//! The effect of a signal on programs without a handler of their own. Some runtimes catch it, and end.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use nudge_protocol::status::Outcome;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, tools};

/// What becomes of a program.
#[derive(Clone, Copy, Debug)]
enum Then {
    Ends,
    GoesOn,
    NotSent,
}
use Then::{Ends, GoesOn, NotSent};

const SIGNALS: [&str; 3] = ["SIGHUP", "SIGUSR1", "SIGUSR2"];

/// Runs a program that waits, once for each signal, and looks at what becomes of it.
async fn idle(tool: &str, arguments: &[&str], then: [Then; 3]) -> Result<()> {
    let Some(program) = tools::find(tool)? else { return Ok(()) };
    let program = program.to_string_lossy();
    let command = [&[&*program], arguments].concat();
    for (signal, then) in SIGNALS.into_iter().zip(then) {
        let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", signal], &command).await?;
        agent.wait_for_lines(1, "ready").await?;
        agent.dir.switch("shop", "1.0.1")?;
        match then {
            Ends => {
                let status = agent
                    .agent
                    .process()
                    .wait_for_exit(WAIT_TIMEOUT)
                    .await
                    .map_err(|error| agent.agent.explain(&error))?;
                ensure!(!status.success(), "{tool} on {signal}: {status}");
                continue;
            }
            GoesOn => agent.notified_when("it has it", |one| one.outcome == Outcome::Delivered).await?,
            // It is pending for as long as the program may still install one.
            NotSent => {
                agent.notified_when("it has none", |one| one.message.contains("no process has a handler")).await?
            }
        };
        agent.agent.check()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_jvm_ends_on_sighup_and_crashes_on_sigusr2() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = r#"class Idle { public static void main(String[] a) throws Exception { System.out.println("ready"); Thread.sleep(600_000); } }"#;
    let file = folder.path().join("Idle.java");
    fs::write(&file, source)?;
    let quiet = ["-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=/dev/null", &*file.to_string_lossy()];
    idle("java", &quiet, [Ends, NotSent, Ends]).await
}

#[tokio::test]
async fn a_go_program_ends_on_sighup() -> Result<()> {
    let Some(go) = tools::find("go")? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let source =
        "package main\nimport (\"fmt\"; \"time\")\nfunc main() { fmt.Println(\"ready\"); time.Sleep(time.Hour) }\n";
    fs::write(folder.path().join("idle.go"), source)?;
    let mut build = Command::new(go);
    build.current_dir(folder.path()).args(["build", "-o", "idle", "idle.go"]);
    build.env("GOCACHE", folder.path().join("cache")).env("GO111MODULE", "off");
    ensure!(build.status()?.success(), "go can't build");
    let program = folder.path().join("idle");
    idle("env", &[&*program.to_string_lossy()], [Ends, GoesOn, GoesOn]).await
}

#[tokio::test]
async fn ruby_ends_on_all() -> Result<()> {
    idle("ruby", &["-e", "$stdout.sync = true; puts 'ready'; sleep 600"], [Ends; 3]).await
}

#[tokio::test]
async fn php_ends_on_all() -> Result<()> {
    idle("php", &["-r", r#"echo "ready\n"; sleep(600);"#], [Ends; 3]).await
}

#[tokio::test]
async fn perl_python_and_node_catch_none() -> Result<()> {
    idle("perl", &["-e", r#"$| = 1; print "ready\n"; sleep 600"#], [NotSent; 3]).await?;
    idle("python3", &["-uc", "import time; print('ready'); time.sleep(600)"], [NotSent; 3]).await?;
    // Its debugger.
    let node = ["-e", "console.log('ready'); setInterval(() => {}, 1e6)"];
    idle("node", &node, [NotSent, GoesOn, NotSent]).await
}
