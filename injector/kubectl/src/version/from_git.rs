//! The content flags of `create` for git repositories. Only the flags count: settings, keys and agents of the user have
//! no effect.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use futures::future::{FutureExt as _, pending, select_all};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Origin, OriginKind};
use nudge_authoring::Content;
use nudge_git::{Commit, Credential, FetchRequest, GitError, GitUrl, Mirrors, Revision};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::{message, without_os_code};
use tokio::signal::unix::{SignalKind, signal};
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure, file_message};

/// The maximum size of the files on disk, until the command ends.
const MAX_DISK_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The flags of `create` about git repositories.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GitFlags {
    /// A file or folder of a git repository, where sub/file has the key sub.file. REF is a branch, a tag, or the whole
    /// id of a commit; refs/tags/NAME and refs/heads/NAME name a tag and a branch that are called alike. Can be
    /// repeated
    #[arg(long, value_name = "URL[@REF[:PATH]]", help_heading = "Content")]
    pub(crate) from_git: Vec<String>,
    /// The file with the token for an https:// URL
    #[arg(long, value_name = "FILE", help_heading = "Content", conflicts_with = "ssh_key_file")]
    pub(crate) git_token_file: Option<PathBuf>,
    /// The user of the token, for servers that need one
    #[arg(long, value_name = "NAME", default_value = "git", help_heading = "Content")]
    pub(crate) git_username: String,
    /// The file with the authorities of the server, in place of those of this machine
    #[arg(long, value_name = "FILE", help_heading = "Content")]
    pub(crate) git_ca_file: Option<PathBuf>,
    /// The private key for a URL by SSH, without a passphrase
    #[arg(long, value_name = "FILE", help_heading = "Content", requires = "known_hosts_file")]
    pub(crate) ssh_key_file: Option<PathBuf>,
    /// The keys of SSH servers, such as ~/.ssh/known_hosts
    #[arg(long, value_name = "FILE", help_heading = "Content", requires = "ssh_key_file")]
    pub(crate) known_hosts_file: Option<PathBuf>,
}

/// A place in a git repository, which a `--from-git` names.
#[derive(Debug, PartialEq, Eq)]
struct GitPlace {
    url: GitUrl,
    /// The revisions to try, in this order.
    revisions: Vec<Revision>,
    path: String,
}

/// Parses the text of a `--from-git`. Some URLs have a user before the first @, and a tag may have an @, too.
fn parse_place(text: &str) -> Result<GitPlace, String> {
    let without_revision = || GitUrl::parse(text).map(|url| (url, "")).map_err(|error| error.to_string());
    let index = text.match_indices('@').map(|(index, _)| text.split_at(index));
    let mut splits = index.filter_map(|(url, tail)| Some((GitUrl::parse(url).ok()?, &tail[1..])));
    let (url, tail) = splits.next().map_or_else(without_revision, Ok)?;
    let (name, path) = tail.split_once(':').unwrap_or((tail, ""));
    let revisions = if name.is_empty() {
        vec![Revision::Head]
    } else if let Some(branch) = name.strip_prefix("refs/heads/") {
        vec![Revision::Branch(branch.to_owned())]
    } else if let Some(tag) = name.strip_prefix("refs/tags/") {
        vec![Revision::Tag(tag.to_owned())]
    } else if Revision::Commit(name.to_owned()).check().is_ok() {
        vec![Revision::Commit(name.to_owned())]
    } else {
        vec![Revision::Branch(name.to_owned()), Revision::Tag(name.to_owned())]
    };
    Ok(GitPlace { url, revisions, path: path.trim_end_matches('/').to_owned() })
}

/// Adds the files of all repositories, and returns their origins.
pub(crate) async fn add(content: &mut Content, flags: &GitFlags) -> Result<Vec<Origin>, Failure> {
    if flags.from_git.is_empty() {
        return Ok(Vec::new());
    }
    let places = flags.from_git.iter().map(|text| parse_place(text).map_err(|error| format!("--from-git: {error}")));
    let places: Vec<GitPlace> = places.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let git_credential = credential(flags).map_err(Failure::usage)?;
    let ca = flags.git_ca_file.as_ref().map(|path| read("git-ca-file", path)).transpose().map_err(Failure::usage)?;
    let no_folder =
        |error: std::io::Error| Failure::new(format!("no temporary folder: {}", without_os_code(&error.to_string())));
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let mirrors = Mirrors::new(folder.path().join("mirrors"), MAX_DISK_BYTES);
    let mut origins = Vec::new();
    for place in places {
        let failure = |error: String| Failure::new(format!("--from-git {}: {error}", place.url));
        let ca = ca.as_ref().map(|ca| ca.as_slice());
        // Dropping the fetch ends its processes, and removes the folder with the key.
        let fetched = tokio::select! {
            fetched = fetch(&mirrors, &place, &git_credential, ca) => fetched,
            () = wait_for_signal() => return Err(Failure::with(Exit::Interrupted, "interrupted")),
        };
        let Commit { id, time, signer, files } = fetched.map_err(|error| failure(message(&error)))?;
        content.add_files(false, files).map_err(|error| failure(error.to_string()))?;
        let (url, path, signer) = (place.url.to_string().into(), place.path.as_str().into(), signer.map(Into::into));
        origins.push(Origin { kind: OriginKind::Git, url, revision: id.into(), path, time: Some(Time(time)), signer });
    }
    Ok(origins)
}

