//! What a registry has: from the reference to the digest, and from there to the files.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::LINK;
use hyper::{Method, Response, StatusCode};
use jiff::Timestamp;
use nudge_core::remote::{Pick, Reference, is_digest, is_tag, range_of};
use nudge_outbound::HttpError;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use serde::Deserialize;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::archive::{Limits, Node, place};
use crate::credential::Credential;
use crate::digest;
use crate::error::OciError;
use crate::frames::WINDOW;
use crate::highest_tag::{highest, next_page};
use crate::layers::{self, Kind};
use crate::manifest::{self, ACCEPTED, ChoiceError, Descriptor, Document, Manifest};
use crate::session::{Act, Ask, MAX_SMALL_ANSWER_BYTES, MayAsk, Registry, Session};

/// How long all of it may take.
const PULL_TIMEOUT: Duration = Duration::from_mins(2);
/// The most bytes of a manifest, as the distribution specification recommends.
const MANIFEST_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of an image's config.
const CONFIG_BYTES: u64 = 1024 * 1024;
/// The most bytes of one blob.
const BLOB_BYTES: u64 = 64 * 1024 * 1024;
/// The most memory that a pull takes, in MiB: a blob as it comes and in one piece, the window of its decompression, and contents.
pub const PULL_MIB: u32 = 208;
const _: () = assert!(
    2 * BLOB_BYTES + 2 * WINDOW + 3 * MAX_DICTIONARY_BYTES as u64 <= (PULL_MIB as u64) << 20,
    "PULL_MIB is less"
);
/// The most layers that are fetched, and the most bytes of them.
const MAX_LAYERS: usize = 1000;
const LAYER_BYTES: u64 = 512 * 1024 * 1024;
/// The most tags, and the most pages of them.
const MAX_TAGS: usize = 10_000;
const MAX_PAGES: usize = 100;

/// A request for an artifact.
pub struct Request<'a> {
    /// The repository.
    pub reference: &'a Reference,
    /// The tag, digest or range.
    pub pick: &'a Pick,
    /// For which platform, such as `linux/amd64`.
    pub platform: Option<&'a str>,
    /// The folder below the root of the artifact, or the file. Nothing is all.
    pub path: &'a str,
    /// The credential for the registry.
    pub credential: &'a Credential,
    /// Whether the credential may be sent to this token realm. The registry itself, by host and port, is not asked about.
    pub may_ask: &'a (dyn Fn(&nudge_core::outbound::Address) -> bool + Send + Sync),
    /// Which files are wanted, by their path below `path`.
    pub files: &'a (dyn Fn(&str) -> bool + Send + Sync),
}

/// The result of a pull.
#[derive(Debug)]
pub enum Pulled {
    /// The artifact has the digest that the caller knows.
    Unchanged,
    /// The files.
    Artifact(Artifact),
}

/// The wanted files of an artifact.
pub struct Artifact {
    /// Digest of the manifest that the reference names, or of the index.
    pub digest: String,
    /// When it was made, as it says itself.
    pub created: Option<Timestamp>,
    /// By path below the path that was asked for. A file that was itself asked for has its name.
    pub files: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Artifact {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, created, files } = self;
        let files: Vec<&String> = files.keys().collect();
        to.debug_struct("Artifact")
            .field("digest", digest)
            .field("created", created)
            .field("files", &files)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Pulls an artifact. `known` is the digest that the caller has: what has this digest is not fetched again.
    pub async fn pull(&self, request: &Request<'_>, known: Option<&str>) -> Result<Pulled, OciError> {
        timeout(PULL_TIMEOUT, self.pull_in_time(request, known))
            .await
            .map_err(|_| OciError::TooSlow(PULL_TIMEOUT.as_secs()))?
    }

