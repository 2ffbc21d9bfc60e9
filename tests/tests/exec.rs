//! `nudge-agent exec` as the parent of a command, and the commands that read the endpoint from inside.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpgid, mkfifo, tcgetpgrp};
use nudge_protocol::env;
use nudge_tests::agent::IDLE;
use nudge_tests::scene::SOON;
use nudge_tests::{ConfigDir, Finished, Process, Scene, binary, eventually, procfs};
use tempfile::TempDir;

/// The application of these tests.
const APP: &str = env!("CARGO_BIN_EXE_app");

/// `nudge-agent exec` that serves `dir` on a free port, without a command yet.
fn exec(dir: &ConfigDir) -> Result<Command> {
    exec_at(dir, "0")
}

fn exec_at(dir: &ConfigDir, port: &str) -> Result<Command> {
    let mut command = Command::new(binary::debug()?);
    command.arg("exec").arg("--dir").arg(dir.path()).args(["--port", port, "--log-level", "error"]);
    // Whatever the agent keeps for the run goes with the folder.
    command.env("TMPDIR", dir.beside("")).env_remove("XDG_RUNTIME_DIR");
    Ok(command)
}

/// Runs a command under the agent to its end.
fn run(dir: &ConfigDir, command: &[&str]) -> Result<Finished> {
    Finished::of(exec(dir)?.arg("--").args(command))
}

/// The process id at the beginning of a line that the application has printed.
fn pid_of(output: &str) -> Result<i32> {
    Ok(output.split_whitespace().next().context("no output")?.parse()?)
}

/// The state of a process in one letter (proc(5)); `None` if it is gone.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

// ---------------------------------------------------------------------------------------------------------------------
// Signals

#[tokio::test]
async fn signals_are_passed_on_to_the_child() -> Result<()> {
    let signals = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"];
    let mut child = vec![APP];
    child.extend(signals.iter().flat_map(|signal| ["--catch", signal]));
    let mut scene = Scene::start(Scene::shop()?, &[], &child).await?;
    let output = scene.says(1, "ready").await?;
    for signal in signals {
        scene.agent.process().signal(signal.parse::<Signal>()?)?;
        scene.says(1, signal).await?;
    }
    kill(Pid::from_raw(pid_of(&output)?), Signal::SIGKILL)?;
    assert_eq!(scene.agent.process().exited(SOON).await?.code(), Some(137));
    Ok(())
}

#[tokio::test]
async fn a_signal_that_the_child_does_not_catch_ends_both() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut scene = Scene::start(Scene::shop()?, &[], &[APP]).await?;
        scene.says(1, "ready").await?;
        scene.agent.process().signal(signal)?;
        let status = scene.agent.process().exited(SOON).await?;
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
    }
    Ok(())
}

#[tokio::test]
async fn a_hang_up_that_nohup_made_ignored_stays_ignored() -> Result<()> {
    let nohup = ["sh", "-c", "trap '' HUP && exec \"$@\"", "sh"];
    let child = [APP, "--catch", "SIGHUP", "--catch", "SIGINT"];
    let mut scene = Scene::start_with(Scene::shop()?, |exec| exec.under(nohup), &child).await?;
    scene.says(1, "ready").await?;
    scene.agent.process().signal(Signal::SIGHUP)?;
    // What comes after it shows that it has not come.
    for times in 1..=2 {
        scene.agent.process().signal(Signal::SIGINT)?;
        let output = scene.says(times, "SIGINT").await?;
        assert!(!output.contains("SIGHUP"), "{output}");
    }
    scene.agent.check()
}

#[tokio::test]
async fn the_child_has_a_process_group_of_its_own() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &[], &[APP]).await?;
    let child = pid_of(&scene.says(1, "ready").await?)?;
    assert_eq!(getpgid(Some(Pid::from_raw(child)))?.as_raw(), child);
    assert_ne!(getpgid(Some(Pid::from_raw(scene.agent.pid())))?.as_raw(), child);
    Ok(())
}

