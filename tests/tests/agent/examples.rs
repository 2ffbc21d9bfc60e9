//! Every example runs unchanged from the repository, and takes a new version in the same process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{AgentUnderTest, ConfigDir, ExecCommand, FakeHub, Pod, Process, binary, eventually, ports, tools};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// Returns the examples' own configuration, in a folder where a test may switch it.
fn configuration(config: &str) -> Result<ConfigDir> {
    let dir = ConfigDir::new()?;
    for version in ["1.0.0", "1.0.1"] {
        let folder = examples().join("config").join(config).join(version);
        let files = fs::read_dir(&folder).with_context(|| format!("can't list {}", folder.display()))?;
        let entry = |entry: std::io::Result<fs::DirEntry>| -> Result<_> {
            let entry = entry?;
            Ok((entry.file_name().into_string().ok().context("odd name")?, fs::read(entry.path())?))
        };
        dir.write_version(config, version, files.map(entry).collect::<Result<Vec<_>>>()?)?;
    }
    dir.switch(config, "1.0.0")?;
    Ok(dir)
}

/// Runs an example that prints its configuration, switches there and back, and looks at the lines.
async fn prints_each_version<S: AsRef<OsStr>>(
    set: impl FnOnce(ExecCommand) -> ExecCommand,
    command: &[S],
) -> Result<()> {
    let mut agent =
        AgentUnderTest::start_with(configuration("shop")?, |exec| set(exec.args(["--config", "shop"])), command)
            .await?;
    let old = "shop=1.0.0 greeting=hello lives=3";
    let new = "shop=1.0.1 greeting=welcome lives=5";
    let mut expected = vec![];
    for (version, line) in [("1.0.0", old), ("1.0.1", new), ("1.0.0", old)] {
        agent.dir.switch("shop", version)?;
        expected.push(line);
        agent.wait_for_lines(expected.iter().filter(|one| **one == line).count(), line).await?;
    }
    let output = agent.agent.output();
    let lines: Vec<_> = output.lines().map(|line| line.split_once(": ").unwrap_or_default()).collect();
    ensure!(lines.iter().map(|(_, text)| *text).eq(expected), "{output}");
    ensure!(lines.iter().all(|(process, _)| *process == lines[0].0 && process.starts_with("pid ")), "{output}");
    Ok(())
}

/// `python3 examples/python/app.py` and its like.
fn script(program: PathBuf, path: &str) -> [OsString; 2] {
    [program.into(), examples().join(path).into()]
}

/// Returns the same without MY_CONFIG_TOKEN, as in pods on servers before 1.35.
fn without_the_token_itself(command: &[OsString]) -> Vec<OsString> {
    ["env", "-u", "MY_CONFIG_TOKEN"].into_iter().map(OsString::from).chain(command.iter().cloned()).collect()
}

#[tokio::test]
async fn a_token_in_a_file_is_enough() -> Result<()> {
    let mut examples = vec![("SIGUSR1", vec![binary::example()?.into()])];
    if let Some(python) = tools::find("python3")? {
        examples.push(("SIGUSR1", script(python.clone(), "python/app.py").to_vec()));
        examples.push(("webhook", script(python, "webhook/app.py").to_vec()));
    }
    if let Some(php) = tools::find("php")? {
        examples.push(("SIGUSR1", script(php, "php/app.php").to_vec()));
    }
    if let Some(ruby) = tools::find("ruby")? {
        examples.push(("SIGUSR1", script(ruby, "ruby/app.rb").to_vec()));
    }
    if let Some(node) = tools::find("node")? {
        examples.push(("SIGUSR2", script(node, "node/app.mjs").to_vec()));
    }
    for (notify, command) in examples {
        let set = |exec: ExecCommand| exec.args(["--notify", notify]);
        prints_each_version(set, &without_the_token_itself(&command)).await?;
    }
    let path = with_agent_in_path()?;
    let set = |exec: ExecCommand| exec.args(["--notify", "SIGUSR1"]).env("PATH", path);
    prints_each_version(set, &without_the_token_itself(&script("sh".into(), "shell/app.sh"))).await
}

/// Returns a search path for the script that calls nudge-agent by its name.
fn with_agent_in_path() -> Result<OsString> {
    let bin = binary::debug()?.parent().context("no folder")?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)))?)
}

#[tokio::test]
async fn python() -> Result<()> {
    let Some(python) = tools::find("python3")? else { return Ok(()) };
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR1"]), &script(python, "python/app.py")).await
}

#[tokio::test]
async fn node() -> Result<()> {
    let Some(node) = tools::find("node")? else { return Ok(()) };
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR2"]), &script(node, "node/app.mjs")).await
}

#[tokio::test]
async fn shell() -> Result<()> {
    let path = with_agent_in_path()?;
    let set = |exec: ExecCommand| exec.args(["--notify", "SIGUSR1"]).env("PATH", path);
    prints_each_version(set, &script("sh".into(), "shell/app.sh")).await
}

#[tokio::test]
async fn go() -> Result<()> {
    let Some(go) = tools::find("go")? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("app");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(examples().join("go/app.go"));
    ensure!(
        build.env("GOCACHE", folder.path().join("cache")).env("GO111MODULE", "off").status()?.success(),
        "go can't build"
    );
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR1"]), &[program]).await
}