    async fn pull_in_time(&self, request: &Request<'_>, known: Option<&str>) -> Result<Pulled, OciError> {
        request.pick.check()?;
        let wrong_path = || OciError::Path(request.path.to_owned());
        let root = place(request.path.trim_matches('/').as_bytes()).map_err(|_| wrong_path())?.unwrap_or_default();
        let may_ask: MayAsk<'_> = request.may_ask;
        let mut session = Session::new(self, request.reference, request.credential, may_ask, Act::Pull);
        let name = match request.pick {
            // It has this content or none.
            Pick::Digest(digest) if known == Some(digest) => return Ok(Pulled::Unchanged),
            Pick::Tag(name) | Pick::Digest(name) => name.clone(),
            Pick::Semver(range) => session.tag_within(range).await?,
        };
        if known.is_some() && session.digest_of(&name).await?.as_deref() == known {
            return Ok(Pulled::Unchanged);
        }
        let (digest, document) = session.manifest(&name).await?;
        if known == Some(digest.as_str()) {
            return Ok(Pulled::Unchanged);
        }
        let (manifest, created) = match document {
            Document::Manifest(manifest) => (manifest, None),
            Document::Index { manifests, created } => {
                let chosen = manifest::choose(&manifests, request.platform).map_err(|error| match error {
                    ChoiceError::Several(there) => OciError::WhichPlatform(there),
                    ChoiceError::None(there) => {
                        OciError::NoPlatform { wanted: request.platform.unwrap_or("any").to_owned(), there }
                    }
                })?;
                match session.manifest(&chosen.digest).await? {
                    (_, Document::Manifest(manifest)) => (manifest, created),
                    (_, Document::Index { .. }) => return Err(session.malformed("index", "it names another index")),
                }
            }
        };
        let created = match created.or(manifest.created) {
            None if manifest.is_image() => session.created(&manifest.config).await?,
            created => created,
        };
        let files = session.files(&manifest, &root, request.files).await?;
        if files.is_empty() {
            return Err(OciError::NoFiles(root));
        }
        Ok(Pulled::Artifact(Artifact { digest, created, files }))
    }
}