#[tokio::test]
async fn orphans_come_to_the_agent_and_are_reaped() -> Result<()> {
    let dir = Scene::shop()?;
    let (gate, pid) = (dir.beside("gate"), dir.beside("pid"));
    mkfifo(&gate, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // The inner shell leaves a process behind that waits at the gate.
    let orphan = r#"sh -c 'echo $$ >"$1.part" && mv "$1.part" "$1" && : <"$0"' "$0" "$1""#;
    let script = format!(r#"sh -c '{} &' "$0" "$1"; exec {APP}"#, orphan.replace('\'', r"'\''"));
    let child = [Path::new("sh"), "-c".as_ref(), script.as_ref(), &gate, &pid];
    let mut scene = Scene::start(dir, &[], &child).await?;
    scene.says(1, "ready").await?;
    let orphan: i32 =
        eventually(SOON, "the orphan runs", async || fs::read_to_string(&pid).ok()?.trim().parse().ok()).await?;
    let parent = scene.agent.pid();
    eventually(SOON, "it has become the agent's", async || (parent_of(orphan) == Some(parent)).then_some(())).await?;
    OpenOptions::new().write(true).open(&gate)?;
    eventually(SOON, "it is reaped", async || state(orphan).is_none().then_some(())).await?;
    scene.agent.check()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse().ok()
}

// ---------------------------------------------------------------------------------------------------------------------
// Exit status

#[test]
fn the_exit_status_is_the_childs() -> Result<()> {
    let dir = Scene::shop()?;
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 125", 125),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -34 $$", 162),
    ] {
        assert_eq!(run(&dir, &["sh", "-c", script])?.code, Some(code), "{script}");
    }
    Ok(())
}

#[test]
fn a_command_that_is_not_there_is_127_and_one_that_cannot_run_is_126() -> Result<()> {
    let dir = Scene::shop()?;
    let file = dir.beside("not-executable");
    fs::write(&file, "")?;
    let file = file.to_str().context("odd path")?;
    for (command, code, part) in [
        ("no-such-command", 127, r#"command "no-such-command" was not found"#),
        ("/no/such/command", 127, "was not found"),
        (file, 126, "can't be run: Permission denied"),
        ("/", 126, "can't be run"),
    ] {
        let finished = run(&dir, &[command])?;
        assert_eq!(finished.code, Some(code), "{command}: {finished:?}");
        assert!(finished.stderr.contains(part), "{command}: {}", finished.stderr);
    }
    Ok(())
}

#[test]
fn a_failure_of_the_agent_itself_is_125_and_the_command_does_not_start() -> Result<()> {
    let dir = Scene::shop()?;
    let marker = dir.beside("started");
    let start = |arguments: &[&str]| -> Result<Finished> {
        let finished = Finished::of(exec(&dir)?.args(arguments).args(["--", "touch"]).arg(&marker))?;
        ensure!(!marker.exists(), "{arguments:?}: the command has started");
        Ok(finished)
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    for (arguments, part) in [
        (&["--config", "nothing"][..], "there is no folder"),
        (&["--webhook", "http://192.0.2.1/"], "is not in this pod"),
        (&["--mount-path", "/proc/no-such-folder"], "could not be written"),
        (&["--notify", "SIGKILL"], "choose one of SIGUSR1"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let finished = start(arguments)?;
        assert_eq!(finished.code, Some(125), "{arguments:?}: {finished:?}");
        assert!(finished.stderr.contains(part), "{arguments:?}: {}", finished.stderr);
    }
    let in_use = Finished::of(exec_at(&dir, &port)?.args(["--", "touch"]).arg(&marker))?;
    assert_eq!(in_use.code, Some(125), "{in_use:?}");
    assert!(in_use.stderr.contains(&port) && in_use.stderr.contains("in use"), "{}", in_use.stderr);

    dir.switch("shop", "9.9.9")?;
    let broken = start(&[])?;
    assert_eq!(broken.code, Some(125), "{broken:?}");
    assert!(broken.stderr.contains("version 9.9.9 of shop is current, but there is no folder"), "{}", broken.stderr);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// What the child finds

#[test]
fn the_child_starts_when_the_endpoint_serves() -> Result<()> {
    let agent = binary::debug()?.to_str().context("odd path")?;
    for _ in 0..5 {
        let finished = run(&Scene::shop()?, &[agent, "get", "lives"])?;
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), "3"), "{finished:?}");
    }
    Ok(())
}

#[test]
fn standard_input_and_output_are_the_childs() -> Result<()> {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let dir = Scene::shop()?;
    let mut command = exec(&dir)?;
    command.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow!("the writer panicked"))??;
    assert!(output.status.success());
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    Ok(())
}