/// Waits for a signal to end.
async fn wait_for_signal() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let signals = signals.into_iter().flatten().map(|mut signal| async move { signal.recv().await }.boxed());
    select_all(signals.chain([pending().boxed()])).await;
}

async fn fetch(
    mirrors: &Mirrors,
    place: &GitPlace,
    credential: &Credential,
    ca: Option<&[u8]>,
) -> Result<Commit, GitError> {
    let mut last = None;
    for revision in &place.revisions {
        let request = FetchRequest {
            url: &place.url,
            revision,
            path: &place.path,
            credential,
            reach: &Reach::Anywhere,
            ca,
            lfs: true,
            allowed_signers: None,
            is_wanted: &is_taken,
        };
        match mirrors.fetch(&request, None).await {
            Ok(Some(commit)) => return Ok(commit),
            Ok(None) => {}
            Err(error @ GitError::Ref(_)) => last = last.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or(GitError::Broken))
}

/// Returns whether a file is taken, by the same rules as in a folder of `--from-file`: folders whose names begin with a
/// dot are left out, and so are such files below the first level.
fn is_taken(path: &str) -> bool {
    !path.contains('/') || !path.split('/').any(|name| name.starts_with('.'))
}

fn credential(flags: &GitFlags) -> Result<Credential, String> {
    if let Some(path) = &flags.git_token_file {
        let bytes = read("git-token-file", path)?;
        let text =
            std::str::from_utf8(&bytes).map_err(|_| format!("--git-token-file {}: it is not text", path.display()))?;
        let token = Zeroizing::new(text.trim().to_owned());
        return Ok(Credential::Token { username: flags.git_username.clone(), token });
    }
    match (&flags.ssh_key_file, &flags.known_hosts_file) {
        (Some(key), Some(known_hosts)) => {
            let known_hosts = read("known-hosts-file", known_hosts)?;
            let known_hosts = String::from_utf8_lossy(&known_hosts).into_owned();
            Ok(Credential::Ssh { key: read("ssh-key-file", key)?, known_hosts })
        }
        _ => Ok(Credential::Anonymous),
    }
}

fn read(flag: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    fs::read(path).map(Zeroizing::new).map_err(|error| format!("--{flag} {}", file_message(path, &error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_a_ref_and_a_path_are_divided() {
        let place = |url: &str, revisions: &[Revision], path: &str| {
            Ok(GitPlace { url: GitUrl::parse(url).unwrap(), revisions: revisions.to_vec(), path: path.to_owned() })
        };
        let both = |name: &str| [Revision::Branch(name.to_owned()), Revision::Tag(name.to_owned())];
        let id = "0a".repeat(20);
        for (text, expected) in [
            ("https://a/b", place("https://a/b", &[Revision::Head], "")),
            ("https://a:8443/b@main:config/prod/", place("https://a:8443/b", &both("main"), "config/prod")),
            ("https://a/b@shop@1.0:c", place("https://a/b", &both("shop@1.0"), "c")),
            ("git@a:b", place("git@a:b", &[Revision::Head], "")),
            ("git@a:b@v1:c", place("git@a:b", &both("v1"), "c")),
            ("ssh://git@a:22/b@:c", place("ssh://git@a/b", &[Revision::Head], "c")),
            ("https://a/b@refs/tags/v1", place("https://a/b", &[Revision::Tag("v1".to_owned())], "")),
            ("https://a/b@refs/heads/v1", place("https://a/b", &[Revision::Branch("v1".to_owned())], "")),
            (&format!("https://a/b@{id}"), place("https://a/b", &[Revision::Commit(id.clone())], "")),
        ] {
            assert_eq!(parse_place(text), expected, "{text}");
        }
        for bad in ["", "/b@main", "http://a/b@main", "--upload-pack=id", "https://user:hidden@a/b"] {
            assert!(!parse_place(bad).unwrap_err().contains("hidden"), "{bad}");
        }
    }

    #[test]
    fn what_begins_with_a_dot_is_left_out_below_the_first_level() {
        assert!(is_taken(".env") && is_taken("a/b") && !is_taken("a/.b") && !is_taken(".github/b"));
    }
}
