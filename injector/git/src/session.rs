//! Processes for one request: with a private folder, which holds the key for as long as they run.

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
use crate::program::{Done, Job, JobError, MEMORY_KIB, Programs, is_larger, run};
use crate::request::Request;
use crate::settings::{self, Environment, Remote};
use crate::stderr::{Fault, fault};

/// The maximum of bytes of a list of refs.
const MAX_REFS_BYTES: usize = 32 * 1024 * 1024;
/// The maximum of bytes of what the other commands print, but contents.
pub(crate) const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// Processes for one request.
pub(crate) struct Session<'a> {
    programs: &'a Programs,
    url: &'a GitUrl,
    addresses: Vec<SocketAddr>,
    authorization: Option<Zeroizing<String>>,
    own_ca: bool,
    ssh: PathBuf,
    private: TempDir,
}

/// How a git process failed.
pub(crate) enum ProcessFailure {
    /// For this reason.
    Known(GitError),
    /// The server does not give objects by their ids.
    NotById,
}

impl From<GitError> for ProcessFailure {
    fn from(error: GitError) -> Self {
        Self::Known(error)
    }
}

impl<'a> Session<'a> {
    /// Makes the private folder.
    pub(crate) fn begin(
        programs: &'a Programs,
        request: &Request<'a>,
        addresses: Vec<SocketAddr>,
        authorization: Option<Zeroizing<String>>,
        directory: &Path,
    ) -> Result<Self, GitError> {
        let private = tempfile::Builder::new().prefix("run-").tempdir_in(directory).map_err(GitError::disk)?;
        let put = |name: &str, content: &[u8]| put(&private.path().join(name), content).map_err(GitError::disk);
        fs::create_dir(private.path().join("home")).map_err(GitError::disk)?;
        if let Some(ca) = request.ca {
            put("ca", ca)?;
        }
        let mut ssh = PathBuf::new();
        if let Credential::Ssh { key, known_hosts } = request.credential {
            ssh = programs.helper("ssh")?;
            // OpenSSH does not read a key whose last line has no end.
            let mut key = Zeroizing::new([key.as_slice(), b"\n"].concat());
            key.retain(|byte| *byte != b'\r');
            put("key", &key)?;
            put("known_hosts", format!("{known_hosts}\n").as_bytes())?;
        }
        if let Some(signers) = request.allowed_signers {
            put("signers", format!("{signers}\n").as_bytes())?;
        }
        Ok(Self { programs, url: request.url, addresses, authorization, own_ca: request.ca.is_some(), ssh, private })
    }