#[tokio::test]
async fn the_files_for_the_child_are_gone_when_it_has_ended() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    let files = [&scene.access.variables[env::TOKEN_FILE], &scene.access.variables[env::CERT]]
        .map(|path| Path::new(path).to_owned());
    assert!(files.iter().all(|file| file.is_file()), "{files:?}");
    scene.agent.process().signal(Signal::SIGTERM)?;
    assert_eq!(scene.agent.process().exited(SOON).await?.code(), Some(143));
    for file in files {
        assert!(!file.exists() && !file.parent().is_some_and(Path::exists), "{} is left", file.display());
    }
    Ok(())
}

#[test]
fn no_files_are_left_of_a_command_that_could_not_start() -> Result<()> {
    let dir = Scene::shop()?;
    let temporary = dir.beside("temporary");
    fs::create_dir(&temporary)?;
    let mut command = exec(&dir)?;
    command.args(["--", "no-such-command"]).env("TMPDIR", &temporary);
    assert_eq!(Finished::of(&mut command)?.code, Some(127));
    assert_eq!(fs::read_dir(&temporary)?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn the_log_can_be_json_and_never_holds_the_token_or_a_value() -> Result<()> {
    let dir = Scene::shop()?;
    dir.write_version("shop", "2.0.0", [("password", "hunter2")])?;
    let arguments = ["--log-format", "json", "--log-level", "debug", "--notify", "SIGUSR1"];
    let mut scene = Scene::start(dir, &arguments, &[APP, "--catch", "SIGUSR1"]).await?;
    scene.says(1, "ready").await?;
    scene.dir.switch("shop", "2.0.0")?;
    scene.says(1, "SIGUSR1").await?;
    let token = scene.access.token.clone();
    scene.client.get(&format!("/config/{token}")).await?;
    scene.agent.process().stop()?;
    let log = scene.agent.log();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("ready") && !log.contains("hunter2") && !log.contains(&token), "{log}");
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// At a terminal

/// A terminal with a command in it, in a session of its own.
struct Terminal {
    master: PtyMaster,
    shown: String,
    process: Process,
    _temporary: TempDir,
}

impl Terminal {
    fn start(command: &[&str]) -> Result<Self> {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let mut slave = OpenOptions::new();
        let slave = slave.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(ptsname_r(&master)?)?;
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").args(command).env("PS1", "$ ").env_remove("ENV");
        setsid.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        let temporary = tempfile::Builder::new().prefix("nudge-terminal-").tempdir()?;
        setsid.env("TMPDIR", temporary.path()).env_remove("XDG_RUNTIME_DIR");
        let process = Process::spawn("setsid", &mut setsid)?;
        Ok(Self { master, shown: String::new(), process, _temporary: temporary })
    }

    /// Types something.
    fn types(&mut self, keys: &str) -> Result<()> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// All that has been shown so far.
    fn shown(&mut self) -> &str {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.master.read(&mut bytes) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        &self.shown
    }

    /// Waits until `text` has been shown so many times.
    async fn shows(&mut self, times: usize, text: &str) -> Result<()> {
        let shown = eventually(SOON, &format!("{times} times {text:?}"), async || {
            (self.shown().matches(text).count() >= times).then_some(())
        })
        .await;
        shown.map_err(|error| error.context(format!("the terminal shows {:?}", self.shown())))
    }

    /// Waits for the application's first line and gives its process id.
    async fn ready(&mut self) -> Result<i32> {
        let ready = |shown: &str| shown.lines().find_map(|line| line.strip_suffix(" ready")?.parse().ok());
        let pid = eventually(SOON, "the application is ready", async || ready(self.shown())).await;
        pid.map_err(|error| error.context(format!("the terminal shows {:?}", self.shown())))
    }

    /// Waits until the process group is the one that has the terminal.
    async fn belongs_to(&self, group: i32) -> Result<()> {
        let has_it = async || (tcgetpgrp(&self.master) == Ok(Pid::from_raw(group))).then_some(());
        eventually(SOON, &format!("the terminal belongs to {group}"), has_it).await
    }

    /// The same for an application in the foreground, which the agent gives the terminal after its start.
    async fn ready_in_front(&mut self) -> Result<i32> {
        let app = self.ready().await?;
        self.belongs_to(app).await?;
        Ok(app)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A shell does not end its jobs when it is ended, and after a failure they may be in any state.
        for pid in procfs::descendants(self.process.pid()).unwrap_or_default() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// A command line that runs the application under the agent.
fn words<'a>(agent: &'a str, dir: &'a ConfigDir, app: &[&'a str]) -> Result<Vec<&'a str>> {
    let dir = dir.path().to_str().context("odd path")?;
    let mut words =
        vec![agent, "exec", "--dir", dir, "--port", "0", "--notify", "SIGUSR1", "--log-level", "debug", "--"];
    words.extend(app);
    Ok(words)
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

#[tokio::test]
async fn ctrl_c_reaches_the_child_once() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let mut terminal = Terminal::start(&words(agent, &dir, &[APP, "--catch", "SIGINT"])?)?;
    terminal.ready_in_front().await?;
    for times in 1..=3 {
        terminal.types(CTRL_C)?;
        terminal.shows(times, " SIGINT").await?;
    }
    assert_eq!(terminal.shown().matches(" SIGINT").count(), 3, "{}", terminal.shown());
    assert!(!terminal.shown().contains("passed on"), "the agent got it too: {}", terminal.shown());
    Ok(())
}

#[tokio::test]
async fn a_child_that_reads_the_terminal_at_once_is_not_stopped() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    for _ in 0..10 {
        let child = ["sh", "-c", "read word && echo \"read $word\""];
        let mut terminal = Terminal::start(&words(agent, &dir, &child)?)?;
        terminal.types("something\n")?;
        terminal.shows(1, "read something").await?;
        assert_eq!(terminal.process.exited(SOON).await?.code(), Some(0));
    }
    Ok(())
}