impl Session<'_> {
    fn malformed(&self, what: &'static str, why: &'static str) -> OciError {
        OciError::Malformed { repository: self.reference.to_string(), what, why }
    }

    /// What the registry says that the digest of a tag is. It decides nothing but whether more is asked.
    async fn digest_of(&mut self, name: &str) -> Result<Option<String>, OciError> {
        let path = self.path(&format!("manifests/{name}"));
        let ask =
            Ask { method: Method::HEAD, path, accept: Some(ACCEPTED), content: None, bytes: MAX_SMALL_ANSWER_BYTES };
        let answer = self.ask(&ask).await?;
        let digest = answer.headers().get("docker-content-digest").and_then(|it| it.to_str().ok());
        Ok(digest.filter(|_| answer.status().is_success()).map(str::to_owned))
    }

    /// The manifest or index of a tag or digest, with its own digest.
    async fn manifest(&mut self, name: &str) -> Result<(String, Document), OciError> {
        let path = self.path(&format!("manifests/{name}"));
        let ask = Ask { method: Method::GET, path, accept: Some(ACCEPTED), content: None, bytes: MANIFEST_BYTES };
        let answer = self.ask(&ask).await.map_err(|error| too_large(error, "the manifest", MANIFEST_BYTES as u64))?;
        if answer.status() != StatusCode::OK {
            return Err(self.fault(&answer, "the request for a manifest", name));
        }
        let digest = digest::sha256(answer.body());
        if is_digest(name) && digest != name {
            return Err(OciError::Digest { host: self.host(), digest: name.to_owned() });
        }
        let document = manifest::read(answer.body()).map_err(|why| self.malformed("manifest", why))?;
        Ok((digest, document))
    }

    /// The content of a descriptor.
    async fn blob(&mut self, descriptor: &Descriptor, limit: u64, what: &str) -> Result<Bytes, OciError> {
        if descriptor.size > limit {
            return Err(OciError::TooLarge { what: what.to_owned(), limit });
        }
        let path = self.path(&format!("blobs/{}", descriptor.digest));
        let wrong =
            || OciError::Digest { host: self.reference.address().authority(), digest: descriptor.digest.clone() };
        // An error of the registry may be longer than what it is about.
        let bytes = usize::try_from(descriptor.size).unwrap_or(usize::MAX).max(MAX_SMALL_ANSWER_BYTES);
        let ask = Ask { method: Method::GET, path, accept: None, content: None, bytes };
        let answer: Response<Bytes> = self.ask_blob(&ask).await.map_err(|error| match error {
            OciError::Http { source: HttpError::TooLong(_), .. } => wrong(),
            error => error,
        })?;
        if answer.status() != StatusCode::OK {
            return Err(self.fault(&answer, "the request for a blob", &descriptor.digest));
        }
        let content = answer.into_body();
        if content.len() as u64 != descriptor.size || digest::sha256(&content) != descriptor.digest {
            return Err(wrong());
        }
        Ok(content)
    }

    async fn created(&mut self, config: &Descriptor) -> Result<Option<Timestamp>, OciError> {
        let config = self.blob(config, CONFIG_BYTES, "the config of the image").await?;
        Ok(manifest::created_of(&config))
    }

    async fn files(
        &mut self,
        manifest: &Manifest,
        root: &str,
        wanted: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, OciError> {
        let mut limits = Limits::default();
        let (content, mut fetched, mut bytes) = (limits.content, 0, 0_u64);
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        for layer in &manifest.layers {
            let kind = layers::kind(layer)?;
            let is_wanted = match &kind {
                Kind::File(path) => layers::wanted_file(path, root, wanted).is_some(),
                Kind::Archive => true,
                Kind::Unknown => false,
            };
            if !is_wanted {
                continue;
            }
            fetched = usize::saturating_add(fetched, 1);
            if fetched > MAX_LAYERS {
                return Err(OciError::TooMany { what: "layers", limit: MAX_LAYERS });
            }
            bytes = bytes.saturating_add(layer.size);
            if bytes > LAYER_BYTES {
                return Err(OciError::TooLarge { what: "the artifact".to_owned(), limit: LAYER_BYTES });
            }
            if let Kind::File(path) = kind {
                let file = self.blob(layer, content as u64, "a file").await?;
                nodes.insert(path, Node::File(Zeroizing::new(file.to_vec())));
            } else {
                let blob = self.blob(layer, BLOB_BYTES, "a layer").await?;
                let layer = layers::unpacked(blob, limits, manifest.is_image(), root, wanted).await?;
                (limits.entries, limits.unpacked) = layer.left(&limits);
                nodes = layer.onto(nodes);
            }
            // Layers come one by one, and what they have together is bounded at each.
            layers::check(&nodes, content)?;
        }
        Ok(layers::files(nodes, root)?)
    }

    /// The highest tag within a range.
    async fn tag_within(&mut self, range: &str) -> Result<String, OciError> {
        #[derive(Deserialize)]
        struct List {
            tags: Option<Vec<String>>,
        }
        let parsed = range_of(range)?;
        let (mut tags, mut next) = (Vec::new(), self.path("tags/list?n=1000"));
        for _ in 0..MAX_PAGES {
            let path = std::mem::take(&mut next);
            let ask = Ask { method: Method::GET, path, accept: None, content: None, bytes: MANIFEST_BYTES };
            let answer = self.ask(&ask).await?;
            if answer.status() != StatusCode::OK {
                return Err(match self.fault(&answer, "the request for tags", range) {
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
            let link = answer.headers().get(LINK).map(|it| it.to_str().unwrap_or_default());
            let page = link.map(|link| next_page(link, &self.host())).transpose();
            let Some(page) = page.map_err(|why| self.malformed("list of tags", why))?.flatten() else {
                let found = highest(tags.iter().map(String::as_str), &parsed).map(str::to_owned);
                let repository = self.reference.to_string();
                return found.ok_or(OciError::NoMatch { repository, range: range.to_owned(), tags: tags.len() });
            };
            page.clone_into(&mut next);
        }
        Err(OciError::TooMany { what: "pages of tags", limit: MAX_PAGES })
    }
}

fn too_large(error: OciError, what: &str, limit: u64) -> OciError {
    match error {
        OciError::Http { source: HttpError::TooLong(_), .. } => OciError::TooLarge { what: what.to_owned(), limit },
        error => error,
    }
}
