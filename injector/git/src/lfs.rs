//! Fetches files that are kept by Git LFS. It uses the batch API on the host of the repository.

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName};
use hyper::{Request as HttpRequest, Response};
use nudge_core::outbound::Address;
use nudge_core::remote::GitUrl;
use nudge_outbound::{Authorities, Bounds, HttpError, Reach, sensitive};
use nudge_protocol::hex::hex;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::http::BOUNDS;
use crate::mirror::Mirror;
use crate::pointer::Pointer;
use crate::request::FetchRequest;
use crate::session::{MAX_OUTPUT_BYTES, Session};
use crate::tree::TreeEntryKind;

/// The media type of the API.
const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";
/// The headers that only Nudge sets.
const RESERVED_HEADERS: [&str; 6] = ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade"];

/// An LFS server, and how it is reached.
pub(crate) struct Server<'a> {
    pub(crate) reach: &'a Reach,
    pub(crate) authorities: &'a Authorities,
    pub(crate) authorization: Option<&'a Zeroizing<String>>,
}

/// The address of the API, and the headers that are sent there.
struct Endpoint {
    address: Address,
    headers: HeaderMap,
}

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
}

#[derive(Deserialize)]
struct Actions {
    #[serde(default)]
    download: Option<Action>,
}

/// The request that downloads an object, or that reaches the API after authentication over SSH.
#[derive(Deserialize)]
pub struct Action {
    /// The URL.
    pub href: String,
    /// The headers that must be sent.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
}

