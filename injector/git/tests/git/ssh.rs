//! By SSH: the repositories that a key opens, and the servers that are trusted.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_git::{Credential, GitError, Revision};
use nudge_tests::process::Process;
use nudge_tests::{eventually, ports, tools};
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::answers::{Answers, answer};
use crate::repository::{Client, Repository, text};
use crate::web::Certificates;

/// An SSH server of the user who runs the test.
pub(crate) struct Ssh {
    folder: TempDir,
    port: u16,
    user: String,
    _sshd: Process,
}

/// Makes a key; the private one is in the file.
pub(crate) fn key(file: &Path, passphrase: &str) -> Result<String> {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-C", "a@example.com", "-N", passphrase, "-f"])
        .arg(file)
        .stdin(Stdio::null())
        .status()?;
    ensure!(made.success(), "no key");
    Ok(fs::read_to_string(file.with_extension("pub"))?.trim().to_owned())
}

impl Ssh {
    pub(crate) async fn start() -> Result<Option<Self>> {
        let Some(sshd) = tools::find("sshd")? else { return Ok(None) };
        // The folder of the unprivileged process, which a service would make.
        if nix::unistd::Uid::effective().is_root() {
            fs::create_dir_all("/run/sshd")?;
        }
        let (folder, port) = (tempfile::tempdir()?, ports::free()?);
        let root = folder.path();
        key(&root.join("host"), "")?;
        fs::write(root.join("authorized"), key(&root.join("mine"), "")?)?;
        fs::create_dir(root.join("bin"))?;
        let (at, path) = (root.display(), std::env::var("PATH")?);
        fs::write(
            root.join("config"),
            format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nStrictModes no\n\
                 UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPidFile none\n\
                 AcceptEnv GIT_PROTOCOL\nSetEnv PATH={at}/bin:{path}\nLogLevel VERBOSE\n"
            ),
        )?;
        let mut command = Command::new(sshd);
        command.args(["-D", "-E"]).arg(root.join("log")).arg("-f").arg(root.join("config"));
        let sshd = Process::spawn("sshd", command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let open = async || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop);
        eventually(Duration::from_secs(30), "sshd listens", open).await?;
        let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?.trim().to_owned();
        Ok(Some(Self { folder, port, user, _sshd: sshd }))
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self, repository: &Repository) -> String {
        format!("ssh://{}@localhost:{}{}", self.user, self.port, repository.served().display())
    }

    pub(crate) fn known(&self, of: &str) -> Result<String> {
        let public = fs::read_to_string(self.root().join(format!("{of}.pub")))?;
        Ok(format!("[localhost]:{} {public}", self.port))
    }

    pub(crate) fn credential(&self, key: &str, known_hosts: String) -> Result<Credential> {
        Ok(Credential::Ssh { key: Zeroizing::new(fs::read(self.root().join(key))?), known_hosts })
    }
}

#[tokio::test]
async fn a_key_opens_what_it_is_for_and_no_other_does() -> Result<()> {
    let Some(ssh) = Ssh::start().await? else { return Ok(()) };
    let repository = Repository::new(ssh.root(), "shop")?;
    let mut client = Client::new(&ssh.url(&repository), ssh.credential("mine", ssh.known("host")?)?, None)?;
    let commit = client.main().await?;
    assert_eq!(text(&commit), [("a.conf", "one\n".to_owned())]);
    assert!(client.fetch(Revision::Head, Some(&commit.id)).await?.is_none());
    assert!(
        !client
            .folder
            .path()
            .join("mirrors")
            .read_dir()?
            .flatten()
            .any(|it| it.file_name().to_string_lossy().starts_with("run-"))
    );

    key(&ssh.root().join("other"), "")?;
    client.credential = ssh.credential("other", ssh.known("host")?)?;
    assert!(matches!(client.main().await, Err(GitError::Credential(_))));
    key(&ssh.root().join("locked"), "a passphrase")?;
    client.credential = ssh.credential("locked", ssh.known("host")?)?;
    let refused = client.main().await;
    assert!(matches!(refused, Err(GitError::Key)), "{refused:?}");
    fs::write(ssh.root().join("garbage"), "no key")?;
    client.credential = ssh.credential("garbage", ssh.known("host")?)?;
    assert!(matches!(client.main().await, Err(GitError::Key)));
    client.credential = Credential::Anonymous;
    assert!(matches!(client.main().await, Err(GitError::NeedsKey)));
    Ok(())
}

#[tokio::test]
async fn a_server_is_believed_by_its_key_alone() -> Result<()> {
    let Some(ssh) = Ssh::start().await? else { return Ok(()) };
    let repository = Repository::new(ssh.root(), "shop")?;
    let mut client = Client::new(&ssh.url(&repository), ssh.credential("mine", ssh.known("mine")?)?, None)?;
    let wrong = client.main().await;
    assert!(matches!(wrong, Err(GitError::HostKeyWrong(_))), "{wrong:?}");

    client.credential = ssh.credential("mine", String::new())?;
    let Err(GitError::HostKeyUnknown { host, lines }) = client.main().await else { panic!("believed") };
    assert_eq!(host, format!("[localhost]:{}", ssh.port));
    // The key was offered to nobody.
    assert!(!fs::read_to_string(ssh.root().join("log"))?.contains("Accepted"));
    client.credential = ssh.credential("mine", lines.join("\n"))?;
    client.main().await.context("with the line that the error has named")?;
    Ok(())
}

#[tokio::test]
async fn lfs_by_ssh_asks_the_server_and_goes_to_its_host() -> Result<()> {
    let Some(ssh) = Ssh::start().await? else { return Ok(()) };
    let repository = Repository::new(ssh.root(), "shop")?;
    let (pointer, content) = crate::lfs::pointer(b"large\n");
    repository.write("config/prod/large", &pointer)?;
    repository.commit("large")?;
    let certificates = Certificates::new()?;
    let server = Answers::start(&certificates, crate::lfs::server(content, String::new())).await?;
    let evil = Answers::start(&certificates, std::sync::Arc::new(|_| Some(answer("200 OK", "", "{}")))).await?;
    let program = ssh.root().join("bin/git-lfs-authenticate");
    let authenticate = |host: &str, port: u16| -> Result<()> {
        let json = format!(r#"{{"href":"https://{host}:{port}/lfs","header":{{"Authorization":"Basic bGZz"}}}}"#);
        fs::write(&program, format!("#!/bin/sh\n[ \"$2\" = download ] && echo '{json}'\n"))?;
        Ok(fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?)
    };
    let mut client =
        Client::new(&ssh.url(&repository), ssh.credential("mine", ssh.known("host")?)?, Some(certificates.ca.clone()))?;
    client.lfs = true;
    assert!(matches!(client.main().await, Err(GitError::LfsSsh)), "it is not installed");
    authenticate("127.0.0.1", evil.port)?;
    assert!(matches!(client.main().await, Err(GitError::LfsHost(_))));
    authenticate("localhost", server.port)?;
    let commit = client.main().await?;
    assert_eq!(text(&commit)[1], ("large", "large\n".to_owned()));
    assert!(server.asked()[0].contains("Basic bGZz") && evil.asked().is_empty());
    Ok(())
}
