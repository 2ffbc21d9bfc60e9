//! Finds the signer of a commit, or of the tag that names it.

use crate::error::GitError;
use crate::mirror::Mirror;
use crate::reference::ResolvedRef;
use crate::session::Session;

/// Returns the signer of the annotated tag, or of the commit.
pub(crate) async fn find_signer(
    session: &Session<'_>,
    mirror: &Mirror<'_>,
    resolved: &ResolvedRef,
) -> Result<String, GitError> {
    session.require_keygen()?;
    let signers = format!("gpg.ssh.allowedSignersFile={}", session.file("signers").display());
    let verify = async |command: &str, id: &str| {
        let result = mirror.run_unchecked(&["-c", &signers, command, "--raw", id], b"").await?;
        Ok::<_, GitError>(parse_signer(&result.stderr).filter(|_| result.succeeded))
    };
    if let Some(tag) = &resolved.tag {
        let object = mirror.object("tag", tag).await?;
        // A valid tag that is renamed would pass as a valid tag of something else.
        if is_tag_of(&object, resolved.tag_name().unwrap_or_default(), &resolved.commit)
            && let Some(signer) = verify("verify-tag", tag).await?
        {
            return Ok(signer);
        }
    }
    verify("verify-commit", &resolved.commit).await?.ok_or_else(|| GitError::NotSigned(resolved.commit.clone()))
}

/// Returns whether the tag has this name and points at this commit.
pub fn is_tag_of(tag: &[u8], name: &str, commit: &str) -> bool {
    let text = String::from_utf8_lossy(tag);
    let head: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let value = |key: &str| head.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value("object") == Some(commit) && value("type") == Some("commit") && value("tag") == Some(name)
}

/// Parses the signer in the message of ssh-keygen about a good signature.
pub fn parse_signer(messages: &[u8]) -> Option<String> {
    let messages = String::from_utf8_lossy(messages);
    let mut lines = messages.lines().filter_map(|line| line.strip_prefix("Good \"git\" signature for "));
    let line = lines.next().filter(|_| lines.next().is_none())?;
    let signer = line.rsplit_once(" with ")?.0;
    let is_plain = (1..=256).contains(&signer.len()) && !signer.contains(char::is_control);
    is_plain.then(|| signer.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_counts_for_its_own_name_and_commit() {
        let tag = b"object 11\ntype commit\ntag v1\ntagger A <a> 1 +0000\n\nobject 22\ntag v2\n";
        assert!(is_tag_of(tag, "v1", "11"));
        assert!(!is_tag_of(tag, "v2", "11") && !is_tag_of(tag, "v1", "22") && !is_tag_of(b"", "", ""));
    }

    #[test]
    fn the_signer_is_the_one_of_the_good_signature() {
        let line = b"Good \"git\" signature for a@example.com with ED25519 key SHA256:x\n";
        assert_eq!(parse_signer(line).as_deref(), Some("a@example.com"));
        assert_eq!(parse_signer(b"Good \"git\" signature with ED25519 key SHA256:x\n"), None);
        assert_eq!(parse_signer(&[line.as_slice(), line].concat()), None);
    }
}
