//! Pushes files as an artifact. The same files always give the same digest.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};
use hyper::header::LOCATION;
use hyper::{Method, StatusCode};
use nudge_core::outbound::Address;
use nudge_core::remote::{OciReference, Pick};
use serde_json::json;
use tar::{EntryType, Header};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::archive::{Limits, normalize_path};
use crate::credential::Credential;
use crate::digest;
use crate::error::OciError;
use crate::manifest::MANIFEST_TYPE;
use crate::session::{Action, Registry, RepositoryRequest, Session, add_parameter};
use crate::url::parse_location;

/// The maximum duration of a push.
const PUSH_TIMEOUT: Duration = Duration::from_mins(2);
/// The type of pushed artifacts.
const ARTIFACT_TYPE: &str = "application/vnd.nudge.dev.content.v1";
/// The media type of the layer of a pushed artifact.
const LAYER_TYPE: &str = "application/vnd.nudge.dev.content.v1.tar+gzip";
/// The media type of an empty config, for artifacts without a config.
const EMPTY_CONFIG_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// The content of an empty config, for artifacts without a config.
const EMPTY_CONFIG: &[u8] = b"{}";

impl Registry {
    /// Pushes files by their paths, and returns the digest of the artifact. Blobs that the registry already has are not
    /// sent again.
    pub async fn push(
        &self,
        reference: &OciReference,
        tag: &str,
        files: &BTreeMap<String, Zeroizing<Vec<u8>>>,
        credential: &Credential,
        trusts_realm: &(dyn Fn(&Address) -> bool + Send + Sync),
    ) -> Result<String, OciError> {
        Pick::Tag(tag.to_owned()).check()?;
        check_files(files)?;
        let mut session = Session::new(self, reference, credential, trusts_realm, Action::Push);
        let push = async {
            let layer = Bytes::from(build_layer(files).map_err(|_| OciError::Path(String::new()))?);
            session.send_blob(Bytes::from_static(EMPTY_CONFIG)).await?;
            session.send_blob(layer.clone()).await?;
            session.send_manifest(tag, &layer).await
        };
        timeout(PUSH_TIMEOUT, push).await.map_err(|_| OciError::TooSlow(PUSH_TIMEOUT.as_secs()))?
    }
}

/// Checks that the files could be pulled again.
fn check_files(files: &BTreeMap<String, Zeroizing<Vec<u8>>>) -> Result<(), OciError> {
    let Limits { entries, content, .. } = Limits::default();
    if files.is_empty() {
        return Err(OciError::NoFiles(String::new()));
    }
    if files.len() > entries {
        return Err(OciError::TooMany { what: "files", limit: entries });
    }
    let mut bytes = 0;
    for (path, file) in files {
        if normalize_path(path.as_bytes()).ok().flatten().as_ref() != Some(path) {
            return Err(OciError::Path(path.clone()));
        }
        bytes = file.len().saturating_add(bytes);
        if bytes > content {
            return Err(OciError::TooLarge { what: format!("the content up to {path}"), limit: content as u64 });
        }
    }
    Ok(())
}

/// Builds the archive, which has only the paths and contents of the files.
fn build_layer(files: &BTreeMap<String, Zeroizing<Vec<u8>>>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, file) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(file.len() as u64);
        archive.append_data(&mut header, path, file.as_slice())?;
    }
    let archive = Zeroizing::new(archive.into_inner()?);
    // The header has no time, and always the same operating system.
    let mut compressed = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::default());
    compressed.write_all(&archive)?;
    compressed.finish()
}

impl Session<'_> {
    async fn send_blob(&mut self, content: Bytes) -> Result<(), OciError> {
        let digest = digest::sha256(&content);
        let path = self.path(&format!("blobs/{digest}"));
        if self.request(&RepositoryRequest::new(Method::HEAD, path)).await?.status().is_success() {
            return Ok(());
        }
        let request = RepositoryRequest::new(Method::POST, self.path("blobs/uploads/"));
        let answer = self.request(&request).await?;
        if answer.status() != StatusCode::ACCEPTED {
            return Err(self.push_error(&answer, "the beginning of an upload"));
        }
        let registry = self.reference.address();
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // A registry behind a proxy may not know the scheme of the request.
        let location = parse_location(location, registry).filter(|(address, _)| address.host == registry.host);
        let (_, mut path) = location.ok_or_else(|| OciError::Redirect {
            host: self.host(),
            what: "an upload",
            cause: "content is sent to the registry only",
        })?;
        add_parameter(&mut path, "digest", &digest);
        self.put(path, "application/octet-stream", content, "an upload").await
    }

    async fn send_manifest(&mut self, tag: &str, layer: &[u8]) -> Result<String, OciError> {
        let descriptor = |media_type: &str, content: &[u8]| json!({"mediaType": media_type, "digest": digest::sha256(content), "size": content.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": descriptor(EMPTY_CONFIG_TYPE, EMPTY_CONFIG),
            "layers": [descriptor(LAYER_TYPE, layer)],
        });
        let manifest = Bytes::from(manifest.to_string());
        let digest = digest::sha256(&manifest);
        self.put(self.path(&format!("manifests/{tag}")), MANIFEST_TYPE, manifest, "the manifest").await?;
        Ok(digest)
    }

    async fn put(
        &mut self,
        path: String,
        media_type: &'static str,
        content: Bytes,
        what: &'static str,
    ) -> Result<(), OciError> {
        let content = Some((media_type, content));
        let answer = self.request(&RepositoryRequest { content, ..RepositoryRequest::new(Method::PUT, path) }).await?;
        if answer.status() == StatusCode::CREATED { Ok(()) } else { Err(self.push_error(&answer, what)) }
    }
}