    /// A file of the private folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.private.path().join(name)
    }

    /// Runs git with a mirror, without reaching anybody.
    pub(crate) async fn local(
        &self,
        mirror: &Path,
        arguments: &[&str],
        input: &[u8],
        most: usize,
    ) -> Result<Done, GitError> {
        let mut environment = settings::local(&self.programs.path, self.private.path());
        environment.push(("GIT_DIR".to_owned(), Zeroizing::new(mirror.display().to_string())));
        let job = self.run(&self.programs.git, arguments, &environment, input, most, None).await;
        job.map_err(|error| match error {
            JobError::Start(error) => GitError::disk(error),
            JobError::Output => GitError::TooLarge(most),
            JobError::Watched => GitError::Broken,
        })
    }

    /// All refs of the repository.
    pub(crate) async fn refs(&self) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let url = self.url.to_string();
        match self.reach("ls-remote", &["ls-remote", "--quiet", &url], b"", None).await {
            Ok(output) => Ok(output),
            Err(ProcessFailure::Known(GitError::TooLarge(_))) => Err(GitError::TooManyRefs(MAX_REFS_BYTES)),
            Err(ProcessFailure::Known(error)) => Err(error),
            Err(ProcessFailure::NotById) => Err(GitError::Git("ls-remote")),
        }
    }

    /// Runs git with the server, and with a mirror, which may have so many bytes.
    pub(crate) async fn reach(
        &self,
        command: &'static str,
        arguments: &[&str],
        input: &[u8],
        mirror: Option<(&Path, u64)>,
    ) -> Result<Zeroizing<Vec<u8>>, ProcessFailure> {
        // Curl tries all addresses by itself, ssh knows one.
        let each: Vec<&[SocketAddr]> =
            if self.url.is_ssh() { self.addresses.chunks(1).collect() } else { vec![&self.addresses] };
        let mut last = ProcessFailure::Known(GitError::Unreachable(self.host()));
        for addresses in each {
            let environment = self.environment(addresses, mirror);
            let job = self.run(&self.programs.git, arguments, &environment, input, MAX_REFS_BYTES, mirror).await;
            let job = match job {
                Ok(job) if job.good => {
                    return match mirror {
                        Some((folder, most)) if is_larger(folder, most).await => {
                            Err(GitError::TooLargeMirror(most).into())
                        }
                        _ => Ok(job.output),
                    };
                }
                Ok(job) => job,
                Err(JobError::Start(error)) => return Err(ProcessFailure::Known(GitError::disk(error))),
                Err(JobError::Output) => return Err(ProcessFailure::Known(GitError::TooLarge(MAX_REFS_BYTES))),
                Err(JobError::Watched) => {
                    return Err(ProcessFailure::Known(GitError::TooLargeMirror(mirror.map_or(0, |(_, most)| most))));
                }
            };
            let known = fault(&job.stderr);
            last = self.failed(known, command, addresses).await;
            if !matches!(known, Fault::Unreachable | Fault::Interrupted) {
                break;
            }
        }
        Err(last)
    }

    fn environment(&self, addresses: &[SocketAddr], mirror: Option<(&Path, u64)>) -> Environment {
        let remote = Remote {
            url: self.url,
            addresses,
            authorization: self.authorization.as_ref().map(|it| it.as_str()),
            own_ca: self.own_ca,
            ssh: &self.ssh,
        };
        let mut environment = settings::remote(&self.programs.path, self.private.path(), &remote);
        // Without a mirror there is no repository, wherever this runs.
        let folder = mirror.map_or_else(|| self.file("home"), |(mirror, _)| mirror.to_owned());
        environment.push(("GIT_DIR".to_owned(), Zeroizing::new(folder.display().to_string())));
        environment
    }

    fn host(&self) -> String {
        if self.url.is_ssh() { self.url.known_as() } else { self.url.address().authority() }
    }

    /// What the fault means for the one who asked.
    async fn failed(&self, fault: Fault, command: &'static str, addresses: &[SocketAddr]) -> ProcessFailure {
        let host = self.host();
        ProcessFailure::Known(match fault {
            Fault::NotById | Fault::NoRef => return ProcessFailure::NotById,
            Fault::DiskFull => GitError::DiskFull,
            Fault::Memory => GitError::Memory(MEMORY_KIB / 1024),
            Fault::HostKeyWrong => GitError::HostKeyWrong(host),
            Fault::HostKeyUnknown => GitError::HostKeyUnknown { host, lines: self.host_keys(addresses).await },
            Fault::Key => GitError::Key,
            Fault::Credential if self.url.is_ssh() && !self.is_key().await => GitError::Key,
            Fault::Credential => GitError::Credential(host),
            Fault::NotFound => GitError::NotFound(host),
            Fault::Redirect => GitError::Redirect(host),
            Fault::Tls => GitError::Tls(host),
            Fault::Unreachable => GitError::Unreachable(host),
            Fault::Interrupted => GitError::Interrupted(host),
            Fault::Unavailable => GitError::Unavailable(host),
            Fault::TooSlow => GitError::TooSlow(20),
            Fault::Fsck => GitError::Fsck,
            Fault::Other => GitError::Git(command),
        })
    }

    /// Runs a command on the SSH server.
    pub(crate) async fn ssh(&self, command: &str) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let Some(address) = self.addresses.first() else { return Err(GitError::Unreachable(self.host())) };
        let mut arguments = settings::ssh_arguments(self.url, *address);
        arguments.extend(["-p".to_owned(), address.port().to_string(), "--".to_owned()]);
        arguments.extend([self.url.address().host.clone(), command.to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let environment = settings::local(&self.programs.path, self.private.path());
        match self.run(&self.ssh, &arguments, &environment, b"", MAX_OUTPUT_BYTES, None).await {
            Ok(done) if done.good => Ok(done.output),
            _ => Err(GitError::LfsSsh),
        }
    }

    /// Returns whether ssh can read the key without a passphrase.
    async fn is_key(&self) -> bool {
        let Ok(program) = self.programs.helper("ssh-keygen") else { return true };
        let environment = settings::local(&self.programs.path, self.private.path());
        let arguments = ["-y", "-P", "", "-f", "key"];
        let job = self.run(&program, &arguments, &environment, b"", MAX_OUTPUT_BYTES, None).await;
        job.is_ok_and(|job| job.good)
    }

    /// Lines for `known_hosts` with the keys that the server shows.
    async fn host_keys(&self, addresses: &[SocketAddr]) -> Vec<String> {
        let (Ok(program), Some(address)) = (self.programs.helper("ssh-keyscan"), addresses.first()) else {
            return Vec::new();
        };
        let environment = settings::local(&self.programs.path, self.private.path());
        let (port, ip) = (address.port().to_string(), address.ip().to_string());
        let arguments = ["-T", "5", "-t", "ed25519,ecdsa,rsa", "-p", &port, &ip];
        let job = self.run(&program, &arguments, &environment, b"", 64 * 1024, None).await;
        job.map(|job| host_keys(&self.host(), &job.output)).unwrap_or_default()
    }

    /// The program that checks signatures by SSH keys.
    pub(crate) fn needs_keygen(&self) -> Result<(), GitError> {
        self.programs.helper("ssh-keygen").map(drop)
    }

    async fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        environment: &Environment,
        input: &[u8],
        most: usize,
        watched: Option<(&Path, u64)>,
    ) -> Result<Done, JobError> {
        let directory = self.private.path();
        run(Job { program, arguments, environment, directory, input, most, watched }).await
    }
}

