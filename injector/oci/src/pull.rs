//! Pulls: from the reference to the digest, and from there to the files.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::LINK;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use nudge_core::outbound::Address;
use nudge_core::remote::{OciReference, Pick, is_digest, is_tag, parse_range};
use nudge_outbound::HttpError;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use serde::Deserialize;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::archive::{Limits, Node, Whiteouts, normalize_path};
use crate::credential::Credential;
use crate::digest;
use crate::error::OciError;
use crate::frames::MAX_WINDOW_BYTES;
use crate::layers::{self, LayerKind};
use crate::manifest::{self, ACCEPTED_TYPES, ChoiceError, Descriptor, Document, Manifest};
use crate::session::{Action, MAX_SMALL_ANSWER_BYTES, Registry, RepositoryRequest, Session};
use crate::tags::{highest_tag, next_page};

/// The maximum duration of a pull.
const PULL_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum bytes of a manifest, as the distribution specification recommends, and of a page of tags.
const MAX_MANIFEST_BYTES: usize = 4 * 1024 * 1024;
/// The maximum bytes of an image's config.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// The maximum bytes of one blob.
const MAX_BLOB_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum memory of a pull, in MiB: a blob both in chunks as received and in one piece, the window of its
/// decompression, and contents.
pub const PULL_MIB: u32 = 208;
const _: () = assert!(
    2 * MAX_BLOB_BYTES + 2 * MAX_WINDOW_BYTES + 3 * MAX_DICTIONARY_BYTES as u64 <= (PULL_MIB as u64) << 20,
    "PULL_MIB is less"
);
/// The maximum number of layers that are fetched.
const MAX_LAYERS: usize = 1000;
/// The maximum bytes of the layers that are fetched.
const MAX_ARTIFACT_BYTES: u64 = 512 * 1024 * 1024;
/// The maximum number of tags.
const MAX_TAGS: usize = 10_000;
/// The maximum number of pages of tags.
const MAX_PAGES: usize = 100;

/// A request for an artifact.
pub struct PullRequest<'a> {
    /// The registry and the repository.
    pub reference: &'a OciReference,
    /// The tag, digest or range.
    pub pick: &'a Pick,
    /// The platform, such as `linux/amd64`.
    pub platform: Option<&'a str>,
    /// The folder below the root of the artifact, or the file. An empty path is the root.
    pub path: &'a str,
    /// The credential for the registry.
    pub credential: &'a Credential,
    /// Whether the credential may be sent to this token realm. It is not called for the host and port of the registry
    /// itself.
    pub trusts_realm: &'a (dyn Fn(&Address) -> bool + Send + Sync),
    /// Whether a file is wanted, by its path below `path`.
    pub is_wanted: &'a (dyn Fn(&str) -> bool + Send + Sync),
}

