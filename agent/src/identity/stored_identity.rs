//! The agent's identity, stored across restarts if the agent has a folder for it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::{Authority, AuthorityError, Token, TokenError};
use crate::files::FileError;
use crate::files::atomic_file::write_file;

const TOKEN_FILE: &str = "token";
const CERTIFICATE_FILE: &str = "ca.crt";
const KEY_FILE: &str = "ca.key";
/// The fault of a stored file.
const DAMAGED: &str = "is damaged";

/// The reason why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// No token could be drawn.
    #[error("no token could be made")]
    Token(#[source] TokenError),
    /// No authority could be made.
    #[error("no certificate authority could be made")]
    Authority(#[source] AuthorityError),
    /// A stored file is damaged. It is not replaced, since clients have the old token and certificate.
    #[error("{0}; delete the folder's content to start with a new token and certificate")]
    Damaged(FileError),
    /// The folder can't be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The token and the authority of a pod.
#[derive(Debug)]
pub struct Identity {
    /// The pod's token.
    pub token: Token,
    /// The pod's certificate authority.
    pub authority: Authority,
}

impl Identity {
    /// Makes a new identity that lives as long as the process.
    pub fn generate(now: OffsetDateTime) -> Result<Self, StateError> {
        let token = Token::generate().map_err(StateError::Token)?;
        Ok(Self { token, authority: Authority::generate(now).map_err(StateError::Authority)? })
    }

    /// Reads the identity stored in `folder`, or makes a new one and stores it. The folder gets mode 0700, its files
    /// 0600.
    pub fn load_or_generate(folder: &Path, now: OffsetDateTime) -> Result<Self, StateError> {
        let read = |path: &Path| fs::read_to_string(path).map_err(FileError::at(path, FileError::UNREADABLE));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(FileError::at(folder, FileError::UNWRITABLE))?;
        let (token_path, key_path) = (folder.join(TOKEN_FILE), folder.join(KEY_FILE));
        let certificate_path = folder.join(CERTIFICATE_FILE);
        // The token is written last: if it exists, so do the other files.
        let token = match fs::read_to_string(&token_path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Self::generate(now)?;
                let write = |path: &Path, text: &str| {
                    write_file(path, 0o600, |file| file.write_all(text.as_bytes()))
                        .map_err(FileError::at(path, FileError::UNWRITABLE))
                };
                write(&key_path, &identity.authority.key_pem())?;
                write(&certificate_path, identity.authority.certificate_pem())?;
                write(&token_path, identity.token.expose())?;
                return Ok(identity);
            }
            Err(error) => return Err(FileError::at(&token_path, FileError::UNREADABLE)(error).into()),
        };
        let token = Token::parse(&token).map_err(FileError::at(&token_path, DAMAGED)).map_err(StateError::Damaged)?;
        let (certificate, key) = (read(&certificate_path)?, Zeroizing::new(read(&key_path)?));
        let authority = Authority::from_pem(&certificate, &key).map_err(FileError::at(&certificate_path, DAMAGED));
        Ok(Self { token, authority: authority.map_err(StateError::Damaged)? })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_second_start_has_the_identity_of_the_first() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("state");
        let now = OffsetDateTime::now_utc();
        let first = Identity::load_or_generate(&folder, now).unwrap();
        let second = Identity::load_or_generate(&folder, now).unwrap();
        assert_eq!(first.token.expose(), second.token.expose());
        assert_eq!(first.authority.certificate_pem(), second.authority.certificate_pem());
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for file in [TOKEN_FILE, KEY_FILE] {
            assert_eq!(fs::metadata(folder.join(file)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_damaged_identity_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        Identity::load_or_generate(folder.path(), now).unwrap();
        fs::write(folder.path().join(TOKEN_FILE), "nonsense").unwrap();
        let error = Identity::load_or_generate(folder.path(), now).unwrap_err();
        assert!(error.to_string().contains("delete the folder's content"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(TOKEN_FILE)).unwrap(), "nonsense");
    }
}
