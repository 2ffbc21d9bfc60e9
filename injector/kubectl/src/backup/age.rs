//! The program age, which encrypts and decrypts: the formats and the keys are its own, with its plugins for hardware. Contents go through pipes,
//! never through arguments or files.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use zeroize::Zeroizing;

use super::stream::MAX_BYTES;
use crate::failure::Failure;

/// Most recipients of an export.
const MAX_RECIPIENTS: usize = 32;
const PROGRAM: &str = "age";

/// Checks recipients. They become arguments.
pub(crate) fn recipient(text: &str) -> Result<String, String> {
    let is = text.strip_prefix("age1").is_some_and(|rest| {
        !rest.is_empty()
            && text.len() <= 4096
            && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    if is { Ok(text.to_owned()) } else { Err("a recipient begins with age1; age-keygen makes one".to_owned()) }
}

/// Encrypts for these recipients, as text.
pub(crate) fn encrypt(recipients: &[String], plain: &str) -> Result<String, Failure> {
    if recipients.len() > MAX_RECIPIENTS {
        return Err(Failure::usage(format!("--secrets-to: at most {MAX_RECIPIENTS} recipients")));
    }
    let mut command = Command::new(PROGRAM);
    command.args(["--encrypt", "--armor"]);
    for recipient in recipients {
        command.args(["--recipient", recipient]);
    }
    let encrypted = run(&mut command, plain.as_bytes(), "encrypting the Secrets")?;
    String::from_utf8(encrypted.to_vec()).map_err(|_| Failure::new("encrypting the Secrets: age gave no text"))
}

/// Decrypts with the keys of this file.
pub(crate) fn decrypt(identity: &Path, armored: &str) -> Result<Zeroizing<String>, Failure> {
    let mut command = Command::new(PROGRAM);
    command.arg("--decrypt").arg("--identity").arg(identity);
    let mut plain = run(&mut command, armored.as_bytes(), "decrypting the Secrets")?;
    match String::from_utf8(std::mem::take(&mut *plain)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(Failure::new("decrypting the Secrets: what age gave is no text"))
        }
    }
}

fn run(command: &mut Command, input: &[u8], what: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let failed = |error: &std::io::Error| Failure::new(format!("{what}: {error}"));
    // It may ask for the passphrase of a key, on the terminal.
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::new(format!(
            "{what}: the program age is not installed; install it (such as apt-get install age), and run the command again"
        )),
        _ => failed(&error),
    })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut complaint) = (Zeroizing::new(Vec::new()), Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || {
            // One that ends early says why.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        scope.spawn(|| stderr.map(|stderr| stderr.take(4096).read_to_end(&mut complaint)));
        let most = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
        stdout.map_or(Ok(0), |stdout| stdout.take(most).read_to_end(&mut output))
    })
    .map_err(|error| failed(&error))?;
    let status = child.wait().map_err(|error| failed(&error))?;
    if !status.success() {
        let why = String::from_utf8_lossy(&complaint);
        let why = why.lines().next().unwrap_or("it failed").trim_start_matches("age: error: ").to_owned();
        return Err(Failure::new(format!("{what}: age: {why}")));
    }
    if output.len() > MAX_BYTES {
        return Err(Failure::new(format!("{what}: more than {MAX_BYTES} bytes")));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_no_option_of_another_program() {
        assert!(recipient("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p").is_ok());
        for odd in ["", "age1", "--identity", "-r", "ssh-ed25519 AAAA", "age1 x", "AGE-SECRET-KEY-1AAAA", "age1x\n"] {
            assert!(recipient(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_program_that_fails_says_why_and_a_missing_one_what_to_do() {
        let failed = run(Command::new("sh").args(["-c", "echo 'age: error: no identity' >&2; exit 1"]), b"x", "trying");
        assert_eq!(failed.unwrap_err().message, "trying: age: no identity");
        let missing = run(&mut Command::new("/nonexistent/age"), b"", "trying").unwrap_err().message;
        assert!(missing.contains("is not installed"), "{missing}");
        let much = vec![b'x'; 300_000];
        let echoed = run(&mut Command::new("cat"), &much, "trying").unwrap();
        assert_eq!(*echoed, much);
    }
}
