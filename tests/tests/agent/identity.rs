//! Token and certificate: every kind of client takes them and refuses another authority's, and they last as they
//! should.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use nudge_protocol::env;
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{Access, AgentUnderTest, Client, ExecCommand, Finished, Raw, agent::tls, binary, procfs, tools};
use rustls::ClientConfig;
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start_agent(arguments: &[&str]) -> Result<AgentUnderTest> {
    AgentUnderTest::start(AgentUnderTest::shop()?, arguments, &IDLE).await
}

/// Runs a client in another language with the variables that the agent gave its child.
fn run(tool: &Path, arguments: &[&str], client: &str, access: &Access, authority: &Path) -> Result<Finished> {
    let mut command = Command::new(tool);
    command.args(arguments).arg(tools::client(client));
    command.envs(access.variables.iter().filter(|(name, _)| name.starts_with("MY_CONFIG_")));
    command.env(env::CERT, authority);
    // Go keeps what it compiles; here that is below the target folder, and so goes with it.
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    command.env("GOCACHE", built.join("go-cache")).env("GOPATH", built.join("go")).env("GO111MODULE", "off");
    Finished::of(&mut command)
}

/// The client reads the dictionary with the pod's authority and refuses the endpoint with another pod's, which has the
/// same name and another key.
async fn proves_the_endpoint(tool: &str, arguments: &[&str], client: &str) -> Result<()> {
    let Some(tool) = tools::find(tool)? else { return Ok(()) };
    let (mut pod, other) = (start_agent(&[]).await?, start_agent(&[]).await?);
    let access = &pod.access;
    let good = run(&tool, arguments, client, access, &access.authority)?;
    assert_eq!(good.code, Some(0), "{good:?}");
    let bad = run(&tool, arguments, client, access, &other.access.authority)?;
    assert!(bad.code != Some(0) && bad.stdout.is_empty(), "{bad:?}");
    let reason = bad.stderr.to_lowercase();
    assert!(["certificate", "pkix", "signature"].iter().any(|word| reason.contains(word)), "{bad:?}");
    assert_eq!(good.stdout, str::from_utf8(&pod.client.get("/config").await?.body)?);
    Ok(())
}

#[tokio::test]
async fn curl_proves_the_endpoint() -> Result<()> {
    if tools::find("curl")?.is_none() {
        return Ok(());
    }
    proves_the_endpoint("sh", &[], "curl.sh").await
}

#[tokio::test]
async fn python_with_its_strict_flags_proves_the_endpoint() -> Result<()> {
    proves_the_endpoint("python3", &[], "strict.py").await
}

#[tokio::test]
async fn node_proves_the_endpoint() -> Result<()> {
    proves_the_endpoint("node", &[], "node.mjs").await
}

#[tokio::test]
async fn go_proves_the_endpoint() -> Result<()> {
    proves_the_endpoint("go", &["run"], "client.go").await
}

#[tokio::test]
async fn java_proves_the_endpoint() -> Result<()> {
    proves_the_endpoint("java", &[], "Client.java").await
}

#[tokio::test]
async fn rustls_proves_the_endpoint() -> Result<()> {
    let (mut pod, other) = (start_agent(&[]).await?, start_agent(&[]).await?);
    assert_eq!(pod.client.get("/config").await?.status, 200);
    let Err(refused) = Client::without_token(pod.access.address, &other.access.authority)?.get("/config").await else {
        panic!("another pod's authority is good enough");
    };
    assert!(format!("{refused:#}").contains("certificate"), "{refused:#}");
    Ok(())
}

#[tokio::test]
async fn the_certificate_is_for_localhost_too_and_for_no_other_name() -> Result<()> {
    let Some(curl) = tools::find("curl")? else { return Ok(()) };
    let pod = start_agent(&[]).await?;
    let port = pod.access.address.port();
    for (host, code) in [("localhost", 0), ("example.com", 60), ("127.0.0.3", 60)] {
        let mut command = Command::new(&curl);
        command.args(["--disable", "--silent", "--fail", "--noproxy", "*", "--capath", "/nonexistent", "--cacert"]);
        command.arg(&pod.access.authority).args(["--connect-to", &format!("::127.0.0.1:{port}")]);
        let finished = Finished::of(command.arg(format!("https://{host}:{port}/healthz")))?;
        assert_eq!(finished.code, Some(code), "{host}: {finished:?}");
    }
    Ok(())
}