#[tokio::test]
async fn java() -> Result<()> {
    let Some(java) = tools::find("java")? else { return Ok(()) };
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR1"]), &script(java, "java/App.java")).await
}

#[tokio::test]
async fn perl() -> Result<()> {
    let Some(perl) = tools::find("perl")? else { return Ok(()) };
    let path = with_agent_in_path()?;
    let set = |exec: ExecCommand| exec.args(["--notify", "SIGUSR1"]).env("PATH", path);
    prints_each_version(set, &script(perl, "perl/app.pl")).await
}

#[tokio::test]
async fn php() -> Result<()> {
    let Some(php) = tools::find("php")? else { return Ok(()) };
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR1"]), &script(php, "php/app.php")).await
}

#[tokio::test]
async fn ruby() -> Result<()> {
    let Some(ruby) = tools::find("ruby")? else { return Ok(()) };
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR1"]), &script(ruby, "ruby/app.rb")).await
}

#[tokio::test]
async fn rust() -> Result<()> {
    prints_each_version(|exec| exec.args(["--notify", "SIGUSR1"]), &[binary::example()?]).await
}

#[tokio::test]
async fn webhook() -> Result<()> {
    let Some(python) = tools::find("python3")? else { return Ok(()) };
    prints_each_version(|exec| exec.args(["--notify", "webhook"]), &script(python, "webhook/app.py")).await
}

#[tokio::test]
async fn the_webhook_example_refuses_a_version_that_it_cannot_run_with() -> Result<()> {
    let Some(python) = tools::find("python3")? else { return Ok(()) };
    let (hub, port) = (FakeHub::start()?, ports::free()?);
    let version = |lives: &'static [u8]| [("greeting", &b"hello"[..]), ("lives", lives)];
    hub.activate("shop", "1.0.0", &version(b"3"))?;
    let mut pod = Pod::new(&hub)?.with(&["--check", &format!("app=http://127.0.0.1:{port}/")]);
    let mut client = pod.start().await?;
    let variables = fs::read_to_string(pod.path("share/env"))?;
    let variables = variables.lines().filter_map(|line| line.split_once('='));
    let [program, script] = script(python, "webhook/app.py");
    let mut command = Command::new(program);
    command.arg(script).envs(variables.map(|(name, value)| (name, value.trim_matches('\''))));
    command.env("MY_CONFIG_CERT", pod.path("share/ca.crt")).env("WEBHOOK_PORT", port.to_string());
    let output = pod.path("example.out");
    let _app = Process::spawn("example", command.stdout(File::create(&output)?))?;
    let says = async |line: &str| {
        let says_it = async || fs::read_to_string(&output).ok()?.contains(line).then_some(());
        eventually(WAIT_TIMEOUT, line, says_it).await.map_err(|error| pod.explain(&error))
    };
    says("shop=1.0.0 greeting=hello lives=3").await?;
    hub.activate("shop", "1.0.1", &version(b"many"))?;
    pod.status_when(&mut client, WAIT_TIMEOUT, "it is refused", |status| {
        let problem = status.configs[0].problem.as_ref();
        problem.is_some_and(|problem| problem.message == "container app refuses it: lives is not a number")
    })
    .await?;
    hub.activate("shop", "1.0.2", &version(b"7"))?;
    says("shop=1.0.2 greeting=hello lives=7").await?;
    let output = fs::read_to_string(&output)?;
    ensure!(output.lines().count() == 2, "{output}");
    Ok(())
}

#[tokio::test]
async fn nginx() -> Result<()> {
    if tools::find("nginx")?.is_none() {
        return Ok(());
    }
    let dir = configuration("web")?;
    let folder = dir.beside("nginx");
    // Taken by nginx itself a moment later.
    let port = ports::free()?;
    let mounted = [OsStr::new("--mount-path").to_owned(), folder.join("config").into()];
    let set = |exec: ExecCommand| {
        exec.args(["--config", "web", "--notify", "SIGHUP"]).args(mounted).env("NGINX_PORT", port.to_string())
    };
    let command = [OsString::from("sh"), examples().join("nginx/app.sh").into(), folder.clone().into()];
    let mut agent = AgentUnderTest::start_with(dir, set, &command).await?;
    let mut masters = vec![];
    for (version, greeting) in [("1.0.0", "hello\n"), ("1.0.1", "welcome\n"), ("1.0.0", "hello\n")] {
        agent.dir.switch("web", version)?;
        eventually(WAIT_TIMEOUT, &format!("nginx says {greeting:?}"), async || {
            (get(port).ok()? == greeting).then_some(())
        })
        .await
        .map_err(|error| agent.agent.explain(&error))?;
        masters.push(fs::read_to_string(folder.join("nginx.pid"))?);
    }
    ensure!(masters.iter().all(|pid| *pid == masters[0]), "{masters:?}");
    agent.agent.check()
}

/// Returns the body of a page.
fn get(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply.split_once("\r\n\r\n").context("no reply")?.1.to_owned())
}
