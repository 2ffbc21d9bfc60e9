//! Files that are kept by Git LFS: by its batch API, on the host of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request as HttpRequest, Response};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, Bounds, HttpError, Reach, request as ask};
use nudge_protocol::hex::hex;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::http::BOUNDS;
use crate::mirror::Mirror;
use crate::pointer::{Pointer, pointer};
use crate::request::Request;
use crate::session::{MAX_OUTPUT_BYTES, Session};
use crate::tree::Kind;

/// What the API speaks.
const JSON: &str = "application/vnd.git-lfs+json";
/// Headers that are ours to set.
const OURS: [&str; 6] = ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade"];

/// How an LFS server is reached.
pub(crate) struct Server<'a> {
    pub(crate) reach: &'a Reach,
    pub(crate) authorities: &'a Authorities,
    pub(crate) authorization: Option<&'a Zeroizing<String>>,
}

/// Where the API is, and what is sent there.
struct Endpoint {
    address: Address,
    headers: HeaderMap,
}

#[derive(Deserialize)]
struct Authenticated {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, String>,
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

/// Where an object is.
#[derive(Deserialize)]
pub(crate) struct Action {
    pub(crate) href: String,
    #[serde(default)]
    pub(crate) header: BTreeMap<String, String>,
}

impl Server<'_> {
    /// Puts the contents in place of their pointers.
    pub(crate) async fn replace(
        &self,
        session: &Session<'_>,
        mirror: &Mirror<'_>,
        request: &Request<'_>,
        commit: &str,
        files: &mut BTreeMap<String, Zeroizing<Vec<u8>>>,
    ) -> Result<(), GitError> {
        let pointers: BTreeMap<String, Pointer> =
            files.iter().filter_map(|(path, content)| Some((path.clone(), pointer(content)?))).collect();
        let Some((first, _)) = pointers.first_key_value() else { return Ok(()) };
        if !request.lfs {
            return Err(GitError::LfsOff(first.clone()));
        }
        if let Some((path, _)) = pointers.iter().find(|(_, pointer)| pointer.extended) {
            return Err(GitError::LfsExtended(path.clone()));
        }
        let plain = files.iter().filter(|(path, _)| !pointers.contains_key(*path)).map(|(_, content)| content.len());
        let total = pointers.values().map(|pointer| pointer.size).chain(plain).fold(0, usize::saturating_add);
        if total > MAX_DICTIONARY_BYTES {
            return Err(GitError::TooLarge(MAX_DICTIONARY_BYTES));
        }
        let kept = mirror.folder().join("nudge-lfs");
        fs::create_dir_all(&kept).map_err(GitError::disk)?;
        let mut contents: BTreeMap<Pointer, Zeroizing<Vec<u8>>> = pointers
            .values()
            .filter_map(|pointer| {
                let content = Zeroizing::new(fs::read(kept.join(&pointer.id)).ok()?);
                is_of(&content, pointer).then(|| (pointer.clone(), content))
            })
            .collect();
        let missing: BTreeSet<&Pointer> = pointers.values().filter(|it| !contents.contains_key(*it)).collect();
        if !missing.is_empty() {
            let endpoint = self.endpoint(session, mirror, request, commit).await?;
            let mut actions = self.batch(&endpoint, &missing).await?;
            for pointer in missing {
                let named =
                    || pointers.iter().find(|(_, it)| *it == pointer).map(|(path, _)| path.clone()).unwrap_or_default();
                let action = actions.remove(&pointer.id).ok_or_else(|| GitError::LfsMissing(named()))?;
                let content = self.download(&endpoint, action, pointer, named()).await?;
                keep(&kept, pointer, &content)?;
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
        request: &Request<'_>,
        commit: &str,
    ) -> Result<Endpoint, GitError> {
        let origin = request.url.address();
        let named = match configured(session, mirror, commit).await? {
            Some(url) => Some(on_host(&url, origin, request.url.is_ssh())?),
            None => None,
        };
        if request.url.is_ssh() {
            let answer = session.ssh(&format!("git-lfs-authenticate '{}' download", request.url.path())).await?;
            let Authenticated { href, header } = serde_json::from_slice(&answer).map_err(|_| GitError::LfsSsh)?;
            return Ok(Endpoint { address: on_host(&href, origin, true)?, headers: headers(&header) });
        }
        let mut headers = HeaderMap::new();
        if let Some(authorization) = self.authorization {
            let mut value = HeaderValue::try_from(authorization.as_str()).map_err(|_| GitError::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let by_default = || {
            let path = request.url.path();
            let path = path.strip_suffix(".git").unwrap_or(path);
            Address { prefix: format!("{path}.git/info/lfs"), ..origin.clone() }
        };
        Ok(Endpoint { address: named.unwrap_or_else(by_default), headers })
    }

    /// Where each object is that the server has.
    async fn batch(
        &self,
        endpoint: &Endpoint,
        pointers: &BTreeSet<&Pointer>,
    ) -> Result<BTreeMap<String, Action>, GitError> {
        let objects: Vec<_> = pointers.iter().map(|it| serde_json::json!({"oid": it.id, "size": it.size})).collect();
        let body = serde_json::json!({
            "operation": "download", "transfers": ["basic"], "hash_algo": "sha256", "objects": objects,
        });
        let mut asked = HttpRequest::post(format!("{}/objects/batch", endpoint.address.prefix))
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, JSON)
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|_| GitError::Broken)?;
        asked.headers_mut().extend(endpoint.headers.clone());
        let answer = self.ask(&endpoint.address, asked, BOUNDS).await?;
        match answer.status().as_u16() {
            200 => {}
            // Some say so where they have none of the objects.
            404 | 410 if is_of_lfs(answer.headers()) => return Ok(BTreeMap::new()),
            404 | 410 => {
                return Err(GitError::Lfs(
                    "status 404: there is no LFS server at this URL, or it is not for you".to_owned(),
                ));
            }
            code => return Err(refused(&endpoint.address, code)),
        }
        downloads(answer.body())
    }

    async fn download(
        &self,
        endpoint: &Endpoint,
        action: Action,
        pointer: &Pointer,
        path: String,
    ) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let odd = || GitError::Lfs("a download address that is not https:// or can't be used".to_owned());
        let (address, target) = located(&action.href).ok_or_else(odd)?;
        let mut asked = HttpRequest::get(target).body(Full::default()).map_err(|_| odd())?;
        asked.headers_mut().extend(headers(&action.header));
        let same = (&address.host, address.port) == (&endpoint.address.host, endpoint.address.port);
        // Our credential is for the endpoint alone; other hosts have what the server gives for them.
        if same && let Some(own) = endpoint.headers.get(AUTHORIZATION) {
            asked.headers_mut().entry(AUTHORIZATION).or_insert_with(|| own.clone());
        }
        let bounds = Bounds { max_bytes: pointer.size, ..BOUNDS };
        let answer = match self.ask(&address, asked, bounds).await {
            Err(GitError::LfsLong) => return Err(GitError::LfsContent(path)),
            answer => answer?,
        };
        match answer.status().as_u16() {
            200 => {}
            404 | 410 => return Err(GitError::LfsMissing(path)),
            code => return Err(refused(&address, code)),
        }
        let content = Zeroizing::new(answer.body().to_vec());
        if is_of(&content, pointer) { Ok(content) } else { Err(GitError::LfsContent(path)) }
    }

    async fn ask(
        &self,
        address: &Address,
        asked: HttpRequest<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Response<Bytes>, GitError> {
        ask(address, self.reach, self.authorities, asked, bounds).await.map_err(|error| match error {
            HttpError::Connect(error) => GitError::Connect(error),
            HttpError::TooSlow(time) => GitError::TooSlow(time.as_secs()),
            HttpError::TooLong(_) => GitError::LfsLong,
            HttpError::Http(_) | HttpError::Body | HttpError::Host(_) => {
                GitError::Lfs("an incomplete answer".to_owned())
            }
        })
    }
}

/// The URL that `.lfsconfig` names.
async fn configured(session: &Session<'_>, mirror: &Mirror<'_>, commit: &str) -> Result<Option<String>, GitError> {
    let Some(entry) = mirror.entry(commit, ".lfsconfig").await?.filter(|entry| entry.kind == Kind::File) else {
        return Ok(None);
    };
    let blobs = mirror.blobs(&[entry.id.as_str()].into(), MAX_DICTIONARY_BYTES).await?;
    let text = blobs.get(&entry.id).ok_or(GitError::Broken)?;
    let arguments = ["config", "--file", "-", "--no-includes", "--get", "lfs.url"];
    let job = session.local(mirror.folder(), &arguments, text, MAX_OUTPUT_BYTES).await?;
    let url = String::from_utf8_lossy(&job.output).trim().to_owned();
    Ok((job.good && !url.is_empty()).then_some(url))
}

/// Where each object is, by its id, in an answer of the batch API.
pub(crate) fn downloads(answer: &[u8]) -> Result<BTreeMap<String, Action>, GitError> {
    let batch: Batch = serde_json::from_slice(answer)
        .map_err(|_| GitError::Lfs("something other than a list of objects".to_owned()))?;
    Ok(batch.objects.into_iter().filter_map(|it| Some((it.oid, it.actions?.download?))).collect())
}

/// The server of an object, and what it is asked for. Stores of objects sign their URLs in the query.
pub(crate) fn located(href: &str) -> Option<(Address, String)> {
    let (bare, query) = href.split_once('?').map_or((href, None), |(bare, query)| (bare, Some(query)));
    let address = Address::parse(bare).ok().filter(|it| it.tls)?;
    let mut target = if address.prefix.is_empty() { "/".to_owned() } else { address.prefix.clone() };
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    Some((address, target))
}

/// The address of a URL on the host of the repository; by SSH, on whatever port.
pub(crate) fn on_host(url: &str, origin: &Address, any_port: bool) -> Result<Address, GitError> {
    let address = Address::parse(url)
        .ok()
        .filter(|it| it.tls)
        .ok_or_else(|| GitError::LfsHost("by a URL that is not https://".to_owned()))?;
    if address.host == origin.host && (any_port || address.port == origin.port) {
        Ok(address)
    } else {
        Err(GitError::LfsHost(address.authority()))
    }
}

/// Returns whether this is an answer of an LFS server, whatever it says.
fn is_of_lfs(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON.as_bytes()))
}

