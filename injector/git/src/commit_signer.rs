//! Who has signed a commit, or the tag that names it.

use crate::error::GitError;
use crate::mirror::Mirror;
use crate::reference::ResolvedRef;
use crate::session::Session;

/// The signer of the annotated tag, or of the commit.
pub(crate) async fn signer(
    session: &Session<'_>,
    mirror: &Mirror<'_>,
    found: &ResolvedRef,
) -> Result<String, GitError> {
    session.needs_keygen()?;
    let signers = format!("gpg.ssh.allowedSignersFile={}", session.file("signers").display());
    if let Some(tag) = &found.tag {
        let object = mirror.object("tag", tag).await?;
        // A good tag under another name is a good tag of something else.
        if is_of(&object, found.tag_name().unwrap_or_default(), &found.commit) {
            let (good, said) = mirror.verify(&["-c", &signers, "verify-tag", "--raw", tag]).await?;
            if let Some(signer) = signed(good, &said) {
                return Ok(signer);
            }
        }
    }
    let (good, said) = mirror.verify(&["-c", &signers, "verify-commit", "--raw", &found.commit]).await?;
    signed(good, &said).ok_or_else(|| GitError::NotSigned(found.commit.clone()))
}

/// Returns whether the tag has this name and points at this commit.
pub(crate) fn is_of(tag: &[u8], name: &str, commit: &str) -> bool {
    let text = String::from_utf8_lossy(tag);
    let head: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let value = |key: &str| head.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value("object") == Some(commit) && value("type") == Some("commit") && value("tag") == Some(name)
}

/// The signer that ssh-keygen names, by its message about a good signature.
pub(crate) fn signed(good: bool, said: &[u8]) -> Option<String> {
    if !good {
        return None;
    }
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("Good \"git\" signature for ")).collect();
    let [line] = lines.as_slice() else { return None };
    let signer = line.rsplit_once(" with ")?.0;
    let plain = !signer.is_empty() && signer.len() <= 256 && !signer.contains(|it: char| it.is_control());
    plain.then(|| signer.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_counts_for_its_own_name_and_commit() {
        let tag = b"object 11\ntype commit\ntag v1\ntagger A <a> 1 +0000\n\nobject 22\ntag v2\n";
        assert!(is_of(tag, "v1", "11"));
        assert!(!is_of(tag, "v2", "11") && !is_of(tag, "v1", "22") && !is_of(b"", "", ""));
    }

    #[test]
    fn the_signer_is_the_one_of_the_good_signature() {
        let line = b"Good \"git\" signature for a@example.com with ED25519 key SHA256:x\n";
        assert_eq!(signed(true, line).as_deref(), Some("a@example.com"));
        assert_eq!(signed(false, line), None);
        assert_eq!(signed(true, b"Good \"git\" signature with ED25519 key SHA256:x\n"), None);
        assert_eq!(signed(true, &[line.as_slice(), line].concat()), None);
    }
}
