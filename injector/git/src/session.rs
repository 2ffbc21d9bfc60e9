//! The processes of one request, and their private folder, which holds the SSH key while they run.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nudge_core::remote::GitUrl;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::credential::Credential;
use crate::error::GitError;
use crate::program::{Job, JobError, PROCESS_MIB, ProcessResult, Programs, is_larger, run};
use crate::request::FetchRequest;
use crate::settings::{self, Environment, LOW_SPEED_TIMEOUT_SECONDS, Remote};
use crate::stderr::GitFault;

/// The maximum bytes of a list of refs.
const MAX_REFS_BYTES: usize = 32 * 1024 * 1024;
/// The maximum bytes that other commands print, without contents.
pub(crate) const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// The processes of one request.
pub(crate) struct Session<'a> {
    programs: &'a Programs,
    url: &'a GitUrl,
    addresses: Vec<SocketAddr>,
    authorization: Option<Zeroizing<String>>,
    has_ca: bool,
    ssh: PathBuf,
    private: TempDir,
}

impl<'a> Session<'a> {
    /// Begins a session, with its private folder.
    pub(crate) fn begin(
        programs: &'a Programs,
        request: &FetchRequest<'a>,
        addresses: Vec<SocketAddr>,
        authorization: Option<Zeroizing<String>>,
        directory: &Path,
    ) -> Result<Self, GitError> {
        let private = tempfile::Builder::new().prefix("run-").tempdir_in(directory).map_err(GitError::disk)?;
        let write = |name: &str, content: &[u8]| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(private.path().join(name));
            file.and_then(|mut file| file.write_all(content)).map_err(GitError::disk)
        };
        fs::create_dir(private.path().join("home")).map_err(GitError::disk)?;
        if let Some(ca) = request.ca {
            write("ca", ca)?;
        }
        let mut ssh = PathBuf::new();
        if let Credential::Ssh { key, known_hosts } = request.credential {
            ssh = programs.helper("ssh")?;
            // OpenSSH does not read a key whose last line has no line end.
            let mut key = Zeroizing::new([key.as_slice(), b"\n"].concat());
            key.retain(|byte| *byte != b'\r');
            write("key", &key)?;
            write("known_hosts", format!("{known_hosts}\n").as_bytes())?;
        }
        if let Some(signers) = request.allowed_signers {
            write("signers", format!("{signers}\n").as_bytes())?;
        }
        Ok(Self { programs, url: request.url, addresses, authorization, has_ca: request.ca.is_some(), ssh, private })
    }

    /// Returns the path of a file of the private folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.private.path().join(name)
    }

    /// Runs git with a mirror, without access to the network.
    pub(crate) async fn run_local(
        &self,
        mirror: &Path,
        arguments: &[&str],
        input: &[u8],
        max_output: usize,
    ) -> Result<ProcessResult, GitError> {
        let mut environment = self.local_environment();
        environment.push(("GIT_DIR".to_owned(), Zeroizing::new(mirror.display().to_string())));
        let result = self.run(&self.programs.git, arguments, &environment, input, max_output, None).await;
        result.map_err(|error| match error {
            JobError::Start(error) => GitError::disk(error),
            JobError::OutputTooLong => GitError::TooLarge(max_output),
            JobError::FolderTooLarge => GitError::Broken,
        })
    }

    /// Lists all refs of the repository.
    pub(crate) async fn list_refs(&self) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let url = self.url.to_string();
        match self.run_remote("ls-remote", &["ls-remote", "--quiet", &url], b"", None).await {
            Err(GitError::TooLarge(_)) => Err(GitError::TooManyRefs(MAX_REFS_BYTES)),
            Err(GitError::NotById) => Err(GitError::Git("ls-remote")),
            result => result,
        }
    }

    /// Runs git with access to the server. `mirror` is a mirror with its maximum bytes.
    pub(crate) async fn run_remote(
        &self,
        command: &'static str,
        arguments: &[&str],
        input: &[u8],
        mirror: Option<(&Path, u64)>,
    ) -> Result<Zeroizing<Vec<u8>>, GitError> {
        // Curl tries all addresses by itself, but ssh tries only one address.
        let attempts: Vec<&[SocketAddr]> =
            if self.url.is_ssh() { self.addresses.chunks(1).collect() } else { vec![&self.addresses] };
        let mut failure = GitError::Unreachable(self.host());
        for addresses in attempts {
            let environment = self.remote_environment(addresses, mirror);
            let result = self.run(&self.programs.git, arguments, &environment, input, MAX_REFS_BYTES, mirror).await;
            let too_large = || GitError::TooLargeMirror(mirror.map_or(0, |(_, max_bytes)| max_bytes));
            let result = result.map_err(|error| match error {
                JobError::Start(error) => GitError::disk(error),
                JobError::OutputTooLong => GitError::TooLarge(MAX_REFS_BYTES),
                JobError::FolderTooLarge => too_large(),
            })?;
            if result.succeeded {
                return match mirror {
                    Some((folder, max_bytes)) if is_larger(folder, max_bytes).await => Err(too_large()),
                    _ => Ok(result.output),
                };
            }
            let fault = GitFault::parse(&result.stderr);
            failure = self.explain(fault, command, addresses).await;
            if !matches!(fault, GitFault::Unreachable | GitFault::Interrupted) {
                break;
            }
        }
        Err(failure)
    }

    fn local_environment(&self) -> Environment {
        settings::local_environment(&self.programs.path, self.private.path())
    }

    fn remote_environment(&self, addresses: &[SocketAddr], mirror: Option<(&Path, u64)>) -> Environment {
        let remote = Remote {
            url: self.url,
            addresses,
            authorization: self.authorization.as_ref().map(|value| value.as_str()),
            has_ca: self.has_ca,
            ssh: &self.ssh,
        };
        let mut environment = settings::remote_environment(&self.programs.path, self.private.path(), &remote);
        // Without a mirror git must find no repository, wherever this runs.
        let folder = mirror.map_or_else(|| self.file("home"), |(mirror, _)| mirror.to_owned());
        environment.push(("GIT_DIR".to_owned(), Zeroizing::new(folder.display().to_string())));
        environment
    }

    fn host(&self) -> String {
        if self.url.is_ssh() { self.url.known_hosts_name() } else { self.url.address().authority() }
    }

    async fn explain(&self, fault: GitFault, command: &'static str, addresses: &[SocketAddr]) -> GitError {
        let host = self.host();
        match fault {
            GitFault::NotById | GitFault::NoRef => GitError::NotById,
            GitFault::DiskFull => GitError::DiskFull,
            GitFault::Memory => GitError::Memory(PROCESS_MIB.into()),
            GitFault::HostKeyWrong => GitError::HostKeyWrong(host),
            GitFault::HostKeyUnknown => GitError::HostKeyUnknown { host, lines: self.scan_host_keys(addresses).await },
            GitFault::Key => GitError::Key,
            GitFault::Credential if self.url.is_ssh() && !self.is_key_readable().await => GitError::Key,
            GitFault::Credential => GitError::Credential(host),
            GitFault::NotFound => GitError::NotFound(host),
            GitFault::Redirect => GitError::Redirect(host),
            GitFault::Tls => GitError::Tls(host),
            GitFault::Unreachable => GitError::Unreachable(host),
            GitFault::Interrupted => GitError::Interrupted(host),
            GitFault::Unavailable => GitError::Unavailable(host),
            GitFault::TooSlow => GitError::TooSlow(LOW_SPEED_TIMEOUT_SECONDS),
            GitFault::Fsck => GitError::Fsck,
            GitFault::Other => GitError::Git(command),
        }
    }

    /// Runs a command on the SSH server.
    pub(crate) async fn run_ssh(&self, command: &str) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let Some(address) = self.addresses.first() else { return Err(GitError::Unreachable(self.host())) };
        let mut arguments = settings::ssh_arguments(self.url, *address);
        arguments.extend(["-p".to_owned(), address.port().to_string(), "--".to_owned()]);
        arguments.extend([self.url.address().host.clone(), command.to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match self.run(&self.ssh, &arguments, &self.local_environment(), b"", MAX_OUTPUT_BYTES, None).await {
            Ok(result) if result.succeeded => Ok(result.output),
            _ => Err(GitError::LfsSsh),
        }
    }

    /// Returns whether ssh can read the key without a passphrase.
    async fn is_key_readable(&self) -> bool {
        let Ok(program) = self.programs.helper("ssh-keygen") else { return true };
        let arguments = ["-y", "-P", "", "-f", "key"];
        let result = self.run(&program, &arguments, &self.local_environment(), b"", MAX_OUTPUT_BYTES, None).await;
        result.is_ok_and(|result| result.succeeded)
    }

    /// Returns lines for `known_hosts` with the keys that the server shows.
    async fn scan_host_keys(&self, addresses: &[SocketAddr]) -> Vec<String> {
        let (Ok(program), Some(address)) = (self.programs.helper("ssh-keyscan"), addresses.first()) else {
            return Vec::new();
        };
        let (port, ip) = (address.port().to_string(), address.ip().to_string());
        let arguments = ["-T", "5", "-t", "ed25519,ecdsa,rsa", "-p", &port, &ip];
        let result = self.run(&program, &arguments, &self.local_environment(), b"", 64 * 1024, None).await;
        result.map(|result| parse_host_keys(&self.host(), &result.output)).unwrap_or_default()
    }

    /// Checks that ssh-keygen is installed. Git verifies the signatures of SSH keys with it.
    pub(crate) fn require_keygen(&self) -> Result<(), GitError> {
        self.programs.helper("ssh-keygen").map(drop)
    }

    async fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        environment: &Environment,
        input: &[u8],
        max_output: usize,
        watched: Option<(&Path, u64)>,
    ) -> Result<ProcessResult, JobError> {
        let directory = self.private.path();
        run(Job { program, arguments, environment, directory, input, max_output, watched }).await
    }
}