/// Headers that a server gives for a request; those that can't be sent are left out.
pub(crate) fn headers(given: &BTreeMap<String, String>) -> HeaderMap {
    let usable = given.iter().take(32).filter_map(|(name, value)| {
        let name = HeaderName::try_from(name.as_str()).ok().filter(|name| !OURS.contains(&name.as_str()))?;
        let mut value = HeaderValue::try_from(value.as_str()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    usable.collect()
}

fn refused(address: &Address, code: u16) -> GitError {
    match code {
        300..=399 => GitError::Redirect(address.authority()),
        401 | 403 => GitError::Credential(address.authority()),
        code => GitError::Lfs(format!("status {code}")),
    }
}

fn is_of(content: &[u8], pointer: &Pointer) -> bool {
    content.len() == pointer.size && hex(digest(&SHA256, content).as_ref()) == pointer.id
}

/// Keeps a content for the next fetch. It is written whole: what is not is of another digest.
fn keep(folder: &Path, pointer: &Pointer, content: &[u8]) -> Result<(), GitError> {
    fs::write(folder.join(&pointer.id), content).map_err(GitError::disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_on_the_host_of_the_repository() {
        let origin = Address::parse("https://git.example.com").unwrap();
        assert_eq!(on_host("https://git.example.com/a/lfs", &origin, false).unwrap().prefix, "/a/lfs");
        for other in [
            "https://evil.example.com/a",
            "https://git.example.com.evil/a",
            "https://git.example.com:8443/a",
            "http://git.example.com/a",
            "https://git.example.com@evil.example.com/a",
            "ssh://git.example.com/a",
            "file:///etc/passwd",
        ] {
            assert!(matches!(on_host(other, &origin, false), Err(GitError::LfsHost(_))), "{other}");
        }
        assert!(on_host("https://git.example.com:8443/a", &origin, true).is_ok());
    }

    #[test]
    fn headers_of_a_server_do_not_change_whom_it_is_for() {
        let given =
            [("Host", "evil"), ("Content-Length", "9"), ("a b", "c"), ("X-A", "b\r\nc"), ("Authorization", "x")];
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let headers = headers(&given);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["authorization"]);
        assert!(headers["authorization"].is_sensitive());
    }
}