/// Asks an agent with what an earlier one gave out; the trust anchor was read then.
async fn is_taken(now: &Access, then: &Access, trust: &Arc<ClientConfig>) -> Result<bool> {
    let stream = TcpStream::connect(now.address).await?;
    let Ok(mut raw) = Raw::over(stream, now.address.ip(), trust).await else { return Ok(false) };
    raw.send(head(then, "GET /config", &[])).await?;
    Ok(raw.reply().await?.status == 200)
}

#[tokio::test]
async fn with_a_state_folder_a_client_of_the_first_start_is_one_of_the_second() -> Result<()> {
    let folder = tempdir()?;
    let state = folder.path().join("state");
    let arguments = ["--state-dir", state.to_str().context("an odd folder")?];
    let mut first = start_agent(&arguments).await?;
    let trust = tls::trusting(&first.access.authority)?;
    assert!(is_taken(&first.access, &first.access, &trust).await?);
    first.agent.process().stop()?;

    let second = start_agent(&arguments).await?;
    assert_eq!(second.access.token, first.access.token);
    assert!(is_taken(&second.access, &first.access, &trust).await?);
    for entry in fs::read_dir(&state)? {
        let entry = entry?;
        assert_eq!(entry.metadata()?.permissions().mode() & 0o077, 0, "others can read {}", entry.path().display());
    }
    assert_eq!(fs::metadata(&state)?.permissions().mode() & 0o077, 0);
    Ok(())
}

#[tokio::test]
async fn without_a_state_folder_every_start_has_its_own_token_and_authority() -> Result<()> {
    let mut first = start_agent(&[]).await?;
    let trust = tls::trusting(&first.access.authority)?;
    first.agent.process().stop()?;
    let second = start_agent(&[]).await?;
    assert_ne!(second.access.token, first.access.token);
    assert!(!is_taken(&second.access, &first.access, &trust).await?, "another authority");
    let trust = tls::trusting(&second.access.authority)?;
    assert!(!is_taken(&second.access, &first.access, &trust).await?, "another token");
    Ok(())
}

#[tokio::test]
async fn the_child_gets_all_variables_and_the_rest_of_the_environment() -> Result<()> {
    let exec = |exec: ExecCommand| exec.env("SOMETHING_ELSE", "kept").env("MY_CONFIG_TOKEN", "old");
    let pod = AgentUnderTest::start_with(AgentUnderTest::shop()?, exec, &IDLE).await?;
    let Access { address, token, authority, variables } = &pod.access;
    let variable = |name: &str| variables.get(name).map(String::as_str);
    assert_eq!(variable(env::ENDPOINT), Some(format!("https://{address}/config").as_str()));
    assert_eq!(variable(env::CONTAINER), Some("app"));
    assert_eq!(variable("SOMETHING_ELSE"), Some("kept"));
    // Standard base64 of 256 bits.
    assert!(token.len() == 44 && token.ends_with('='), "{} characters", token.len());
    assert!(token[..43].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte)));

    let token_file = PathBuf::from(variable(env::TOKEN_FILE).context("no token file")?);
    assert_eq!(fs::read_to_string(&token_file)?, *token, "and no newline");
    assert_eq!(fs::metadata(&token_file)?.permissions().mode() & 0o777, 0o600);
    let folder = token_file.parent().context("it is in no folder")?;
    assert_eq!(fs::metadata(folder)?.permissions().mode() & 0o022, 0, "others can put files there");
    let certificate = fs::read_to_string(authority)?;
    assert_eq!(certificate.matches("-----BEGIN CERTIFICATE-----").count(), 1);
    assert!(!certificate.contains("PRIVATE"));

    // Every user of the machine can see a command line.
    for process in [pod.agent.pid(), procfs::descendants(pod.agent.pid())?[0]] {
        let line = fs::read(format!("/proc/{process}/cmdline"))?;
        assert!(!String::from_utf8_lossy(&line).contains(token), "the token stands in a command line");
    }
    Ok(())
}