/// The wanted files of an artifact.
pub struct Artifact {
    /// The digest of the manifest or index that the reference names.
    pub digest: String,
    /// The creation time of the artifact, as the artifact itself claims.
    pub created: Option<Timestamp>,
    /// The files, by their path below the path of the request. If the request names a file, its key is the name of the
    /// file.
    pub files: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Artifact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, created, files } = self;
        let files: Vec<&String> = files.keys().collect();
        formatter
            .debug_struct("Artifact")
            .field("digest", digest)
            .field("created", created)
            .field("files", &files)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Pulls an artifact, or returns `None` if it has the digest `known`, which the caller has.
    pub async fn pull(&self, request: &PullRequest<'_>, known: Option<&str>) -> Result<Option<Artifact>, OciError> {
        timeout(PULL_TIMEOUT, self.pull_in_time(request, known))
            .await
            .map_err(|_| OciError::TooSlow(PULL_TIMEOUT.as_secs()))?
    }

    /// Pulls the files. Fetches nothing more as soon as the artifact is the `known` one: by its digest, by what the
    /// registry claims, or by its document.
    async fn pull_in_time(&self, request: &PullRequest<'_>, known: Option<&str>) -> Result<Option<Artifact>, OciError> {
        request.pick.check()?;
        let path_error = |_| OciError::Path(request.path.to_owned());
        let root = normalize_path(request.path.trim_matches('/').as_bytes()).map_err(path_error)?.unwrap_or_default();
        let mut session = Session::new(self, request.reference, request.credential, request.trusts_realm, Action::Pull);
        let name = match request.pick {
            // Other content would have another digest.
            Pick::Digest(digest) if known == Some(digest) => return Ok(None),
            Pick::Tag(name) | Pick::Digest(name) => name.clone(),
            Pick::Semver(range) => session.tag_within(range).await?,
        };
        if known.is_some() && session.claimed_digest(&name).await?.as_deref() == known {
            return Ok(None);
        }
        let (digest, document) = session.fetch_document(&name).await?;
        if known == Some(digest.as_str()) {
            return Ok(None);
        }
        let (manifest, created) = match document {
            Document::Manifest(manifest) => (manifest, None),
            Document::Index { manifests, created } => {
                let chosen = manifest::choose_manifest(&manifests, request.platform).map_err(|error| match error {
                    ChoiceError::Several(platforms) => OciError::WhichPlatform(platforms),
                    ChoiceError::None(platforms) => {
                        OciError::NoPlatform { wanted: request.platform.unwrap_or("any").to_owned(), platforms }
                    }
                })?;
                match session.fetch_document(&chosen.digest).await? {
                    (_, Document::Manifest(manifest)) => (manifest, created),
                    (_, Document::Index { .. }) => return Err(session.malformed("index", "it names another index")),
                }
            }
        };
        let created = match created.or(manifest.created) {
            None if manifest.is_image() => manifest::image_creation_time(
                &session.fetch_blob(&manifest.config, MAX_CONFIG_BYTES, "the config of the image").await?,
            ),
            created => created,
        };
        let files = session.fetch_files(&manifest, &root, request.is_wanted).await?;
        if files.is_empty() {
            return Err(OciError::NoFiles(root));
        }
        Ok(Some(Artifact { digest, created, files }))
    }
}

