//! Files become an artifact: the same files are the same artifact, by any hand and at any time.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};
use hyper::header::LOCATION;
use hyper::{Method, StatusCode};
use nudge_core::outbound::Address;
use nudge_core::remote::{Pick, Reference};
use serde_json::json;
use tar::{EntryType, Header};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::archive::{Limits, place};
use crate::credential::Credential;
use crate::digest;
use crate::error::OciError;
use crate::manifest::MANIFEST;
use crate::session::{Act, Ask, MAX_SMALL_ANSWER_BYTES, Registry, Session};
use crate::url::located;

/// How long all of it may take.
const PUSH_TIMEOUT: Duration = Duration::from_mins(2);
/// What the artifact is.
const ARTIFACT_TYPE: &str = "application/vnd.nudge.dev.content.v1";
/// What its layer is.
const LAYER_TYPE: &str = "application/vnd.nudge.dev.content.v1.tar+gzip";
/// The config of an artifact that has none.
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
const EMPTY: &[u8] = b"{}";

impl Registry {
    /// Pushes files, by their paths, and gives the digest of the artifact. Blobs that are there are not sent again.
    pub async fn push(
        &self,
        reference: &Reference,
        tag: &str,
        files: &BTreeMap<String, Zeroizing<Vec<u8>>>,
        credential: &Credential,
        may_ask: &(dyn Fn(&Address) -> bool + Send + Sync),
    ) -> Result<String, OciError> {
        Pick::Tag(tag.to_owned()).check()?;
        check(files)?;
        let mut session = Session::new(self, reference, credential, may_ask, Act::Push);
        let pushed = async {
            let layer = Bytes::from(layer(files).map_err(|_| OciError::Path(String::new()))?);
            session.send_blob(Bytes::from_static(EMPTY)).await?;
            session.send_blob(layer.clone()).await?;
            session.send_manifest(tag, &layer).await
        };
        timeout(PUSH_TIMEOUT, pushed).await.map_err(|_| OciError::TooSlow(PUSH_TIMEOUT.as_secs()))?
    }
}

/// What is pushed can be pulled.
fn check(files: &BTreeMap<String, Zeroizing<Vec<u8>>>) -> Result<(), OciError> {
    let Limits { entries, content, .. } = Limits::default();
    if files.is_empty() {
        return Err(OciError::NoFiles(String::new()));
    }
    if files.len() > entries {
        return Err(OciError::TooMany { what: "files", limit: entries });
    }
    let mut bytes = 0;
    for (path, file) in files {
        if place(path.as_bytes()).ok().flatten().as_ref() != Some(path) {
            return Err(OciError::Path(path.clone()));
        }
        bytes = file.len().saturating_add(bytes);
        if bytes > content {
            return Err(OciError::TooLarge { what: format!("the content up to {path}"), limit: content as u64 });
        }
    }
    Ok(())
}

/// The archive, with nothing in it but paths and contents.
fn layer(files: &BTreeMap<String, Zeroizing<Vec<u8>>>) -> io::Result<Vec<u8>> {
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
    // Without a time, and with an operating system that is always the same.
    let mut compressed = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::default());
    compressed.write_all(&archive)?;
    compressed.finish()
}

impl Session<'_> {
    async fn send_blob(&mut self, content: Bytes) -> Result<(), OciError> {
        let digest = digest::sha256(&content);
        let path = self.path(&format!("blobs/{digest}"));
        let ask = Ask { method: Method::HEAD, path, accept: None, content: None, bytes: MAX_SMALL_ANSWER_BYTES };
        if self.ask(&ask).await?.status().is_success() {
            return Ok(());
        }
        let path = self.path("blobs/uploads/");
        let ask = Ask { method: Method::POST, path, accept: None, content: None, bytes: MAX_SMALL_ANSWER_BYTES };
        let begun = self.ask(&ask).await?;
        if begun.status() != StatusCode::ACCEPTED {
            return Err(self.fault_of_push(&begun, "the beginning of an upload"));
        }
        let address = self.reference.address();
        let location = begun.headers().get(LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default();
        // Behind a proxy a registry may not know by which scheme it was asked.
        let (_, path) = located(location, address).filter(|(it, _)| it.host == address.host).ok_or_else(|| {
            OciError::Redirect { host: self.host(), what: "an upload", why: "content is sent to the registry only" }
        })?;
        let sign = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{sign}digest={digest}");
        let content = Some(("application/octet-stream", content));
        let ask = Ask { method: Method::PUT, path, accept: None, content, bytes: MAX_SMALL_ANSWER_BYTES };
        let response = self.ask(&ask).await?;
        if response.status() == StatusCode::CREATED { Ok(()) } else { Err(self.fault_of_push(&response, "an upload")) }
    }

    async fn send_manifest(&mut self, tag: &str, layer: &[u8]) -> Result<String, OciError> {
        let described = |kind: &str, content: &[u8]| json!({"mediaType": kind, "digest": digest::sha256(content), "size": content.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": ARTIFACT_TYPE,
            "config": described(EMPTY_TYPE, EMPTY),
            "layers": [described(LAYER_TYPE, layer)],
        });
        let manifest = Bytes::from(manifest.to_string());
        let digest = digest::sha256(&manifest);
        let path = self.path(&format!("manifests/{tag}"));
        let ask = Ask {
            method: Method::PUT,
            path,
            accept: None,
            content: Some((MANIFEST, manifest)),
            bytes: MAX_SMALL_ANSWER_BYTES,
        };
        let response = self.ask(&ask).await?;
        if response.status() == StatusCode::CREATED {
            Ok(digest)
        } else {
            Err(self.fault_of_push(&response, "the manifest"))
        }
    }
}
