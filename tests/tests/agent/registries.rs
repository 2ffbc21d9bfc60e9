//! `kubectl nudge push` and `create --from-oci` with Debian's registry, and without an API server.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nudge_tests::{Finished, Process, binary, eventually_blocking, ports, tools};
use serde_json::{Value, json};
use tempfile::TempDir;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The user `shop` with the password `right`.
const USERS: &str = "shop:$2b$04$UPmyLQW.zCdDjWRXuzqIqOM3OOcUaeJvAMh6GSSuCnwUZiw5mRXKG\n";
/// What no output may have.
const HIDDEN: &str = "hidden-52b0";

struct Registry {
    _process: Process,
    folder: TempDir,
    host: String,
}

impl Registry {
    /// Starts a registry without TLS and with a password.
    fn start() -> Result<Option<Self>> {
        let Some(program) = tools::find("docker-registry")? else { return Ok(None) };
        let (folder, host) = (tempfile::tempdir()?, format!("127.0.0.1:{}", ports::free()?));
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("users"), USERS)?;
        let config = json!({
            "version": "0.1", "log": {"level": "error"}, "http": {"addr": host, "secret": "x"},
            "storage": {"filesystem": {"rootdirectory": path("storage")}},
            "auth": {"htpasswd": {"realm": "registry", "path": path("users")}},
        });
        fs::write(path("config.yml"), config.to_string())?;
        let mut command = Command::new(program);
        command.arg("serve").arg(path("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn("docker-registry", &mut command)?;
        eventually_blocking(WAIT_TIMEOUT, "the registry listens", || TcpStream::connect(&host).ok())?;
        Ok(Some(Self { _process: process, folder, host }))
    }

    /// Returns a docker config with this password, as the default of a user with this home.
    fn home(&self, password: &str) -> Result<TempDir> {
        let home = tempfile::tempdir()?;
        fs::create_dir(home.path().join(".docker"))?;
        let auth = STANDARD.encode(format!("shop:{password}"));
        let config = json!({"auths": {&self.host: {"auth": auth}}, "credsStore": "none"});
        fs::write(home.path().join(".docker/config.json"), config.to_string())?;
        Ok(home)
    }

    /// Runs the command of this user, who has no kubeconfig.
    fn run(&self, home: &Path, arguments: &[&str]) -> Result<Finished> {
        let mut command = Command::new(binary::kubectl_nudge()?);
        command.args(arguments).current_dir(self.folder.path()).env("HOME", home);
        command.env_remove("DOCKER_CONFIG").env_remove("KUBECONFIG");
        let finished = Finished::of(&mut command)?;
        let leaks = [&finished.stdout, &finished.stderr].iter().any(|text| text.contains(HIDDEN));
        ensure!(!leaks, "{arguments:?}: {finished:?}");
        Ok(finished)
    }

    fn write(&self, path: &str, content: &str) -> Result<()> {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        Ok(fs::write(path, content)?)
    }
}

#[test]
fn a_folder_is_pushed_and_a_version_made_of_it() -> Result<()> {
    let Some(registry) = Registry::start()? else { return Ok(()) };
    let home = registry.home("right")?;
    registry.write("config/app.yaml", "a: 1\n")?;
    registry.write("config/sub/greeting", "hello")?;
    registry.write("config/sub/.git/HEAD", "x")?;
    let repository = format!("oci+http://{}/team/shop", registry.host);
    let tagged = format!("{repository}:1.0.0");
    let push = || registry.run(home.path(), &["push", "config", &tagged]);
    let pushed = push()?;
    ensure!(pushed.code == Some(0) && pushed.stdout.starts_with("sha256:"), "{pushed:?}");
    ensure!(push()? == pushed, "the same files have another digest");
    let created = |from: &str| -> Result<Value> {
        let from = format!("--from-oci={from}");
        let arguments = ["create", "shop", "1", &from, "--from-literal=more=1", "--dry-run=client", "-o", "json"];
        let finished = registry.run(home.path(), &arguments)?;
        ensure!(finished.code == Some(0), "{finished:?}");
        Ok(serde_json::from_str::<Value>(&finished.stdout)?["data"].take())
    };
    let all = json!({"app.yaml": "a: 1\n", "sub.greeting": "hello", "more": "1"});
    ensure!(created(&tagged)? == all);
    ensure!(created(&format!("{repository}@{}", pushed.stdout.trim()))? == all);
    ensure!(created(&format!("{tagged}//sub"))? == json!({"greeting": "hello", "more": "1"}));
    // Two files would be one key.
    registry.write("config/sub.greeting", "again")?;
    push()?;
    let fails = |arguments: &[&str], code: i32, expected: &str| -> Result<()> {
        let finished = registry.run(home.path(), arguments)?;
        ensure!(finished.code == Some(code) && finished.stderr.contains(expected), "{arguments:?}: {finished:?}");
        Ok(())
    };
    let create = |from: &str| format!("--from-oci={from}");
    let twice = "the files sub.greeting and sub/greeting both become the key sub.greeting";
    fails(&["create", "shop", &create(&tagged), "--dry-run=client"], 1, twice)?;
    fails(&["create", "shop", &create(&format!("{repository}:2")), "--dry-run=client"], 1, "has no 2")?;
    fails(&["create", "shop", &create("https://r/a"), "--dry-run=client"], 2, "must begin with oci://")?;
    fails(&["push", "config", &repository], 2, "name a tag")?;
    fails(&["push", "none", &tagged], 1, "No such file")?;
    Ok(())
}

#[test]
fn the_credential_is_that_of_the_docker_config_and_shown_nowhere() -> Result<()> {
    let Some(registry) = Registry::start()? else { return Ok(()) };
    registry.write("config/app.yaml", "a: 1\n")?;
    let tagged = format!("oci+http://{}/team/shop:1", registry.host);
    let (right, wrong, nobody) = (registry.home("right")?, registry.home(HIDDEN)?, tempfile::tempdir()?);
    let stderr_of = |home: &TempDir, arguments: &[&str]| -> Result<String> {
        let finished = registry.run(home.path(), &[&["push", "config", &tagged], arguments].concat())?;
        ensure!(finished.code == Some(1), "{finished:?}");
        Ok(finished.stderr)
    };
    ensure!(stderr_of(&nobody, &[])?.contains("give a credential"));
    ensure!(stderr_of(&wrong, &[])?.contains("refuses the credential"));
    ensure!(stderr_of(&right, &["--docker-config=none.json"])?.contains("none.json: No such file"));
    registry.write("bad.json", HIDDEN)?;
    ensure!(stderr_of(&right, &["--docker-config=bad.json"])?.contains("bad.json: it is not a docker config"));
    let named = right.path().join(".docker/config.json").display().to_string();
    let by_flag = registry.run(wrong.path(), &["push", "config", &tagged, "--docker-config", &named])?;
    ensure!(by_flag.code == Some(0), "{by_flag:?}");
    Ok(())
}