impl Server<'_> {
    /// Replaces pointers by the contents that they stand for.
    pub(crate) async fn replace_pointers(
        &self,
        session: &Session<'_>,
        mirror: &Mirror<'_>,
        request: &FetchRequest<'_>,
        commit: &str,
        files: &mut BTreeMap<String, Zeroizing<Vec<u8>>>,
    ) -> Result<(), GitError> {
        let pointers: BTreeMap<String, Pointer> =
            files.iter().filter_map(|(path, content)| Some((path.clone(), Pointer::parse(content)?))).collect();
        let Some((first_path, _)) = pointers.first_key_value() else { return Ok(()) };
        if !request.lfs {
            return Err(GitError::LfsOff(first_path.clone()));
        }
        if let Some((path, _)) = pointers.iter().find(|(_, pointer)| pointer.is_extended) {
            return Err(GitError::LfsExtended(path.clone()));
        }
        let others = files.iter().filter(|(path, _)| !pointers.contains_key(*path)).map(|(_, content)| content.len());
        let total = pointers.values().map(|pointer| pointer.size).chain(others).fold(0, usize::saturating_add);
        if total > MAX_DICTIONARY_BYTES {
            return Err(GitError::TooLarge(MAX_DICTIONARY_BYTES));
        }
        let cache = mirror.folder().join("nudge-lfs");
        fs::create_dir_all(&cache).map_err(GitError::disk)?;
        let mut contents: BTreeMap<Pointer, Zeroizing<Vec<u8>>> = pointers
            .values()
            .filter_map(|pointer| {
                let content = Zeroizing::new(fs::read(cache.join(&pointer.id)).ok()?);
                has_digest(&content, pointer).then(|| (pointer.clone(), content))
            })
            .collect();
        // A pointer may stand for several files. Messages name the path of one of them.
        let missing: BTreeMap<&Pointer, &String> = pointers
            .iter()
            .rev()
            .filter(|(_, pointer)| !contents.contains_key(*pointer))
            .map(|(path, pointer)| (pointer, path))
            .collect();
        if !missing.is_empty() {
            let endpoint = self.endpoint(session, mirror, request, commit).await?;
            let mut actions = self.request_batch(&endpoint, missing.keys().copied()).await?;
            for (pointer, path) in missing {
                let action = actions.remove(&pointer.id).ok_or_else(|| GitError::LfsMissing(path.clone()))?;
                let content = self.download(&endpoint, action, pointer, path).await?;
                // A content that is not written whole has another digest at the next fetch.
                fs::write(cache.join(&pointer.id), &content).map_err(GitError::disk)?;
                contents.insert(pointer.clone(), content);
            }
        }
        for (path, pointer) in pointers {
            let content = contents.get(&pointer).ok_or(GitError::Broken)?;
            files.insert(path, content.clone());
        }
        Ok(())
    }

    async fn endpoint(
        &self,
        session: &Session<'_>,
        mirror: &Mirror<'_>,
        request: &FetchRequest<'_>,
        commit: &str,
    ) -> Result<Endpoint, GitError> {
        let origin = request.url.address();
        let configured = match configured_url(session, mirror, commit).await? {
            Some(url) => Some(address_on_host(&url, request.url)?),
            None => None,
        };
        if request.url.is_ssh() {
            let answer = session.run_ssh(&format!("git-lfs-authenticate '{}' download", request.url.path())).await?;
            let Action { href, header } = serde_json::from_slice(&answer).map_err(|_| GitError::LfsSsh)?;
            return Ok(Endpoint { address: address_on_host(&href, request.url)?, headers: usable_headers(&header) });
        }
        let mut headers = HeaderMap::new();
        if let Some(authorization) = self.authorization {
            headers.insert(AUTHORIZATION, sensitive(authorization.as_bytes()).ok_or(GitError::Token)?);
        }
        let default_address = || {
            let path = request.url.path();
            let path = path.strip_suffix(".git").unwrap_or(path);
            Address { prefix: format!("{path}.git/info/lfs"), ..origin.clone() }
        };
        Ok(Endpoint { address: configured.unwrap_or_else(default_address), headers })
    }

    /// Requests the downloads of the objects, and returns those that the server has, by the id of the object.
    async fn request_batch(
        &self,
        endpoint: &Endpoint,
        pointers: impl Iterator<Item = &Pointer>,
    ) -> Result<BTreeMap<String, Action>, GitError> {
        let objects: Vec<_> =
            pointers.map(|pointer| serde_json::json!({"oid": pointer.id, "size": pointer.size})).collect();
        let body = serde_json::json!({
            "operation": "download", "transfers": ["basic"], "hash_algo": "sha256", "objects": objects,
        });
        let mut batch_request = HttpRequest::post(format!("{}/objects/batch", endpoint.address.prefix))
            .header(ACCEPT, MEDIA_TYPE)
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|_| GitError::Broken)?;
        batch_request.headers_mut().extend(endpoint.headers.clone());
        let answer = self.send(&endpoint.address, batch_request, BOUNDS).await?;
        match answer.status().as_u16() {
            200 => parse_downloads(answer.body()),
            // Some servers answer like this if they have none of the objects.
            404 | 410 if is_of_lfs(answer.headers()) => Ok(BTreeMap::new()),
            404 | 410 => {
                Err(GitError::Lfs("status 404: there is no LFS server at this URL, or it is not for you".to_owned()))
            }
            code => Err(status_error(&endpoint.address, code)),
        }
    }

    async fn download(
        &self,
        endpoint: &Endpoint,
        action: Action,
        pointer: &Pointer,
        path: &str,
    ) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let address_error = || GitError::Lfs("a download address that is not https:// or can't be used".to_owned());
        let (address, target) = parse_href(&action.href).ok_or_else(address_error)?;
        let mut download_request = HttpRequest::get(target).body(Full::default()).map_err(|_| address_error())?;
        download_request.headers_mut().extend(usable_headers(&action.header));
        let is_endpoint = (&address.host, address.port) == (&endpoint.address.host, endpoint.address.port);
        // The source's credential is only for the endpoint; the server gives headers for other hosts.
        if is_endpoint && let Some(authorization) = endpoint.headers.get(AUTHORIZATION) {
            download_request.headers_mut().entry(AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        let bounds = Bounds { max_bytes: pointer.size, ..BOUNDS };
        let answer = match self.send(&address, download_request, bounds).await {
            Err(GitError::LfsLong) => return Err(GitError::LfsContent(path.to_owned())),
            answer => answer?,
        };
        match answer.status().as_u16() {
            200 if has_digest(answer.body(), pointer) => Ok(Zeroizing::new(answer.body().to_vec())),
            200 => Err(GitError::LfsContent(path.to_owned())),
            404 | 410 => Err(GitError::LfsMissing(path.to_owned())),
            code => Err(status_error(&address, code)),
        }
    }

    async fn send(
        &self,
        address: &Address,
        request: HttpRequest<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Response<Bytes>, GitError> {
        let answer = nudge_outbound::request(address, self.reach, self.authorities, request, bounds).await;
        answer.map_err(|error| match error {
            HttpError::Connect(error) => GitError::Connect(error),
            HttpError::TooSlow(time) => GitError::TooSlow(time.as_secs()),
            HttpError::TooLong(_) => GitError::LfsLong,
            HttpError::Http(_) | HttpError::Body | HttpError::Host(_) => {
                GitError::Lfs("an incomplete answer".to_owned())
            }
        })
    }
}

/// Returns the URL that `.lfsconfig` names.
async fn configured_url(session: &Session<'_>, mirror: &Mirror<'_>, commit: &str) -> Result<Option<String>, GitError> {
    let Some(entry) = mirror.entry(commit, ".lfsconfig").await?.filter(|entry| entry.kind == TreeEntryKind::File)
    else {
        return Ok(None);
    };
    let blobs = mirror.blobs(&[entry.id.as_str()].into(), MAX_DICTIONARY_BYTES).await?;
    let text = blobs.get(&entry.id).ok_or(GitError::Broken)?;
    let arguments = ["config", "--file", "-", "--no-includes", "--get", "lfs.url"];
    let result = session.run_local(mirror.folder(), &arguments, text, MAX_OUTPUT_BYTES).await?;
    let url = String::from_utf8_lossy(&result.output).trim().to_owned();
    Ok((result.succeeded && !url.is_empty()).then_some(url))
}

/// Parses an answer of the batch API into the downloads by the ids of their objects.
pub fn parse_downloads(answer: &[u8]) -> Result<BTreeMap<String, Action>, GitError> {
    let batch: Batch = serde_json::from_slice(answer)
        .map_err(|_| GitError::Lfs("something other than a list of objects".to_owned()))?;
    Ok(batch.objects.into_iter().filter_map(|object| Some((object.oid, object.actions?.download?))).collect())
}

/// Parses the URL of an object into the server's address, and the path with the query. Object stores sign their URLs in
/// the query.
pub fn parse_href(href: &str) -> Option<(Address, String)> {
    let (base, query) = href.split_at(href.find('?').unwrap_or(href.len()));
    let address = Address::parse(base).ok().filter(|address| address.tls)?;
    let path = if address.prefix.is_empty() { "/" } else { &address.prefix };
    let target = format!("{path}{query}");
    Some((address, target))
}

/// Parses a URL that must have the same host as the repository, and the same port unless the repository is reached by
/// SSH.
pub fn address_on_host(url: &str, repository: &GitUrl) -> Result<Address, GitError> {
    let address = Address::parse(url).ok().filter(|address| address.tls);
    let address = address.ok_or_else(|| GitError::LfsHost("by a URL that is not https://".to_owned()))?;
    let origin = repository.address();
    if address.host == origin.host && (repository.is_ssh() || address.port == origin.port) {
        Ok(address)
    } else {
        Err(GitError::LfsHost(address.authority()))
    }
}

/// Returns whether this is the answer of an LFS server.
fn is_of_lfs(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(MEDIA_TYPE.as_bytes()))
}

