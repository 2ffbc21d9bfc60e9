//! Sorts the error messages of git and ssh into kinds of faults.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitFault {
    DiskFull,
    Memory,
    HostKeyWrong,
    HostKeyUnknown,
    Key,
    Credential,
    NotFound,
    Redirect,
    Tls,
    Unreachable,
    /// The server was reached, and its answer ended early.
    Interrupted,
    /// The server was reached, and answered that it is busy or has failed.
    Unavailable,
    TooSlow,
    NoRef,
    /// The server gives no object by its id.
    NotById,
    Fsck,
    Other,
}

/// The texts, in lower case, that show a fault. The first match counts.
const RULES: [(GitFault, &[&str]); 19] = [
    (GitFault::DiskFull, &["no space left on device", "disk quota exceeded"]),
    (GitFault::Memory, &["out of memory", "cannot allocate memory"]),
    (GitFault::HostKeyWrong, &["remote host identification has changed", "host key for ", "revoked host key"]),
    (GitFault::HostKeyUnknown, &["host key is known for", "host key verification failed"]),
    (GitFault::Key, &["invalid format", "error in libcrypto", "incorrect passphrase"]),
    (
        GitFault::Credential,
        &[
            "permission denied (",
            "too many authentication failures",
            "could not read username",
            "could not read password",
            "authentication failed",
            "returned error: 401",
            "returned error: 403",
        ],
    ),
    (
        GitFault::NotFound,
        &[
            "returned error: 404",
            "returned error: 410",
            "repository not found",
            "does not appear to be a git repository",
            "is this a git repository",
            "dumb http transport",
        ],
    ),
    (GitFault::Redirect, &["returned error: 30"]),
    // The rules for interruptions come before TLS, because messages about an interrupted handshake have the texts of
    // TLS, too.
    (GitFault::Interrupted, &["non-properly terminated", "unexpected eof"]),
    (
        GitFault::Tls,
        &[
            "server certificate verification failed",
            "ssl certificate problem",
            "certificate verify failed",
            "ssl: no alternative certificate subject name",
            "does not match target host name",
            "ssl: certificate subject name",
            "error setting certificate",
            "gnutls_handshake() failed",
            "ssl_connect",
            "ssl connect error",
            "wrong version number",
        ],
    ),
    (GitFault::TooSlow, &["operation too slow", "operation timed out"]),
    (
        GitFault::Unreachable,
        &[
            "failed to connect to",
            "couldn't connect to server",
            "could not connect to server",
            "could not resolve host",
            "connection refused",
            "connection timed out",
            "no route to host",
            "network is unreachable",
            "kex_exchange_identification",
            "banner exchange",
            "timeout, server",
        ],
    ),
    (GitFault::Unavailable, &["returned error: 5", "returned error: 429"]),
    (
        GitFault::Interrupted,
        &[
            "connection reset",
            "connection closed",
            "empty reply from server",
            "recv failure",
            "unexpected disconnect",
            "remote end hung up",
            "transfer closed",
            "rpc failed",
        ],
    ),
    (GitFault::NotById, &["not our ref", "does not allow request for unadvertised object", "no such remote ref"]),
    (GitFault::NoRef, &["couldn't find remote ref"]),
    (GitFault::Fsck, &["fsck error", "error in object", "error in packed object", "loose object"]),
    // This rule comes after the faults that make git itself stop reading.
    (GitFault::Interrupted, &["early eof"]),
    // SSH servers report a missing repository in their own words, so only the end of git's message shows it.
    (GitFault::NotFound, &["could not read from remote repository"]),
];

impl GitFault {
    /// Returns the kind of fault that this text reports.
    pub(crate) fn parse(stderr: &[u8]) -> Self {
        let text = String::from_utf8_lossy(stderr).to_lowercase();
        // The server chooses the text of lines that begin with "remote:", so only git's own lines count.
        let lines = text.lines().filter(|line| !line.starts_with("remote: "));
        let messages: String = lines.flat_map(|line| [line, "\n"]).collect();
        // The URL stands between the two parts of the message.
        if messages.contains("fatal: repository '") && messages.contains("' not found") {
            return Self::NotFound;
        }
        let rule = RULES.iter().find(|(_, texts)| texts.iter().any(|text| messages.contains(text)));
        rule.map_or(Self::Other, |(fault, _)| *fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_known_by_their_words() {
        for (text, known) in [
            (
                "fatal: unable to access 'https://a/b/': Failed to connect to a port 443 after 0 ms: Connection refused",
                GitFault::Unreachable,
            ),
            ("fatal: unable to access 'https://a/b/': The requested URL returned error: 302", GitFault::Redirect),
            ("fatal: unable to access 'https://a/b/': The requested URL returned error: 403", GitFault::Credential),
            ("fatal: could not read Username for 'https://a': terminal prompts disabled", GitFault::Credential),
            ("remote: Not Found\nfatal: repository 'https://a/b/' not found", GitFault::NotFound),
            (
                "git@a: Permission denied (publickey).\r\nfatal: Could not read from remote repository.",
                GitFault::Credential,
            ),
            (
                "No ED25519 host key is known for [a]:22 and you have requested strict checking.\r\nHost key verification failed.",
                GitFault::HostKeyUnknown,
            ),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                GitFault::HostKeyWrong,
            ),
            ("ssh: connect to host a port 22: Connection refused", GitFault::Unreachable),
            (
                "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output",
                GitFault::DiskFull,
            ),
            ("fatal: Out of memory, malloc failed (tried to allocate 1 bytes)", GitFault::Memory),
            ("fatal: remote error: upload-pack: not our ref 0000", GitFault::NotById),
            ("error: Server does not allow request for unadvertised object 0000", GitFault::NotById),
            ("error: RPC failed; curl 28 Operation too slow. Less than 1 bytes/sec", GitFault::TooSlow),
            ("error: object 00: hasDotdot: contains '..'\nfatal: fsck error in packed object", GitFault::Fsck),
            (
                "fatal: unable to access 'https://a/b/': GnuTLS recv error (-110): The TLS connection was non-properly terminated.",
                GitFault::Interrupted,
            ),
            (
                "error: RPC failed; curl 56 OpenSSL SSL_read: error:0A000126:SSL routines::unexpected eof while reading, errno 0\n\
                 fatal: expected 'packfile'",
                GitFault::Interrupted,
            ),
            (
                "fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF",
                GitFault::Interrupted,
            ),
            ("error: RPC failed; curl 18 transfer closed with outstanding read data remaining", GitFault::Interrupted),
            ("fatal: unable to access 'https://a/b/': Empty reply from server", GitFault::Interrupted),
            ("fatal: the remote end hung up unexpectedly", GitFault::Interrupted),
            ("kex_exchange_identification: Connection closed by remote host", GitFault::Unreachable),
            ("fatal: unable to access 'https://a/b/': The requested URL returned error: 502", GitFault::Unavailable),
            ("fatal: unable to access 'https://a/b/': The requested URL returned error: 429", GitFault::Unavailable),
            ("remote: connection refused\nfatal: something new", GitFault::Other),
            ("remote: no such project\nfatal: Could not read from remote repository.", GitFault::NotFound),
            ("fatal: https://a/b/info/refs not valid: is this a git repository?", GitFault::NotFound),
        ] {
            assert_eq!(GitFault::parse(text.as_bytes()), known, "{text}");
        }
    }
}
