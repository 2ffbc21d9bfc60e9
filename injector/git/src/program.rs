//! Finds programs, and runs one of them within bounds.

use std::env;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::settings::Environment;

/// The maximum bytes of a program's error messages that are kept.
const MAX_STDERR_BYTES: u64 = 64 * 1024;
/// The maximum memory of one process, in MiB. A repository can be made to need any amount.
pub const PROCESS_MIB: u32 = 256;
/// The interval between checks of the size on disk.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The paths of programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) git: PathBuf,
    /// The folders where git may look for other programs, in the format of the variable `PATH`.
    pub(crate) path: String,
}

impl Programs {
    /// Looks for git in the absolute folders of PATH.
    pub(crate) fn find() -> Result<Self, GitError> {
        let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
        let path = env::join_paths(&folders).ok().and_then(|path| path.into_string().ok());
        let path = path.unwrap_or_else(|| "/usr/bin:/bin".to_owned());
        Ok(Self { git: find_in_path(&path, "git").ok_or(GitError::Program("git"))?, path })
    }

    /// Looks for another program in the same folders.
    pub(crate) fn helper(&self, name: &'static str) -> Result<PathBuf, GitError> {
        find_in_path(&self.path, name).ok_or(GitError::Program(name))
    }
}

fn find_in_path(path: &str, name: &str) -> Option<PathBuf> {
    let is_executable = |file: &PathBuf| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(path).map(|folder| folder.join(name)).find(is_executable)
}

/// One run of a program.
pub(crate) struct Job<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [&'a str],
    pub(crate) environment: &'a Environment,
    /// The working directory.
    pub(crate) directory: &'a Path,
    pub(crate) input: &'a [u8],
    /// The maximum bytes of the output.
    pub(crate) max_output: usize,
    /// A folder, and the maximum bytes of its files.
    pub(crate) watched: Option<(&'a Path, u64)>,
}

/// The result of a program that ran to its end.
pub(crate) struct ProcessResult {
    pub(crate) succeeded: bool,
    pub(crate) output: Zeroizing<Vec<u8>>,
    /// The error messages, which are never shown.
    pub(crate) stderr: Vec<u8>,
}

/// The reason why a program did not run to its end.
#[derive(Debug)]
pub(crate) enum JobError {
    Start(io::Error),
    OutputTooLong,
    FolderTooLarge,
}

/// A process group, which is killed when this is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The process was not waited for yet, so the number is still that of this group.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Runs a program in a process group of its own, which is killed when this future is dropped.
pub(crate) async fn run(job: Job<'_>) -> Result<ProcessResult, JobError> {
    // The limit of the shell is inherited by all processes that it starts.
    let script = format!(r#"ulimit -d {}; exec "$0" "$@""#, u64::from(PROCESS_MIB) << 10);
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(job.program)
        .args(job.arguments)
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value.as_str())))
        .current_dir(job.directory)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(JobError::Start)?;
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write_input = async {
        if let Some(mut stdin) = stdin {
            // A program that ends early does not read all of the input.
            let _ = stdin.write_all(job.input).await;
        }
        Ok(())
    };
    let read_stderr = async {
        let mut messages = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = (&mut stderr).take(MAX_STDERR_BYTES).read_to_end(&mut messages).await;
            // The rest is read, too, so that the program does not wait for a reader.
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        }
        Ok(messages)
    };
    let read_output = async {
        let mut output = Zeroizing::new(Vec::new());
        let Some(stdout) = stdout else { return Ok(output) };
        let max_output = u64::try_from(job.max_output).unwrap_or(u64::MAX);
        let _ = stdout.take(max_output.saturating_add(1)).read_to_end(&mut output).await;
        if output.len() > job.max_output { Err(JobError::OutputTooLong) } else { Ok(output) }
    };
    let finish = async {
        let ((), stderr, output) = tokio::try_join!(write_input, read_stderr, read_output)?;
        let status = child.wait().await.map_err(JobError::Start)?;
        Ok::<_, JobError>(ProcessResult { succeeded: status.success(), output, stderr })
    };
    let result = tokio::select! {
        result = finish => result?,
        () = wait_until_too_large(job.watched) => return Err(JobError::FolderTooLarge),
    };
    group.0 = None;
    Ok(result)
}

/// Waits until the folder has more than its maximum bytes.
async fn wait_until_too_large(watched: Option<(&Path, u64)>) {
    let Some((folder, max_bytes)) = watched else { return std::future::pending().await };
    loop {
        tokio::time::sleep(DISK_CHECK_INTERVAL).await;
        if is_larger(folder, max_bytes).await {
            return;
        }
    }
}

/// Returns whether a folder has more bytes than this, by a walk on a thread for blocking work.
pub(crate) async fn is_larger(folder: &Path, max_bytes: u64) -> bool {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || bytes_in(&folder)).await.is_ok_and(|bytes| bytes > max_bytes)
}

/// Returns the bytes on disk of all files of a folder.
pub(crate) fn bytes_in(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
            Ok(metadata) => metadata.blocks().saturating_mul(512),
            Err(_) => 0,
        })
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job<'a>(arguments: &'a [&'a str], environment: &'a Environment) -> Job<'a> {
        let (program, directory) = (Path::new("/bin/sh"), Path::new("/"));
        Job { program, arguments, environment, directory, input: b"in", max_output: 10, watched: None }
    }

    #[tokio::test]
    async fn input_output_and_faults_are_passed_on_and_nothing_of_the_environment() {
        let environment = vec![("A".to_owned(), Zeroizing::new("1".to_owned()))];
        let script = "cat; echo -n $A$HOME; echo no >&2; exit 3";
        let result = run(job(&["-c", script], &environment)).await.unwrap();
        assert_eq!(
            (result.succeeded, result.output.as_slice(), result.stderr.as_slice()),
            (false, b"in1".as_slice(), b"no\n".as_slice())
        );
        let much = run(job(&["-c", "echo 12345678901; exec sleep 60"], &environment)).await;
        assert!(matches!(much, Err(JobError::OutputTooLong)));
    }

    #[tokio::test]
    async fn what_is_not_waited_for_ends_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 60 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        let (arguments, environment) = (["-c", script.as_str()], Vec::new());
        let seen = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = run(job(&arguments, &environment)) => panic!("it ended"),
            () = seen => {}
        }
        let sleep = std::fs::read_to_string(&file).unwrap();
        let there = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleep.trim())).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