#[tokio::test]
async fn ctrl_z_stops_the_job_and_fg_goes_on_with_it() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    terminal.types(&format!("{}\n", words(agent, &dir, &[APP, "--catch", "SIGUSR1"])?.join(" ")))?;
    let app = terminal.ready_in_front().await?;
    let job = parent_of(app).context("the application has no parent")?;

    terminal.types(CTRL_Z)?;
    for pid in [app, job] {
        eventually(SOON, "it is stopped", async || (state(pid) == Some('T')).then_some(())).await?;
    }
    terminal.types("echo back $((6 * 7))\n")?;
    terminal.shows(1, "back 42").await?;

    terminal.types("fg\n")?;
    for pid in [app, job] {
        eventually(SOON, "it goes on", async || (state(pid) != Some('T')).then_some(())).await?;
    }
    dir.switch("shop", "1.0.1")?;
    terminal.shows(1, &format!("{app} SIGUSR1")).await?;

    terminal.types(CTRL_C)?;
    eventually(SOON, "the application has ended", async || state(app).is_none().then_some(())).await?;
    terminal.types("echo ended $?\n")?;
    terminal.shows(1, "ended 130").await
}

#[tokio::test]
async fn a_job_in_the_background_leaves_the_terminal_to_the_shell() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    terminal.types(&format!("{} &\n", words(agent, &dir, &[APP, "--catch", "SIGUSR1"])?.join(" ")))?;
    let app = terminal.ready().await?;
    for times in 1..=2 {
        terminal.types(&format!("echo still $(({times} + 40))\n"))?;
        terminal.shows(1, &format!("still {}", times + 40)).await?;
    }
    dir.switch("shop", "1.0.1")?;
    terminal.shows(1, &format!("{app} SIGUSR1")).await?;
    terminal.types("fg\n")?;
    terminal.belongs_to(app).await?;
    terminal.types(CTRL_C)?;
    eventually(SOON, "the application has ended", async || state(app).is_none().then_some(())).await?;
    terminal.types("echo ended $?\n")?;
    terminal.shows(1, "ended 130").await
}

