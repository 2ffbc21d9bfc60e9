//! The signature of an export, in a file next to it, made by the program ssh-keygen. The format is OpenSSH's: keys with
//! a passphrase, in an agent or on hardware can sign, and anybody can check the signature without this program.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::program::{failure_message, missing_program, run};
use crate::failure::Failure;

const PROGRAM: &str = "ssh-keygen";
/// The purpose of the signatures. A signature for another purpose is not valid for an export.
const NAMESPACE: &str = "export@nudge.dev";
/// The name of the signer, whichever key of `--verify` signed.
const SIGNER: &str = "export";
/// The beginnings of the lines of public keys.
const KEY_TYPES: [&str; 5] =
    ["ssh-ed25519 ", "sk-ssh-ed25519@openssh.com ", "ecdsa-sha2-", "sk-ecdsa-sha2-", "ssh-rsa "];

pub(crate) fn signature_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// Signs the file, and writes the signature next to it. ssh-keygen may request a passphrase, on the terminal.
pub(crate) fn sign(file: &Path, key: &Path) -> Result<(), Failure> {
    let context = format!("signing the export with {}", key.display());
    let mut command = Command::new(PROGRAM);
    command.args(["-Y", "sign", "-n", NAMESPACE, "-f"]).arg(key).arg("--").arg(file);
    command.stdin(Stdio::inherit()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => missing_program(&context, PROGRAM),
        _ => Failure::new(format!("{context}: {error}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{context}: {}", explain_refusal(&output.stderr, key, std::io::stdin().is_terminal()))))
}

/// Explains why ssh-keygen has not signed. Without a terminal, nobody can type the passphrase of a key.
fn explain_refusal(complaint: &[u8], key: &Path, has_terminal: bool) -> String {
    let cause = failure_message(complaint, PROGRAM);
    let cause = cause.trim_start_matches("Enter passphrase: ");
    if has_terminal || !cause.contains("passphrase") {
        return cause.to_owned();
    }
    let key = key.display();
    format!("{cause}; run the command at a terminal, or run ssh-add {key} first and sign with --sign {key}.pub")
}

/// Checks that the text was signed with one of these public keys.
pub(crate) fn verify(text: &str, signature: &Path, keys: &Path) -> Result<(), Failure> {
    let failure = |error: &std::io::Error| Failure::new(format!("checking who signed the export: {error}"));
    let keys_text =
        std::fs::read_to_string(keys).map_err(|error| Failure::new(format!("--verify {}: {error}", keys.display())))?;
    let signers =
        allowed_signers(&keys_text).map_err(|cause| Failure::new(format!("--verify {}: {cause}", keys.display())))?;
    if !signature.exists() {
        return Err(Failure::new(format!(
            "nobody signed the export: there is no file {}; nothing was imported",
            signature.display()
        )));
    }
    let mut file = tempfile::NamedTempFile::new().map_err(|error| failure(&error))?;
    file.write_all(signers.as_bytes()).map_err(|error| failure(&error))?;
    let mut command = Command::new(PROGRAM);
    command.args(["-Y", "verify", "-n", NAMESPACE, "-I", SIGNER, "-f"]).arg(file.path()).arg("-s").arg(signature);
    run(&mut command, text.as_bytes(), "checking who signed the export").map(drop).map_err(|failure| {
        if failure.message.contains("is not installed") {
            return failure;
        }
        Failure::new(format!(
            "{} is not a signature of this export by a key of {}: the export was changed, or somebody else has made it; nothing was imported",
            signature.display(),
            keys.display()
        ))
    })
}