#[tokio::test]
async fn the_folder_with_the_token_is_gone_when_the_agent_is_stopped() -> Result<()> {
    let mut pod = start_agent(&[]).await?;
    let token_file = PathBuf::from(&pod.access.variables[env::TOKEN_FILE]);
    let folder = token_file.parent().context("it is in no folder")?;
    assert!(folder.is_dir() && pod.access.authority.starts_with(folder));
    pod.agent.process().stop()?;
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn the_folder_with_the_token_is_gone_however_the_child_ends() -> Result<()> {
    let found = r#"test -s "$MY_CONFIG_CERT" && case $MY_CONFIG_TOKEN_FILE in "$XDG_RUNTIME_DIR"/*) exit 7 ;; esac"#;
    let ends: [(&[&str], i32); 4] = [
        (&["sh", "-c", found], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/nonexistent/command"], 127),
        (&["/proc/self/status"], 126),
    ];
    for (child, code) in ends {
        let (dir, runtime) = (AgentUnderTest::shop()?, tempdir()?);
        let exec = ExecCommand::new(binary::debug()?, dir.path()).env("XDG_RUNTIME_DIR", runtime.path());
        let mut agent = exec.spawn(child)?;
        assert_eq!(agent.process().wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(code), "{child:?}: {}", agent.log());
        assert_eq!(fs::read_dir(runtime.path())?.count(), 0, "{child:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_ipv6_endpoint_is_in_brackets() -> Result<()> {
    if TcpListener::bind("[::1]:0").is_err() {
        tools::skipped("this machine has no IPv6");
        return Ok(());
    }
    let mut pod = start_agent(&["--listen", "::1"]).await?;
    let port = pod.access.address.port();
    assert_eq!(pod.access.variables[env::ENDPOINT], format!("https://[::1]:{port}/config"));
    let served = pod.client.get("/config").await?;
    assert_eq!(served.status, 200);
    if tools::find("curl")?.is_some() {
        let curl = run(Path::new("sh"), &[], "curl.sh", &pod.access, &pod.access.authority)?;
        assert_eq!((curl.code, curl.stdout.as_bytes()), (Some(0), &served.body[..]), "{}", curl.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn the_certificate_is_for_the_address_that_was_requested() -> Result<()> {
    let mut pod = start_agent(&["--listen", "127.0.0.2"]).await?;
    assert!(pod.access.variables[env::ENDPOINT].starts_with("https://127.0.0.2:"));
    assert_eq!(pod.client.get("/config").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_port_in_use_is_reported_with_what_to_do_and_the_child_never_starts() -> Result<()> {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = taken.local_addr()?.port();
    let dir = AgentUnderTest::shop()?;
    let witness = dir.beside("started");
    let child = ["touch", witness.to_str().context("an odd folder")?];
    let mut agent = ExecCommand::new(binary::debug()?, dir.path()).port(port).spawn(&child)?;
    assert_eq!(agent.process().wait_for_exit(WAIT_TIMEOUT).await?.code(), Some(125));
    let log = agent.log();
    for part in [format!("port {port} of 127.0.0.1 is in use"), "--port".to_owned()] {
        assert!(log.contains(&part), "{part} in {log}");
    }
    assert!(!witness.exists());
    Ok(())
}

#[tokio::test]
async fn a_restarted_agent_takes_its_port_again_at_once() -> Result<()> {
    // No other test takes a port of this address.
    let on = |port| move |exec: ExecCommand| exec.args(["--listen", "127.0.0.9"]).port(port);
    let mut first = AgentUnderTest::start_with(AgentUnderTest::shop()?, on(0), &IDLE).await?;
    // Plain HTTP is a connection that the agent ends first, which keeps its port busy for a minute.
    let mut connection = TcpStream::connect(first.access.address).await?;
    connection.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
    connection.read_to_end(&mut Vec::new()).await?;
    drop(connection);
    first.agent.process().stop()?;
    let second = AgentUnderTest::start_with(AgentUnderTest::shop()?, on(first.access.address.port()), &IDLE).await?;
    assert_eq!(second.access.address, first.access.address);
    Ok(())
}
