//! The errors of pulls and pushes, and their remedies. Of a server's text, messages repeat only names of platforms,
//! after a check.

use nudge_core::remote::PickError;
use nudge_outbound::HttpError;
use nudge_protocol::plural::counted;

use crate::archive::ArchiveError;

/// The reason why a pull or push failed.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The requested tag, digest or range can't be used.
    #[error(transparent)]
    Pick(#[from] PickError),
    /// The path leaves the root of the artifact.
    #[error("the path {0:?} must stay below the root of the artifact, without .. in it")]
    Path(String),
    /// The host gave no answer.
    #[error("{host} gave no answer")]
    Http {
        /// The registry, its token realm, or its storage.
        host: String,
        /// The cause.
        #[source]
        source: HttpError,
    },
    /// The pull or push took too long.
    #[error("the artifact did not arrive within {0} s; the registry is slow, or the artifact too large")]
    TooSlow(u64),
    /// The repository does not exist, or is not public, and no credential was given.
    #[error(
        "there is no repository {repository}, or it is not public; check its name, or give a credential with the right to {act} it"
    )]
    NoAccess {
        /// The registry and the repository.
        repository: String,
        /// The denied action: pull or push.
        act: &'static str,
    },
    /// The credential is valid, but lacks the right.
    #[error(
        "there is no repository {repository}, or the credential may not {act} it; check its name and the rights of the credential"
    )]
    Denied {
        /// The registry and the repository.
        repository: String,
        /// The denied action: pull or push.
        act: &'static str,
    },
    /// The host refuses the credential.
    #[error("{0} refuses the credential; check name and password, and whether a token has expired")]
    CredentialRefused(String),
    /// The token realm is on a host that must not get the credential.
    #[error(
        "{registry} gets its tokens from {host}, and Nudge does not send the credential there; if you trust the host, add it to the hosts \
         that the credential is for"
    )]
    RealmElsewhere {
        /// The host and port of the registry.
        registry: String,
        /// The host of the realm.
        host: String,
    },
    /// The token realm has no TLS.
    #[error("{registry} gets its tokens from {host} without TLS, and Nudge sends nothing there")]
    RealmWithoutTls {
        /// The host and port of the registry.
        registry: String,
        /// The host of the realm.
        host: String,
    },
    /// The address of the token realm can't be used.
    #[error("{0} gets its tokens from an address that can't be used")]
    Realm(String),
    /// The registry requests neither Basic nor Bearer authentication.
    #[error("{0} requests an authentication that Nudge does not support, which is neither Basic nor Bearer")]
    Challenge(String),
    /// The host of the token realm gave no token.
    #[error("{0} gave no token; check that it serves registries")]
    NoToken(String),
    /// The repository does not exist.
    #[error("there is no repository {0}; check its name, or push something to it")]
    NoRepository(String),
    /// The repository does not have the tag or digest.
    #[error("the repository {repository} has no {wanted}; see which tags it has")]
    NoVersion {
        /// The registry and the repository.
        repository: String,
        /// The tag or digest.
        wanted: String,
    },
    /// No tag of the repository is in the range.
    #[error(
        "{repository} has {}, and none is a version within {range}; widen the range, or push such a tag",
        counted(*.tags, "tag")
    )]
    NoMatch {
        /// The registry and the repository.
        repository: String,
        /// The requested range of versions.
        range: String,
        /// The number of tags in the repository.
        tags: usize,
    },
    /// The artifact does not exist for this platform.
    #[error("the artifact is not there for platform {wanted:?}; it is there for {}", platforms.join(", "))]
    NoPlatform {
        /// The requested platform.
        wanted: String,
        /// The platforms of the artifact.
        platforms: Vec<String>,
    },
    /// The artifact exists for several platforms, and none was requested.
    #[error("the artifact is there for several platforms; name one of {}", .0.join(", "))]
    WhichPlatform(Vec<String>),
    /// A document is not as the specifications say.
    #[error("the {what} of {repository} is not as the OCI specifications say: {cause}")]
    Malformed {
        /// The registry and the repository.
        repository: String,
        /// The document: a manifest, an index or a list of tags.
        what: &'static str,
        /// The rule that the document breaks.
        cause: &'static str,
    },
    /// The content does not match its digest.
    #[error(
        "the content that {host} sent as {digest} has another digest, and is not used; check what is in between, such as a proxy"
    )]
    Digest {
        /// The host that sent the content.
        host: String,
        /// The requested digest.
        digest: String,
    },
    /// Something has more bytes than its limit.
    #[error(
        "{what} has more than {limit} bytes, which is the limit; name a path with less in it, or divide the artifact"
    )]
    TooLarge {
        /// The thing with too many bytes.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The artifact has more parts of a kind than the limit.
    #[error("the artifact has more than {limit} {what}, which is the limit")]
    TooMany {
        /// The kind of the parts.
        what: &'static str,
        /// The maximum number of parts of the kind.
        limit: usize,
    },
    /// A redirect that is not followed.
    #[error("{host} redirects {what}, and Nudge does not follow: {cause}")]
    Redirect {
        /// The host that redirects.
        host: String,
        /// The thing that was requested.
        what: &'static str,
        /// The reason why the redirect is not followed.
        cause: &'static str,
    },
    /// A layer can't be unpacked.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The artifact has no wanted file.
    #[error("{}; see what is in the artifact", match .0.as_str() {
        "" => "the artifact has no file that is wanted".to_owned(),
        path => format!("the artifact has no file that is wanted below {path}"),
    })]
    NoFiles(String),
    /// The host limits the rate of requests.
    #[error("{0} refuses more requests for now; try later, or with a credential")]
    Busy(String),
    /// The host answered with an unexpected status.
    #[error("{host} answered {what} with status {status}")]
    Status {
        /// The host that answered.
        host: String,
        /// The thing that was requested.
        what: &'static str,
        /// The status code.
        status: u16,
    },
}