fn put(path: &Path, content: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

/// What ssh-keyscan prints, for the host as the user named it: the best kind of key alone.
pub(crate) fn host_keys(host: &str, scanned: &[u8]) -> Vec<String> {
    let scanned = String::from_utf8_lossy(scanned);
    let in_word = |it: u8| it.is_ascii_alphanumeric() || b"+/=-".contains(&it);
    let plain = |text: &str| !text.is_empty() && text.bytes().all(in_word);
    let mut keys: Vec<(&str, &str)> = scanned
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' ')?.1.split_once(' '))
        .filter(|(kind, key)| plain(kind) && plain(key) && key.len() < 1024)
        .collect();
    let order = |kind: &str| ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"].iter().position(|it| *it == kind);
    keys.sort_by_key(|(kind, _)| order(kind).unwrap_or(usize::MAX));
    keys.first().map(|(kind, key)| format!("{host} {kind} {key}")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_add_has_the_host_as_it_was_named_and_nothing_odd() {
        let scanned = b"# 192.0.2.1:22 SSH-2.0-x\n192.0.2.1 ssh-rsa AAAAB\n192.0.2.1 ssh-ed25519 AAAAC+/=\n192.0.2.1 ssh-ed25519 A\x1b[2J\n";
        assert_eq!(host_keys("[git.example.com]:2222", scanned), ["[git.example.com]:2222 ssh-ed25519 AAAAC+/="]);
        assert_eq!(host_keys("a", b"").len(), 0);
    }
}
