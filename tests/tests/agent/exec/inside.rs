//! `nudge-agent get` and `status`, run in place of the child.

use std::process::Command;

use anyhow::Result;
use nudge_protocol::env;
use nudge_tests::agent::IDLE;
use nudge_tests::ports::Nobody;
use nudge_tests::{AgentUnderTest, ConfigDir, Finished, binary};

use super::exec_command::APP;

/// Returns an agent's variables, to be given to commands.
async fn inside(dir: ConfigDir) -> Result<AgentUnderTest> {
    AgentUnderTest::start(dir, &[], &IDLE).await
}

/// Runs `nudge-agent` with the agent's variables, with changes.
fn from_inside(agent: &AgentUnderTest, arguments: &[&str], change: &[(&str, &str)]) -> Result<Finished> {
    let mut command = Command::new(binary::debug()?);
    command.args(arguments);
    for name in [env::ENDPOINT, env::TOKEN, env::TOKEN_FILE, env::CERT, env::CONTAINER] {
        command.env(name, &agent.access.variables[name]);
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
    let agent = inside(dir).await?;

    let get = |arguments: &[&str]| from_inside(&agent, &[&["get"], arguments].concat(), &[]);
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
    let agent = inside(dir).await?;
    let printed = from_inside(&agent, &["get", "--format", "env"], &[])?;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let script = r#"eval "$0"; printf '%s|%s|%s' "$SAYING" "$lives" "$NUDGE_CONFIGS""#;
    let sourced = Finished::of(Command::new("sh").args(["-c", script, &printed.stdout]))?;
    assert_eq!(sourced.stdout, format!("{value}|3|shop=1"));
    Ok(())
}

#[tokio::test]
async fn get_says_what_is_wrong_in_one_line() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("shop", "2", [("game.properties", "x")])?;
    dir.switch("shop", "2")?;
    let other = inside(AgentUnderTest::shop()?).await?;
    let agent = inside(dir).await?;
    let nobody = Nobody::new()?;
    let unused = format!("https://{}/config", nobody.address);
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
        let finished = from_inside(&agent, arguments, change)?;
        let (code, lines) = (finished.code, finished.stderr.lines().count());
        assert_eq!((code, finished.stdout.as_str(), lines), (Some(1), "", 1), "{arguments:?} {change:?}: {finished:?}");
        assert!(finished.stderr.starts_with("nudge-agent: "), "{}", finished.stderr);
        assert!(finished.stderr.contains(part), "{arguments:?} {change:?}: {}", finished.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_token_variable_counts_as_absent() -> Result<()> {
    let agent = inside(AgentUnderTest::shop()?).await?;
    let finished = from_inside(&agent, &["get", "lives"], &[(env::TOKEN, "")])?;
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), "3"), "{finished:?}");
    Ok(())
}

#[tokio::test]
async fn get_counts_as_the_containers_own_request() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &["--ack", "fetched"], &IDLE).await?;
    assert!(!agent.client.status().await?.containers[0].acknowledged);
    from_inside(&agent, &["get", "lives"], &[])?;
    assert!(agent.client.status().await?.containers[0].acknowledged);
    Ok(())
}

#[tokio::test]
async fn status_is_for_people_or_for_programs_and_never_shows_a_value() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_version("shop", "1", [("password", "hunter2")])?;
    dir.write_version("extra", "7", [("password", "hunter2")])?;
    dir.switch("shop", "1")?;
    dir.switch("extra", "7")?;
    let mut agent = AgentUnderTest::start(dir, &["--notify", "SIGUSR1"], &[APP, "--catch", "SIGUSR1"]).await?;
    agent.subscribed("http://127.0.0.1:9/changed").await?;
    agent.dir.switch("shop", "9")?;
    agent.problem("shop", "version 9").await?;

    let text = from_inside(&agent, &["status"], &[])?;
    assert_eq!(text.code, Some(0), "{text:?}");
    for part in [
        "config     shop  1  1 key, 7 bytes\n",
        "PROBLEM VersionMissing: version 9 of shop is current",
        "overlap    key password of extra is hidden by shop\n",
        "container  app  SIGUSR1  NothingYet",
        "http://127.0.0.1:9/changed  NothingYet\n",
        "source     dir  read ",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let json = from_inside(&agent, &["status", "--format", "json"], &[])?;
    let status: nudge_protocol::status::Status = serde_json::from_str(&json.stdout)?;
    assert_eq!(status.configs.len(), 2);
    assert!(!text.stdout.contains("hunter2") && !json.stdout.contains("hunter2"));
    Ok(())
}