/// Returns the headers that a server gives for a request, without those that can't be sent.
pub fn usable_headers(headers: &BTreeMap<String, String>) -> HeaderMap {
    let usable = headers.iter().take(32).filter_map(|(name, value)| {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        let name = (!RESERVED_HEADERS.contains(&name.as_str())).then_some(name)?;
        Some((name, sensitive(value.as_bytes())?))
    });
    usable.collect()
}

fn status_error(address: &Address, code: u16) -> GitError {
    match code {
        300..=399 => GitError::Redirect(address.authority()),
        401 | 403 => GitError::Credential(address.authority()),
        code => GitError::Lfs(format!("status {code}")),
    }
}

fn has_digest(content: &[u8], pointer: &Pointer) -> bool {
    content.len() == pointer.size && hex(digest(&SHA256, content).as_ref()) == pointer.id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_on_the_host_of_the_repository() {
        let repository = GitUrl::parse("https://git.example.com/a").unwrap();
        assert_eq!(address_on_host("https://git.example.com/a/lfs", &repository).unwrap().prefix, "/a/lfs");
        for other in [
            "https://evil.example.com/a",
            "https://git.example.com.evil/a",
            "https://git.example.com:8443/a",
            "http://git.example.com/a",
            "https://git.example.com@evil.example.com/a",
            "ssh://git.example.com/a",
            "file:///etc/passwd",
        ] {
            assert!(matches!(address_on_host(other, &repository), Err(GitError::LfsHost(_))), "{other}");
        }
        let repository = GitUrl::parse("ssh://git@git.example.com/a").unwrap();
        assert!(address_on_host("https://git.example.com:8443/a", &repository).is_ok());
    }

    #[test]
    fn headers_of_a_server_do_not_change_whom_it_is_for() {
        let given =
            [("Host", "evil"), ("Content-Length", "9"), ("a b", "c"), ("X-A", "b\r\nc"), ("Authorization", "x")];
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let headers = usable_headers(&given);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["authorization"]);
        assert!(headers["authorization"].is_sensitive());
    }
}
