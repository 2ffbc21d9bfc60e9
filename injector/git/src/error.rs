//! The errors of a fetch. No message repeats text of git or of the server, which may hold a credential.

use nudge_core::remote::{PathError, RevisionError};
use nudge_outbound::ConnectError;

/// The reason why a fetch gives no files.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The requested revision can't be used.
    #[error(transparent)]
    Revision(#[from] RevisionError),
    /// The requested path can't be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The URL is an SSH URL, and there is no SSH key.
    #[error("an SSH URL needs an SSH key and known_hosts; or use the https:// URL")]
    NeedsKey,
    /// There is an SSH key, and the URL is an HTTPS URL.
    #[error("an SSH key has no effect on an https:// URL; use the SSH URL of the repository, or a token")]
    KeyForHttps,
    /// The token is empty, or has characters that a header can't have.
    #[error("the token, or its user name, is empty or holds characters that can't be sent; look for a line break")]
    Token,
    /// The SSH key can't be read by ssh.
    #[error("the SSH key must be a private key in OpenSSH's format, without a passphrase")]
    Key,
    /// `ca` holds no certificate.
    #[error("ca holds no certificate")]
    Ca,
    /// A program is not installed.
    #[error("{0} is not installed; use the image for sources, or install git and openssh-client")]
    Program(&'static str),
    /// The server lacks the repository, or hides it.
    #[error(
        "{0} has no such repository, or the credential may not read it: check the URL and the rights of the credential"
    )]
    NotFound(String),
    /// The server refuses the credential.
    #[error("{0} refuses the credential, or requires one: check whether it has expired or lost its rights")]
    Credential(String),
    /// The repository lacks the ref.
    #[error("the repository has no {0}")]
    Ref(String),
    /// The path is not in the commit.
    #[error("commit {commit} has no {path}")]
    NoPath {
        /// The id of the commit.
        commit: String,
        /// The requested path.
        path: String,
    },
    /// The host key is not known.
    #[error("no key of {host} is in known_hosts.{}", hint(lines))]
    HostKeyUnknown {
        /// The host, in the format of `known_hosts`.
        host: String,
        /// The lines to add, if the server has shown its keys.
        lines: Vec<String>,
    },
    /// The server shows another host key than `known_hosts` has.
    #[error(
        "{0} has another key than known_hosts says: somebody may intercept the connection, or the server has a new key; ask its admin"
    )]
    HostKeyWrong(String),
    /// The address may not be connected to, or no connection can be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Git did not reach the server.
    #[error("{0} can't be reached")]
    Unreachable(String),
    /// The connection ended early.
    #[error(
        "{0} closed the connection before its answer was complete; if this stays, see its log, and that of a proxy in front of it"
    )]
    Interrupted(String),
    /// The server is busy or has failed.
    #[error("{0} answers that it is busy or has failed (status 429 or 5xx); if this stays, see its log")]
    Unavailable(String),
    /// The certificate of the server is not trusted.
    #[error(
        "the certificate of {0} is not valid, or its authority is not trusted: set the authority's certificate in ca of the source, or with --git-ca-file"
    )]
    Tls(String),
    /// The fetch took too long.
    #[error("the fetch was not done within {0} s; the server is too slow, or the repository too large")]
    TooSlow(u64),
    /// The repository takes too much disk.
    #[error(
        "the repository takes more than {0} bytes on disk even without its history; use a smaller one, or a server that supports partial clones"
    )]
    TooLargeMirror(u64),
    /// Git takes too much memory.
    #[error(
        "git takes more than {0} MiB of memory for the repository; keep large files in Git LFS, or use a smaller one"
    )]
    Memory(u64),
    /// The files have too many bytes together.
    #[error("the files have more than {0} bytes together; name a smaller folder in path")]
    TooLarge(usize),
    /// There are too many files below the path.
    #[error("there are more than {0} files below path; name a smaller folder in path")]
    TooManyFiles(usize),
    /// The repository has too many refs.
    #[error("the repository has too many refs; their list has more than {0} bytes")]
    TooManyRefs(usize),
    /// A file is a symbolic link.
    #[error("{0} is a symbolic link, and links are not followed; leave it out, or put the file there")]
    Symlink(String),
    /// A file is a submodule.
    #[error("{0} is a submodule, and those are not fetched; leave it out, or make a source of its own repository")]
    Submodule(String),
    /// The name of a file can't be used.
    #[error("a name below path is not UTF-8, has control characters, or is . or ..; rename the file")]
    FileName,
    /// A file is an LFS pointer, but LFS is off.
    #[error("{0} is kept by Git LFS; set lfs: true")]
    LfsOff(String),
    /// A file is changed by an extension of Git LFS.
    #[error(
        "{0} is changed by an extension of Git LFS (git config lfs.extension), which is not run; store the file without it"
    )]
    LfsExtended(String),
    /// The LFS server lacks the object of a file.
    #[error(
        "the LFS server has no object for {0}, or the credential may not read it: push it with `git lfs push`, or check the rights of the credential"
    )]
    LfsMissing(String),
    /// The LFS content does not match its pointer.
    #[error("the LFS server gave other content for {0} than its pointer says")]
    LfsContent(String),
    /// `.lfsconfig` names an LFS server on another host.
    #[error(
        ".lfsconfig names an LFS server on another host, {0}, to which no credential is sent; keep the objects on the server of the repository"
    )]
    LfsHost(String),
    /// The server gives no LFS endpoint over SSH.
    #[error(
        "the server gives no LFS endpoint on its own host over SSH; use the https:// URL of the repository with a token"
    )]
    LfsSsh,
    /// The LFS server gives more bytes than the pointer says. The crate itself handles this error.
    #[error("the LFS server gives more bytes than the pointer says")]
    LfsLong,
    /// The LFS server gives an unexpected answer.
    #[error("the LFS server answers with {0}")]
    Lfs(String),
    /// The server redirects to another URL.
    #[error("{0} redirects to another URL, and redirects are not followed; use the URL that it redirects to")]
    Redirect(String),
    /// No allowed signer signed the commit.
    #[error("commit {0} is not signed by one of the allowed signers; sign it, or its tag, by an SSH key of theirs")]
    NotSigned(String),
    /// The disk for mirrors is full.
    #[error("the disk for mirrors of repositories is full; make it larger, or the bound of the mirrors smaller")]
    DiskFull,
    /// The folder for mirrors can't be used.
    #[error("the folder for mirrors of repositories can't be used")]
    Disk(#[source] std::io::Error),
    /// The private key of the GitHub App can't be used.
    #[error("the GitHub App's private key must be an RSA key in PEM")]
    AppKey,
    /// The API of the GitHub App failed.
    #[error("GitHub App: {0}")]
    App(String),
    /// Git refuses the objects that it received.
    #[error("the repository has objects that git refuses as broken or dangerous; `git fsck` shows which")]
    Fsck,
    /// The mirror is broken, and the mirror that replaced it was broken, too.
    #[error("the mirror of the repository is broken")]
    Broken,
    /// The server gives no objects by their ids. The crate itself handles this error.
    #[error("the server gives no objects by their ids")]
    NotById,
    /// The server gives no single objects, though it takes filters. The crate itself handles this error.
    #[error("the server gives no single objects")]
    NotPartial,
    /// Git failed for an unknown reason.
    #[error("git failed ({0}) for a reason that Nudge does not know; run `git {0}` by hand to see it")]
    Git(&'static str),
}

impl GitError {
    /// Returns whether a new mirror may help.
    pub(crate) fn is_of_mirror(&self) -> bool {
        matches!(self, Self::Broken | Self::Git(_))
    }

    /// Returns the error of a file system.
    pub(crate) fn disk(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::StorageFull { Self::DiskFull } else { Self::Disk(error) }
    }
}

fn hint(lines: &[String]) -> String {
    if lines.is_empty() {
        return " Add it, from a source that you trust".to_owned();
    }
    format!(" If the server's admin confirms it, add this line: {}", lines.join("; or "))
}
