//! Encryption and decryption by the program age, with its formats, its keys and its plugins for hardware. Contents go
//! through pipes, never through arguments or files.

use std::path::Path;
use std::process::Command;

use zeroize::Zeroizing;

use super::program::run;
use crate::failure::Failure;

/// The maximum number of recipients of an export.
const MAX_RECIPIENTS: usize = 32;
const PROGRAM: &str = "age";

/// Checks a recipient, which becomes an argument of the program.
pub(crate) fn recipient(text: &str) -> Result<String, String> {
    let is_recipient = text.strip_prefix("age1").is_some_and(|data| {
        !data.is_empty()
            && text.len() <= 4096
            && data.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    if is_recipient {
        Ok(text.to_owned())
    } else {
        Err("a recipient begins with age1; age-keygen makes one".to_owned())
    }
}

/// Encrypts a text for these recipients, and returns the result as text.
pub(crate) fn encrypt(recipients: &[String], plain: &str) -> Result<String, Failure> {
    if recipients.len() > MAX_RECIPIENTS {
        return Err(Failure::usage(format!("--secrets-to: name at most {MAX_RECIPIENTS} recipients")));
    }
    let mut command = Command::new(PROGRAM);
    command.args(["--encrypt", "--armor"]);
    for recipient in recipients {
        command.args(["--recipient", recipient]);
    }
    let encrypted = run(&mut command, plain.as_bytes(), "encrypting the Secrets")?;
    String::from_utf8(encrypted.to_vec())
        .map_err(|_| Failure::new("encrypting the Secrets: the output of age is not text"))
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
            Err(Failure::new("decrypting the Secrets: the output of age is not text"))
        }
    }
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
}
