//! `kubectl nudge push`: a folder becomes an artifact in a registry.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use nudge_oci::{ArtifactLocation, Pick};
use nudge_protocol::error_chain::message;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use zeroize::Zeroizing;

use crate::failure::{Failure, file_message};
use crate::output::Output;
use crate::version::from_oci::{Registries, registry};
use crate::version::sources::files;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge push config/ oci://registry.example.com/team/game:1.0.1
  kubectl nudge push config/ oci://registry.example.com/team/game:1.0.1 --docker-config=ci.json
  kubectl nudge create game 1.0.1 --from-oci=oci://registry.example.com/team/game:1.0.1

The command prints the digest. The same files have the same digest. The command sends no request to an API server.")]
pub(crate) struct Push {
    /// The folder. Its files keep their paths; links, and names in its folders that begin with a dot, are left out
    #[arg(value_name = "DIR")]
    pub(crate) what: PathBuf,
    /// The repository and the tag
    #[arg(value_name = "oci://REGISTRY/REPOSITORY:TAG")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) registries: Registries,
}

pub(crate) async fn run(out: &Output, command: &Push) -> Result<(), Failure> {
    let Push { what, to, registries } = command;
    let usage = |error: String| Failure::usage(format!("{to}: {error}"));
    let ArtifactLocation { reference, pick, path } =
        ArtifactLocation::parse(to).map_err(|error| usage(error.to_string()))?;
    let Some(Pick::Tag(tag)) = pick.filter(|_| path.is_empty()) else {
        return Err(usage(format!("name a tag and nothing behind it, as in {reference}:1.0.0")));
    };
    let content = read_folder(what).map_err(Failure::new)?;
    let credential = registries.credential(&reference)?;
    let pushed = registry().push(&reference, &tag, &content, &credential, &|address| registries.allows(address)).await;
    out.line(&pushed.map_err(|error| Failure::new(format!("{to}: {}", message(&error))))?)
}

/// Reads the files of the folder by their paths, with a slash between names.
fn read_folder(folder: &Path) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, String> {
    let (mut content, mut bytes) = (BTreeMap::new(), 0);
    for file in files(folder)? {
        let size = fs::metadata(&file).map_err(|error| file_message(&file, &error))?.len();
        bytes += size;
        if bytes > MAX_DICTIONARY_BYTES as u64 {
            let limit = MAX_DICTIONARY_BYTES;
            return Err(format!("{}: its files have more than {limit} bytes, which is the limit", folder.display()));
        }
        let names: Option<Vec<&str>> =
            file.strip_prefix(folder).unwrap_or(&file).iter().map(|name| name.to_str()).collect();
        let path = names.ok_or_else(|| format!("{}: its name is not UTF-8", file.display()))?.join("/");
        content.insert(path, Zeroizing::new(fs::read(&file).map_err(|error| file_message(&file, &error))?));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_within_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        fs::write(path("sub/b"), "2").unwrap();
        fs::write(path("a"), "1").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        assert_eq!(read_folder(folder.path()).unwrap().into_keys().collect::<Vec<_>>(), ["a", "sub/b"]);
        fs::File::create(path("big")).unwrap().set_len(1 << 40).unwrap();
        assert!(read_folder(folder.path()).unwrap_err().contains("which is the limit"));
        assert!(read_folder(&path("none")).unwrap_err().contains("No such file"));
    }
}