/// Parses the output of ssh-keyscan into a line for `known_hosts`, with the best kind of key. The host is written as
/// the user named it.
pub fn parse_host_keys(host: &str, scanned: &[u8]) -> Vec<String> {
    const KINDS: [&str; 3] = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"];
    let scanned = String::from_utf8_lossy(scanned);
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-".contains(&byte))
    };
    let keys = scanned
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' ')?.1.split_once(' '))
        .filter(|(kind, key)| is_word(kind) && is_word(key) && key.len() < 1024);
    let best = keys.min_by_key(|(kind, _)| KINDS.iter().position(|name| name == kind).unwrap_or(usize::MAX));
    best.map(|(kind, key)| format!("{host} {kind} {key}")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_add_has_the_host_as_it_was_named_and_nothing_odd() {
        let scanned = b"# 192.0.2.1:22 SSH-2.0-x\n192.0.2.1 ssh-rsa AAAAB\n192.0.2.1 ssh-ed25519 AAAAC+/=\n192.0.2.1 ssh-ed25519 A\x1b[2J\n";
        assert_eq!(parse_host_keys("[git.example.com]:2222", scanned), ["[git.example.com]:2222 ssh-ed25519 AAAAC+/="]);
        assert_eq!(parse_host_keys("a", b"").len(), 0);
    }
}