/// Returns the lines of public keys as ssh-keygen takes them (ALLOWED SIGNERS of ssh-keygen(1)).
fn allowed_signers(keys: &str) -> Result<String, &'static str> {
    if keys.contains("PRIVATE KEY") {
        return Err("it is a private key; name the public one, which ends with .pub");
    }
    let lines = keys.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut signers = String::new();
    for line in lines {
        if !KEY_TYPES.iter().any(|start| line.starts_with(start)) {
            return Err("it has a line that is not a public key of SSH; name a file such as id_ed25519.pub");
        }
        signers.extend([SIGNER, " namespaces=\"", NAMESPACE, "\" ", line, "\n"]);
    }
    if signers.is_empty() { Err("it has no public key of SSH") } else { Ok(signers) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Makes a key in the folder. Returns the paths of its private and its public half.
    fn key(folder: &Path, name: &str, passphrase: &str) -> (PathBuf, PathBuf) {
        let file = folder.join(name);
        let arguments = ["-q", "-t", "ed25519", "-N", passphrase, "-f"];
        let made = Command::new(PROGRAM).args(arguments).arg(&file).status().unwrap();
        assert!(made.success());
        (file.clone(), file.with_extension("pub"))
    }

    #[test]
    fn only_the_content_that_a_known_key_signed_passes() {
        let home = tempfile::tempdir().unwrap();
        let ((ours, public), (theirs, other)) = (key(home.path(), "ours", ""), key(home.path(), "theirs", ""));
        let file = home.path().join("nudge.yaml");
        fs::write(&file, "content").unwrap();
        let said =
            |text: &str, keys: &Path| verify(text, &signature_path(&file), keys).map_err(|failure| failure.message);
        assert!(said("content", &public).unwrap_err().starts_with("nobody signed the export"));
        sign(&file, &ours).unwrap();
        assert_eq!(said("content", &public), Ok(()));
        for (text, keys) in [("changed", &public), ("content", &other)] {
            let refused = said(text, keys).unwrap_err();
            assert!(refused.contains("is not a signature of this export"), "{refused}");
        }
        // The same key may sign commits.
        fs::remove_file(signature_path(&file)).unwrap();
        let git = Command::new(PROGRAM).args(["-Y", "sign", "-n", "git", "-f"]).arg(&ours).arg(&file).output().unwrap();
        assert!(git.status.success());
        assert!(said("content", &public).is_err(), "a signature for something else");
        assert!(said("content", &ours).unwrap_err().contains("it is a private key"));
        drop(theirs);
    }

    #[test]
    fn others_can_check_it_with_ssh_keygen_alone() {
        let home = tempfile::tempdir().unwrap();
        let (ours, public) = key(home.path(), "ours", "");
        let (file, signers) = (home.path().join("nudge.yaml"), home.path().join("signers"));
        fs::write(&file, "content").unwrap();
        sign(&file, &ours).unwrap();
        fs::write(&signers, format!("ops@example.com {}", fs::read_to_string(public).unwrap())).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["-Y", "verify", "-n", "export@nudge.dev", "-I", "ops@example.com", "-f"]).arg(&signers);
        let checked =
            command.arg("-s").arg(signature_path(&file)).stdin(fs::File::open(&file).unwrap()).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }

    #[test]
    fn a_key_with_a_passphrase_says_how_it_can_sign() {
        let home = tempfile::tempdir().unwrap();
        let (ours, _) = key(home.path(), "ours", "secret phrase");
        let file = home.path().join("nudge.yaml");
        fs::write(&file, "content").unwrap();
        // A test has no terminal to be asked at, or its user does not answer.
        let mut child = Command::new("setsid");
        child.arg(PROGRAM).args(["-Y", "sign", "-n", NAMESPACE, "-f"]).arg(&ours).arg(&file).stdin(Stdio::null());
        let complaint = child.output().unwrap().stderr;
        let said = explain_refusal(&complaint, &ours, false);
        assert!(said.contains("passphrase") && said.contains("run ssh-add") && !said.contains("Enter"), "{said}");
        assert!(!explain_refusal(&complaint, &ours, true).contains("ssh-add"));
        let gone = sign(&file, &home.path().join("gone")).unwrap_err().message;
        assert!(gone.contains("No such file"), "{gone}");
    }

    #[test]
    fn only_public_keys_are_taken() {
        let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIND ops";
        let taken = allowed_signers(&format!("# operators\n\n{line}\n")).unwrap();
        assert_eq!(taken, format!("export namespaces=\"export@nudge.dev\" {line}\n"));
        // Each would be a pattern of signers, or an option, of its own.
        for odd in
            ["", "#", "* ssh-ed25519 AAAA", "cert-authority ssh-ed25519 AAAA", "export ssh-ed25519 AAAA", "notes"]
        {
            assert!(allowed_signers(odd).is_err(), "{odd}");
        }
    }
}