#[tokio::test]
async fn a_child_in_the_background_that_reads_the_terminal_waits_quietly() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let child = ["sh", "-c", r#"'trap "echo again" CONT; echo $$ ready; read word'"#];
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    // Nobody's job, so that the kernel does not stop the agent.
    terminal.types(&format!("({} </dev/tty &)\n", words(agent, &dir, &child)?.join(" ")))?;
    let child = terminal.ready().await?;
    eventually(SOON, "it is stopped", async || (state(child) == Some('T')).then_some(())).await?;
    for version in ["1.0.1", "1.0.2"] {
        dir.switch("shop", version)?;
        terminal.shows(1, &format!("serving configs=shop={version}")).await?;
    }
    assert!(!terminal.shown().contains("again\r\n"), "it is woken in vain: {}", terminal.shown());
    terminal.types("echo still $((6 * 7))\n")?;
    terminal.shows(1, "still 42").await?;
    // It belongs to no shell, so nobody else will end it.
    let agent = parent_of(child).context("no parent")?;
    kill(Pid::from_raw(child), Signal::SIGKILL)?;
    eventually(SOON, "the agent has ended", async || state(agent).is_none().then_some(())).await
}

#[tokio::test]
async fn a_script_has_the_terminal_again_when_the_child_has_ended() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let script = format!("{}; read word && echo \"read $word\"", words(agent, &dir, &["true"])?.join(" "));
    let mut terminal = Terminal::start(&["sh", "-c", &script])?;
    terminal.types("something\n")?;
    terminal.shows(1, "read something").await
}

#[tokio::test]
async fn in_a_pipeline_the_terminal_is_left_to_the_one_that_reads_from_it() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    // As less(1) does.
    let pager = "(read first; echo \"$first\"; read key </dev/tty; echo \"key $key\"; cat)";
    terminal.types(&format!("{} | {pager}\n", words(agent, &dir, &[APP])?.join(" ")))?;
    let app = terminal.ready().await?;
    terminal.types("q\n")?;
    terminal.shows(1, "key q").await?;
    terminal.types(CTRL_C)?;
    eventually(SOON, "the application has ended", async || state(app).is_none().then_some(())).await
}

#[tokio::test]
async fn in_a_pipeline_the_child_gets_the_terminal_when_it_reads_from_it() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    let mut terminal = Terminal::start(&["sh", "-i"])?;
    let child = ["sh", "-c", "'read word; echo \"read $word\"'"];
    terminal.types(&format!("{} | cat\n", words(agent, &dir, &child)?.join(" ")))?;
    terminal.shows(1, " ready endpoint").await?;
    terminal.types("something\n")?;
    terminal.shows(1, "read something").await
}

#[tokio::test]
async fn ctrl_z_where_no_shell_could_go_on_with_the_job_stops_nothing() -> Result<()> {
    let dir = Scene::shop()?;
    let agent = binary::debug()?.to_str().context("odd path")?;
    // As with `ssh -t` or `docker run -it`: the agent is the session's first process.
    let mut terminal = Terminal::start(&words(agent, &dir, &[APP, "--catch", "SIGUSR1", "--catch", "SIGCONT"])?)?;
    let app = terminal.ready_in_front().await?;
    terminal.types(CTRL_Z)?;
    terminal.shows(1, &format!("{app} SIGCONT")).await?;
    dir.switch("shop", "1.0.1")?;
    terminal.shows(1, &format!("{app} SIGUSR1")).await
}

// ---------------------------------------------------------------------------------------------------------------------
// nudge-agent get and status

/// An agent's variables, to be given to commands.
async fn inside(dir: ConfigDir) -> Result<Scene> {
    Scene::start(dir, &[], &IDLE).await
}

