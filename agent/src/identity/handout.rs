//! The handout for the application under `exec`: files with the token and the certificate, and the variables that name
//! them.

use std::fs::Permissions;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nudge_protocol::{ContainerName, env};
use tempfile::TempDir;

use super::{Identity, Share};
use crate::files::FileError;
use crate::files::atomic_file::write_file;

/// The fault of a folder that the files can't be written to, and what mends it.
const UNWRITABLE: &str = "can't hold the files for the application (set TMPDIR to a folder that can be written)";

/// The files in a private folder, which is removed on drop.
#[derive(Debug)]
pub struct Handout {
    /// The files with the token and the certificate.
    pub files: Share,
    _folder: TempDir,
}

impl Handout {
    /// Writes the files below `XDG_RUNTIME_DIR` if it is set (in memory, private to the user), otherwise below the
    /// folder for temporary files.
    pub fn write(identity: &Identity, runtime_dir: Option<&Path>) -> Result<Self, FileError> {
        let parent = std::env::temp_dir();
        let fail = |cause: io::Error| FileError::at(&parent, UNWRITABLE)(cause);
        let mut private = tempfile::Builder::new();
        private.prefix("nudge-").permissions(Permissions::from_mode(0o700));
        // su and sudo often leave the runtime folder of another user in the environment.
        let in_memory = runtime_dir.and_then(|runtime_dir| private.tempdir_in(runtime_dir).ok());
        let folder = in_memory.map_or_else(|| private.tempdir_in(&parent), Ok).map_err(fail)?;
        let files = Share::new(folder.path());
        let write = |path: PathBuf, mode, text: &str| write_file(&path, mode, |file| file.write_all(text.as_bytes()));
        write(files.token_file(), 0o600, identity.token.expose()).map_err(fail)?;
        write(files.certificate_file(), 0o644, identity.authority.certificate_pem()).map_err(fail)?;
        Ok(Self { files, _folder: folder })
    }

    /// Returns the variables for the application that runs as `container`.
    pub fn variables(
        &self,
        identity: &Identity,
        endpoint: SocketAddr,
        container: &ContainerName,
    ) -> Vec<(&'static str, String)> {
        vec![
            (env::ENDPOINT, endpoint_url(endpoint)),
            (env::TOKEN, identity.token.expose().to_owned()),
            (env::TOKEN_FILE, self.files.token_file().to_string_lossy().into_owned()),
            (env::CERT, self.files.certificate_file().to_string_lossy().into_owned()),
            (env::CONTAINER, container.to_string()),
        ]
    }
}

/// Returns the dictionary's URL at an address; at loopback if the agent listens on all addresses.
pub fn endpoint_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    // `SocketAddr` puts an IPv6 address into brackets.
    format!("https://{}{}", SocketAddr::new(ip, address.port()), env::CONFIG_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_has_brackets_for_ipv6_and_loopback_for_all_addresses() {
        for (address, url) in [
            ("10.0.0.7:9001", "https://10.0.0.7:9001/config"),
            ("0.0.0.0:9002", "https://127.0.0.1:9002/config"),
            ("[::]:9001", "https://[::1]:9001/config"),
            ("[fd00::7]:9001", "https://[fd00::7]:9001/config"),
        ] {
            assert_eq!(endpoint_url(address.parse().unwrap()), url);
        }
    }
}
