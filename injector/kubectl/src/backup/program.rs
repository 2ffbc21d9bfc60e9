//! Runs of other programs: contents go through pipes, never through arguments.

use std::io::{ErrorKind, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::thread;

use zeroize::Zeroizing;

use super::stream::MAX_BYTES;
use crate::failure::Failure;

/// Runs a program with this input, and returns its output.
pub(crate) fn run(command: &mut Command, input: &[u8], context: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let failure = |error: &std::io::Error| Failure::new(format!("{context}: {error}"));
    let program = command.get_program().to_string_lossy().into_owned();
    // The program may request the passphrase of a key, on the terminal.
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing_program(context, &program),
        _ => failure(&error),
    })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut complaint) = (Zeroizing::new(Vec::new()), Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || {
            // A program that ends early writes the reason to standard error.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        scope.spawn(|| stderr.map(|stderr| stderr.take(4096).read_to_end(&mut complaint)));
        let limit = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
        stdout.map_or(Ok(0), |stdout| stdout.take(limit).read_to_end(&mut output))
    })
    .map_err(|error| failure(&error))?;
    let status = child.wait().map_err(|error| failure(&error))?;
    if !status.success() {
        return Err(Failure::new(format!("{context}: {program}: {}", failure_message(&complaint, &program))));
    }
    if output.len() > MAX_BYTES {
        return Err(Failure::new(format!("{context}: more than {MAX_BYTES} bytes")));
    }
    Ok(output)
}

/// Returns the failure for a program that is not installed.
pub(crate) fn missing_program(context: &str, program: &str) -> Failure {
    let package = if program == "ssh-keygen" { "openssh-client" } else { program };
    Failure::new(format!(
        "{context}: the program {program} is not installed; install it (such as apt-get install {package}), and run the command again"
    ))
}

/// Returns the first line that a failed program wrote.
pub(crate) fn failure_message(complaint: &[u8], program: &str) -> String {
    let cause = String::from_utf8_lossy(complaint);
    let cause = cause.lines().next().unwrap_or("it failed").trim_start_matches(program);
    cause.trim_start_matches(": ").trim_start_matches("error: ").trim_end_matches(['.', '\r']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_why_and_a_missing_one_what_to_do() {
        let failed = run(Command::new("sh").args(["-c", "echo 'sh: error: no identity' >&2; exit 1"]), b"x", "trying");
        assert_eq!(failed.unwrap_err().message, "trying: sh: no identity");
        let missing = run(&mut Command::new("/nonexistent/age"), b"", "trying").unwrap_err().message;
        assert!(missing.contains("is not installed"), "{missing}");
        let much = vec![b'x'; 300_000];
        let echoed = run(&mut Command::new("cat"), &much, "trying").unwrap();
        assert_eq!(*echoed, much);
    }
}