/// Runs `nudge-agent` with the agent's variables, changed as wanted.
fn from_inside(scene: &Scene, arguments: &[&str], change: &[(&str, &str)]) -> Result<Finished> {
    let mut command = Command::new(binary::debug()?);
    command.args(arguments);
    for name in [env::ENDPOINT, env::TOKEN, env::TOKEN_FILE, env::CERT, env::CONTAINER] {
        command.env(name, &scene.access.variables[name]);
    }
    for (name, value) in change {
        command.env(name, value);
    }
    Finished::of(&mut command)
}

#[tokio::test]
async fn get_prints_one_value_as_it_is_or_the_whole_dictionary() -> Result<()> {
    let dir = ConfigDir::new()?;
    let (quoted, binary) = ("it's \"a\"\nb", &b"\xff\x00"[..]);
    dir.write_version("shop", "1", [("plain", &b"3"[..]), ("quoted", quoted.as_bytes()), ("binary", binary)])?;
    dir.switch("shop", "1")?;
    let scene = inside(dir).await?;

    let get = |arguments: &[&str]| from_inside(&scene, &[&["get"], arguments].concat(), &[]);
    assert_eq!(get(&["plain"])?.stdout, "3");
    assert_eq!(get(&["quoted"])?.stdout, quoted);
    assert_eq!(get(&["nudge.configs"])?.stdout, "shop=1");
    let whole = get(&[])?;
    assert!(whole.stdout.ends_with("}\n"), "{whole:?}");
    let whole: serde_json::Value = serde_json::from_str(&whole.stdout)?;
    assert_eq!((&whole["quoted"], &whole["binary"]), (&quoted.into(), &"/wA=".into()));
    assert_eq!(get(&["--format", "json"])?.stdout, get(&[])?.stdout);
    Ok(())
}

#[tokio::test]
async fn a_shell_can_source_the_env_format() -> Result<()> {
    let dir = ConfigDir::new()?;
    let value = "it's \"a\" $(b) `c`\n\\d\n";
    dir.write_version("shop", "1", [("SAYING", value), ("lives", "3")])?;
    dir.switch("shop", "1")?;
    let scene = inside(dir).await?;
    let printed = from_inside(&scene, &["get", "--format", "env"], &[])?;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let script = r#"eval "$0"; printf '%s|%s|%s' "$SAYING" "$lives" "$NUDGE_CONFIGS""#;
    let sourced = Finished::of(Command::new("sh").args(["-c", script, &printed.stdout]))?;
    assert_eq!(sourced.stdout, format!("{value}|3|shop=1"));
    Ok(())
}

#[tokio::test]
async fn get_says_what_is_wrong_in_one_line() -> Result<()> {
    let dir = Scene::shop()?;
    dir.write_version("shop", "2", [("game.properties", "x")])?;
    dir.switch("shop", "2")?;
    let other = inside(Scene::shop()?).await?;
    let scene = inside(dir).await?;
    let unused = format!("https://{}/config", std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?);
    let other_authority = other.access.variables[env::CERT].as_str();
    let unreadable = "/no/such/file";
    for (arguments, change, part) in [
        (&["get", "nothing"][..], &[][..], "there is no such key in the dictionary"),
        (&["get", "a/b?c"], &[], "there is no such key in the dictionary"),
        (&["get", "--format", "env"], &[], "game.properties"),
        (&["get"], &[(env::ENDPOINT, "")], "MY_CONFIG_ENDPOINT is not set; run this in a container"),
        (&["get"], &[(env::ENDPOINT, "http://127.0.0.1:1/config")], "MY_CONFIG_ENDPOINT is not an https URL"),
        (&["get"], &[(env::ENDPOINT, unused.as_str())], "can't be reached"),
        (&["get"], &[(env::TOKEN, "wrong")], "Authorization: Bearer"),
        (&["get"], &[(env::TOKEN, ""), (env::TOKEN_FILE, "")], "MY_CONFIG_TOKEN is not set"),
        (&["get"], &[(env::TOKEN, ""), (env::TOKEN_FILE, unreadable)], "/no/such/file can't be read"),
        (&["get"], &[(env::CERT, unreadable)], "/no/such/file can't be read"),
        (&["get"], &[(env::CERT, other_authority)], "certificate"),
        (&["status"], &[(env::ENDPOINT, "")], "MY_CONFIG_ENDPOINT is not set"),
        (&["status"], &[(env::TOKEN, "wrong")], "Authorization: Bearer"),
    ] {
        let finished = from_inside(&scene, arguments, change)?;
        let (code, lines) = (finished.code, finished.stderr.lines().count());
        assert_eq!((code, finished.stdout.as_str(), lines), (Some(1), "", 1), "{arguments:?} {change:?}: {finished:?}");
        assert!(finished.stderr.starts_with("nudge-agent: "), "{}", finished.stderr);
        assert!(finished.stderr.contains(part), "{arguments:?} {change:?}: {}", finished.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_token_variable_counts_as_absent() -> Result<()> {
    let scene = inside(Scene::shop()?).await?;
    let finished = from_inside(&scene, &["get", "lives"], &[(env::TOKEN, "")])?;
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), "3"), "{finished:?}");
    Ok(())
}