impl Session<'_> {
    /// Returns the digest that the registry claims for a tag. It only decides whether more is requested.
    async fn claimed_digest(&mut self, name: &str) -> Result<Option<String>, OciError> {
        let path = self.path(&format!("manifests/{name}"));
        let request = RepositoryRequest { accept: Some(ACCEPTED_TYPES), ..RepositoryRequest::new(Method::HEAD, path) };
        let answer = self.request(&request).await?;
        let digest = answer.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        Ok(digest.filter(|_| answer.status().is_success()).map(str::to_owned))
    }

    /// Fetches the manifest or index of a tag or digest, and returns it with its own digest.
    async fn fetch_document(&mut self, name: &str) -> Result<(String, Document), OciError> {
        let path = self.path(&format!("manifests/{name}"));
        let request = RepositoryRequest {
            accept: Some(ACCEPTED_TYPES),
            max_bytes: MAX_MANIFEST_BYTES,
            ..RepositoryRequest::new(Method::GET, path)
        };
        let answer = self.request(&request).await.map_err(|error| match error {
            OciError::Http { source: HttpError::TooLong(_), .. } => {
                OciError::TooLarge { what: "the manifest".to_owned(), limit: MAX_MANIFEST_BYTES as u64 }
            }
            error => error,
        })?;
        if answer.status() != StatusCode::OK {
            return Err(self.status_error(&answer, "the request for a manifest", name));
        }
        let digest = digest::sha256(answer.body());
        if is_digest(name) && digest != name {
            return Err(OciError::Digest { host: self.host(), digest: name.to_owned() });
        }
        let document = manifest::parse_document(answer.body()).map_err(|cause| self.malformed("manifest", cause))?;
        Ok((digest, document))
    }

    /// Fetches the content of a descriptor.
    async fn fetch_blob(&mut self, descriptor: &Descriptor, limit: u64, what: &str) -> Result<Bytes, OciError> {
        if descriptor.size > limit {
            return Err(OciError::TooLarge { what: what.to_owned(), limit });
        }
        let path = self.path(&format!("blobs/{}", descriptor.digest));
        let host = self.host();
        let digest_error = || OciError::Digest { host: host.clone(), digest: descriptor.digest.clone() };
        // An error from the registry may be longer than the blob.
        let max_bytes = usize::try_from(descriptor.size).unwrap_or(usize::MAX).max(MAX_SMALL_ANSWER_BYTES);
        let request = RepositoryRequest { max_bytes, ..RepositoryRequest::new(Method::GET, path) };
        let answer = self.request_blob(&request).await.map_err(|error| match error {
            OciError::Http { source: HttpError::TooLong(_), .. } => digest_error(),
            error => error,
        })?;
        if answer.status() != StatusCode::OK {
            return Err(self.status_error(&answer, "the request for a blob", &descriptor.digest));
        }
        let content = answer.into_body();
        if content.len() as u64 != descriptor.size || digest::sha256(&content) != descriptor.digest {
            return Err(digest_error());
        }
        Ok(content)
    }

    async fn fetch_files(
        &mut self,
        manifest: &Manifest,
        root: &str,
        is_wanted: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, OciError> {
        let mut limits = Limits::default();
        let (max_content_bytes, mut fetched, mut bytes) = (limits.content, 0, 0_u64);
        let whiteouts = if manifest.is_image() { Whiteouts::Apply } else { Whiteouts::Ignore };
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        for layer in &manifest.layers {
            let kind = layers::layer_kind(layer)?;
            let skip = match &kind {
                LayerKind::File(path) => !layers::is_wanted_file(path, root, is_wanted),
                LayerKind::Archive => false,
                LayerKind::Unknown => true,
            };
            if skip {
                continue;
            }
            fetched = usize::saturating_add(fetched, 1);
            if fetched > MAX_LAYERS {
                return Err(OciError::TooMany { what: "layers", limit: MAX_LAYERS });
            }
            bytes = bytes.saturating_add(layer.size);
            if bytes > MAX_ARTIFACT_BYTES {
                return Err(OciError::TooLarge { what: "the artifact".to_owned(), limit: MAX_ARTIFACT_BYTES });
            }
            if let LayerKind::File(path) = kind {
                let file = self.fetch_blob(layer, max_content_bytes as u64, "a file").await?;
                nodes.insert(path, Node::File(Zeroizing::new(file.to_vec())));
            } else {
                let blob = self.fetch_blob(layer, MAX_BLOB_BYTES, "a layer").await?;
                let layer = layers::unpack_blob(blob, limits, whiteouts, root, is_wanted).await?;
                layer.subtract_from(&mut limits);
                layer.apply_to(&mut nodes);
            }
            // Each layer may add files, so the bound on all of them is checked after each.
            layers::check_total_bytes(&nodes, max_content_bytes)?;
        }
        Ok(layers::collect_files(nodes, root)?)
    }

    /// Finds the highest tag within a range.
    async fn tag_within(&mut self, range: &str) -> Result<String, OciError> {
        #[derive(Deserialize)]
        struct List {
            tags: Option<Vec<String>>,
        }
        let parsed = parse_range(range)?;
        let (mut tags, mut path) = (Vec::new(), self.path("tags/list?n=1000"));
        for _ in 0..MAX_PAGES {
            let request =
                RepositoryRequest { max_bytes: MAX_MANIFEST_BYTES, ..RepositoryRequest::new(Method::GET, path) };
            let answer = self.request(&request).await?;
            if answer.status() != StatusCode::OK {
                return Err(match self.status_error(&answer, "the request for tags", range) {
                    OciError::NoVersion { repository, .. } => OciError::NoRepository(repository),
                    error => error,
                });
            }
            let list: List = serde_json::from_slice(answer.body())
                .map_err(|_| self.malformed("list of tags", "it is not JSON of that kind"))?;
            tags.extend(list.tags.unwrap_or_default().into_iter().filter(|tag| is_tag(tag)));
            if tags.len() > MAX_TAGS {
                return Err(OciError::TooMany { what: "tags", limit: MAX_TAGS });
            }
            let link = answer.headers().get(LINK).map(|value| value.to_str().unwrap_or_default());
            let page = link.map(|link| next_page(link, &self.host())).transpose();
            let Some(page) = page.map_err(|cause| self.malformed("list of tags", cause))?.flatten() else {
                let highest = highest_tag(tags.iter().map(String::as_str), &parsed).map(str::to_owned);
                let repository = self.reference.to_string();
                return highest.ok_or(OciError::NoMatch { repository, range: range.to_owned(), tags: tags.len() });
            };
            path = String::from(page);
        }
        Err(OciError::TooMany { what: "pages of tags", limit: MAX_PAGES })
    }
}