#[tokio::test]
async fn get_counts_as_the_containers_own_request() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &["--ack", "fetched"], &IDLE).await?;
    assert!(!scene.client.status().await?.containers[0].acknowledged);
    from_inside(&scene, &["get", "lives"], &[])?;
    assert!(scene.client.status().await?.containers[0].acknowledged);
    Ok(())
}

#[tokio::test]
async fn status_is_for_people_or_for_programs_and_never_shows_a_value() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_version("shop", "1", [("password", "hunter2")])?;
    dir.write_version("extra", "7", [("password", "hunter2")])?;
    dir.switch("shop", "1")?;
    dir.switch("extra", "7")?;
    let mut scene = Scene::start(dir, &["--notify", "SIGUSR1"], &[APP, "--catch", "SIGUSR1"]).await?;
    scene.subscribed("http://127.0.0.1:9/changed").await?;
    scene.dir.switch("shop", "9")?;
    scene.problem("shop", "version 9").await?;

    let text = from_inside(&scene, &["status"], &[])?;
    assert_eq!(text.code, Some(0), "{text:?}");
    for part in [
        "config     shop  1  1 keys, 7 bytes\n",
        "PROBLEM VersionMissing: version 9 of shop is current",
        "overlap    key password of extra is hidden by shop\n",
        "container  app  SIGUSR1  NothingYet",
        "http://127.0.0.1:9/changed  NothingYet\n",
        "source     dir  read ",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let json = from_inside(&scene, &["status", "--format", "json"], &[])?;
    let status: nudge_protocol::status::Status = serde_json::from_str(&json.stdout)?;
    assert_eq!(status.configs.len(), 2);
    assert!(!text.stdout.contains("hunter2") && !json.stdout.contains("hunter2"));
    Ok(())
}

#[test]
fn every_command_has_help_that_names_its_arguments() -> Result<()> {
    for (command, parts) in [
        (&[][..], &["exec", "use", "get", "status", "check", "Try it"][..]),
        (&["exec"], &["--dir", "--config", "--notify", "--port", "--mount-path", "--ack", "MY_CONFIG_ENDPOINT", "127"]),
        (&["use"], &["--dir", "<CONFIG>", "<VERSION>"]),
        (&["get"], &["[KEY]", "--format"]),
        (&["status"], &["--format"]),
        (&["check"], &["--dir"]),
    ] {
        let help = Finished::agent(command.iter().chain(&["--help"]))?;
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{command:?}");
        for part in parts {
            assert!(help.stdout.contains(part), "{command:?} does not tell of {part}: {}", help.stdout);
        }
    }
    Ok(())
}

#[test]
fn a_reader_that_has_gone_is_no_error() -> Result<()> {
    let mut command = Command::new(binary::debug()?);
    // The pipe has no reader from the start.
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let finished = command.arg("--help").stdout(writer).status()?;
    assert!(finished.success(), "{finished}");
    Ok(())
}
