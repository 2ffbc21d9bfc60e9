//! A secret of the KV engine of Vault or OpenBao. It is read as a service account of the source's namespace, with a
//! token that is made for this Vault alone. Nudge's own token is sent nowhere.
//!
//! Formats: <https://openbao.org/api-docs/auth/kubernetes/>, <https://openbao.org/api-docs/secret/kv/kv-v2/>.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, ConfigSourceSpec, Explanation, Origin, OriginKind, PartKind, Reason, VaultSource};
use nudge_cluster::call::call;
use nudge_core::outbound::Address;
use nudge_core::sources::{selects_key, vault_address};
use nudge_core::versions::Contents;
use nudge_outbound::{Authorities, Bounds, HttpError, Reach, authorities_from_pem, request, sensitive};
use nudge_protocol::error_chain::chain;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;
use zeroize::{Zeroize as _, Zeroizing};

use crate::budget::VAULT_MIB;
use crate::server_polls::{Remote, fetch_failure};
use crate::source_content::SourceContent;
use crate::sources::Sources;

/// The bounds of one answer: a dictionary, with escapes.
const ANSWER_BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(30), max_bytes: 16 * 1024 * 1024 };
/// The lifetime of a token of the account. The API server grants no shorter lifetime.
const TOKEN_LIFETIME_SECONDS: i64 = 600;
/// The maximum lifetime of a login, even if Vault grants a longer lease.
const MAX_LOGIN_LIFETIME: Duration = Duration::from_hours(1);
/// The maximum number of characters of a key that a message shows.
const MAX_SHOWN_CHARS: usize = 253;

/// Vault, as one source sees it.
pub(crate) struct Vault {
    sources: Arc<Sources>,
    namespace: String,
    source: String,
    /// The spec of the source, which selects the keys.
    keys: Arc<ConfigSourceSpec>,
    spec: VaultSource,
    login: Option<Login>,
}

/// The server, and how it is reached.
struct Server {
    address: Address,
    reach: Reach,
    roots: Authorities,
}

/// A token of Vault.
struct Login {
    token: Zeroizing<String>,
    until: Instant,
}

/// The reason why the source has no content. Its text repeats nothing of Vault's answer.
#[derive(Debug, thiserror::Error)]
enum VaultError {
    #[error("{0}")]
    Explained(Explanation),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(
        "Vault refuses service account {account} for role {role} (status {status}): see bound_service_account_names, \
             bound_service_account_namespaces and audience of the role, and auth.kubernetes.mount of the source"
    )]
    Login { account: String, role: String, status: u16 },
    #[error("role {0} may not read the secret, or there is no such secret (status 403)")]
    Forbidden(String),
    #[error("Vault is sealed or not ready (status {0})")]
    Sealed(u16),
    #[error("Vault answers with status {0}")]
    Status(u16),
    #[error(
        "Vault redirects (status {0}), and redirects are not followed; name the address that serves in spec.from.vault.address"
    )]
    Redirects(u16),
    #[error("Vault's answer is not that of a KV engine of version {0}; see kv.version of the source")]
    NotKv(u8),
}

#[derive(Deserialize)]
struct LoginAnswer {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: String,
    lease_duration: u64,
}

#[derive(Deserialize)]
struct VaultAnswer<D> {
    data: D,
}

#[derive(Deserialize)]
struct KvV2Data {
    data: Option<BTreeMap<String, Box<RawValue>>>,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    version: u64,
    created_time: Option<Time>,
}

/// The content of a secret; without values if the secret does not exist or its newest version was deleted.
#[derive(Default)]
struct SecretContent {
    values: Option<BTreeMap<String, Box<RawValue>>>,
    version: Option<u64>,
    created: Option<Time>,
}

impl Server {
    async fn request(&self, http_request: Request<Full<Bytes>>) -> Result<Response<Bytes>, HttpError> {
        request(&self.address, &self.reach, &self.roots, http_request, ANSWER_BOUNDS).await
    }
}

impl Vault {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, source: &ConfigSource, spec: VaultSource) -> Self {
        let keys = Arc::new(source.spec.clone());
        Self { sources, namespace, source: source.name_any(), keys, spec, login: None }
    }

    async fn read_secret(&mut self) -> Result<SecretContent, VaultError> {
        let address = vault_address(&self.spec).map_err(VaultError::Explained)?;
        let roots = match &self.spec.ca {
            None => Arc::clone(&self.sources.roots),
            Some(pem) => authorities_from_pem(pem.as_bytes())
                .ok_or_else(|| refuse_field("spec.from.vault.ca", &"it holds no certificate"))?,
        };
        let reach = self.sources.reach(&self.spec.address).await.map_err(VaultError::Explained)?;
        let server = Server { address, reach, roots };
        if let Some(login) = self.login.take().filter(|login| login.until > Instant::now()) {
            match self.get_secret(&server, &login).await {
                // Vault may have revoked the login.
                Err(VaultError::Forbidden(_)) => {}
                result => {
                    let content = result?;
                    self.login = Some(login);
                    return Ok(content);
                }
            }
        }
        let login = self.log_in(&server).await?;
        let content = self.get_secret(&server, &login).await?;
        self.login = Some(login);
        Ok(content)
    }

    async fn log_in(&self, server: &Server) -> Result<Login, VaultError> {
        let auth = &self.spec.auth.kubernetes;
        let jwt = self.request_account_token().await?;
        let body = Zeroizing::new(json!({"role": auth.role, "jwt": jwt.as_str()}).to_string());
        let login_request = Request::post(format!("{}/v1/auth/{}/login", server.address.prefix, auth.mount))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(|_| refuse_field("auth.kubernetes.mount", &"it has characters that a URL can't have"))?;
        let answer = server.request(login_request).await?;
        let status = answer.status().as_u16();
        let login = match status {
            200 => parse_body::<LoginAnswer>(answer),
            400 | 401 | 403 | 404 => {
                let account = auth.service_account.clone();
                return Err(VaultError::Login { account, role: auth.role.clone(), status });
            }
            _ => return Err(status_error(status)),
        };
        let Auth { client_token, lease_duration } = login.ok_or(VaultError::NotKv(self.spec.kv.version))?.auth;
        let lease = Duration::from_secs(lease_duration).min(MAX_LOGIN_LIFETIME);
        // A login is renewed after half of its lease.
        Ok(Login {
            token: Zeroizing::new(client_token),
            until: Instant::now().checked_add(lease.checked_div(2).unwrap_or_default()).unwrap_or_else(Instant::now),
        })
    }

    /// Requests a token of the service account, for this Vault.
    async fn request_account_token(&self) -> Result<Zeroizing<String>, VaultError> {
        let account = &self.spec.auth.kubernetes.service_account;
        let api = Api::<ServiceAccount>::namespaced(self.sources.client.clone(), &self.namespace);
        let token_request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![self.spec.address.clone()],
                expiration_seconds: Some(TOKEN_LIFETIME_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let context = || format!("requesting a token of ServiceAccount {}/{account}", self.namespace);
        match call(context, api.create_token_request(account, &PostParams::default(), &token_request)).await {
            Ok(TokenRequest { status: Some(status), .. }) => Ok(Zeroizing::new(status.token)),
            Ok(_) => Err(refuse_field("auth.kubernetes.serviceAccount", &"the API server gave no token")),
            Err(error) if error.code() == Some(403) => Err(VaultError::Explained(self.token_not_allowed())),
            Err(error) if error.code() == Some(404) => {
                let message = format!("ServiceAccount {account} does not exist; create it, or name another one");
                Err(VaultError::Explained(Reason::SourceRefused.explained(message)))
            }
            Err(error) => {
                let (namespace, source) = (&self.namespace, &self.source);
                tracing::warn!(namespace, source, error = chain(&error), "no token of a service account; retrying");
                Err(VaultError::Explained(fetch_failure(
                    format!("ServiceAccount {account}"),
                    "the API server gives no token now",
                )))
            }
        }
    }

    fn token_not_allowed(&self) -> Explanation {
        let (account, source, nudge_account) =
            (&self.spec.auth.kubernetes.service_account, &self.source, &self.sources.account);
        Reason::NotAllowed.explained(format!(
            "Nudge may not request tokens of ServiceAccount {account}; allow it: kubectl create role nudge-source-{source} --verb=create \
             --resource=serviceaccounts/token --resource-name={account}; kubectl create rolebinding nudge-source-{source} \
             --role=nudge-source-{source} --serviceaccount={nudge_account}"
        ))
    }

    async fn get_secret(&self, server: &Server, login: &Login) -> Result<SecretContent, VaultError> {
        let kv = &self.spec.kv;
        let engine = if kv.version == 1 { "" } else { "data/" };
        let token = sensitive(login.token.as_bytes()).ok_or(VaultError::NotKv(kv.version))?;
        let secret_request = Request::get(format!("{}/v1/{}/{engine}{}", server.address.prefix, kv.mount, kv.path))
            .header("x-vault-token", token)
            .body(Full::default())
            .map_err(|_| refuse_field("kv", &"mount or path has characters that a URL can't have"))?;
        let answer = server.request(secret_request).await?;
        match answer.status().as_u16() {
            200 if kv.version == 1 => {
                let VaultAnswer { data } = parse_body(answer).ok_or(VaultError::NotKv(1))?;
                Ok(SecretContent { values: Some(data), ..SecretContent::default() })
            }
            200 => {
                let KvV2Data { data, metadata } =
                    parse_body::<VaultAnswer<KvV2Data>>(answer).ok_or(VaultError::NotKv(2))?.data;
                Ok(SecretContent { values: data, version: Some(metadata.version), created: metadata.created_time })
            }
            403 => Err(VaultError::Forbidden(self.spec.auth.kubernetes.role.clone())),
            // KV version 2 also answers like this if the newest version was deleted.
            404 => Ok(SecretContent::default()),
            status => Err(status_error(status)),
        }
    }
}

impl Remote for Vault {
    const KIND: OriginKind = OriginKind::Vault;

    async fn read(&mut self, last: Option<&str>) -> Result<Option<SourceContent>, Explanation> {
        let sources = Arc::clone(&self.sources);
        let _room = sources.budget.fetches.take_many(&self.namespace, VAULT_MIB).await;
        let SecretContent { values, version, created } = self.read_secret().await.map_err(|error| match error {
            VaultError::Explained(explanation) => explanation,
            error => fetch_failure(&self.spec.address, chain(&error)),
        })?;
        let kv = &self.spec.kv;
        let Some(values) = values else {
            return Err(Reason::SourceGone.explained(format!(
                "secret {} of the engine {} of {} does not exist, or its newest version was deleted",
                kv.path, kv.mount, self.spec.address
            )));
        };
        let version = version.map(|version| version.to_string());
        if version.is_some() && version.as_deref() == last {
            return Ok(None);
        }
        let contents = contents(&self.keys, values)?;
        let origin = Origin {
            kind: OriginKind::Vault,
            url: self.spec.address.as_str().into(),
            revision: version.unwrap_or_default().into(),
            path: format!("{}/{}", kv.mount, kv.path).into(),
            time: created,
            signer: None,
        };
        Ok(Some(SourceContent { kind: PartKind::Secret, origin, contents }))
    }
}

/// Returns the values of the keys that the source selects.
fn contents(keys: &ConfigSourceSpec, values: BTreeMap<String, Box<RawValue>>) -> Result<Contents, Explanation> {
    let selected = values.into_iter().filter(|(key, _)| selects_key(keys, key));
    let parse_entry = |(key, value): (String, Box<RawValue>)| {
        let value = value_bytes(&value).ok_or_else(|| not_text(&key))?;
        Ok::<_, Explanation>((key, value))
    };
    selected.map(parse_entry).collect()
}

fn not_text(key: &str) -> Explanation {
    let key: String = key.chars().take(MAX_SHOWN_CHARS).collect();
    let cause = "is not text: a surrogate of its JSON has no other half; write the value again, or exclude the key";
    Reason::SourceRefused.explained(format!("the value of key {key:?} {cause}"))
}

/// Returns the text of a string, or any other value as the received JSON. Returns `None` for a JSON string that is not
/// text.
fn value_bytes(value: &RawValue) -> Option<Zeroizing<Vec<u8>>> {
    let json = value.get();
    let text = if json.starts_with('"') { serde_json::from_str(json).ok()? } else { json.to_owned() };
    Some(Zeroizing::new(text.into_bytes()))
}

fn refuse_field(field: &str, cause: &dyn std::fmt::Display) -> VaultError {
    VaultError::Explained(Reason::SourceRefused.explained(format!("{field}: {cause}; correct it")))
}

fn status_error(status: u16) -> VaultError {
    match status {
        300..400 => VaultError::Redirects(status),
        429 | 472 | 473 | 501 | 503 => VaultError::Sealed(status),
        _ => VaultError::Status(status),
    }
}

/// Reads the body, and wipes it.
fn parse_body<T: for<'de> Deserialize<'de>>(answer: Response<Bytes>) -> Option<T> {
    let body = answer.into_body();
    let parsed = serde_json::from_slice(&body).ok();
    if let Ok(mut body) = body.try_into_mut() {
        body.zeroize();
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Response<Bytes> {
        Response::new(Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn both_engines_are_read() {
        let two = parse_body::<VaultAnswer<KvV2Data>>(answer(
            r#"{"data": {"data": {"pin": "1\u0032\n34", "limit": {"b": [3],  "a": 1e3}}, "metadata": {"version": 7, "created_time": "2026-11-25T10:00:00.123456789Z"}}}"#,
        ));
        let KvV2Data { data, metadata } = two.unwrap().data;
        assert_eq!((metadata.version, metadata.created_time.is_some()), (7, true));
        let values: Vec<_> = data.unwrap().into_values().map(|value| value_bytes(&value).unwrap().to_vec()).collect();
        assert_eq!(values, [br#"{"b": [3],  "a": 1e3}"#.to_vec(), b"12\n34".to_vec()]);
        let deleted = r#"{"data": {"data": null, "metadata": {"version": 8, "created_time": "2026-11-25T10:00:00Z"}}}"#;
        assert!(parse_body::<VaultAnswer<KvV2Data>>(answer(deleted)).unwrap().data.data.is_none());
        let one =
            parse_body::<VaultAnswer<BTreeMap<String, Box<RawValue>>>>(answer(r#"{"data": {"pin": "1234"}}"#)).unwrap();
        assert_eq!(value_bytes(&one.data["pin"]).unwrap().as_slice(), b"1234");
        assert!(parse_body::<VaultAnswer<KvV2Data>>(answer(r#"{"data": {"pin": "1234"}}"#)).is_none());
        // All of an answer is read.
        assert!(parse_body::<VaultAnswer<KvV2Data>>(answer(&format!("{deleted} {{}}"))).is_none());
    }

    #[test]
    fn a_string_that_is_no_text_is_refused_by_its_key_where_it_is_taken() {
        let read = |exclude: &str| {
            let from = json!({"git": {"url": "https://git.example.com/shop"}});
            let keys = serde_json::from_value(json!({"from": from, "exclude": [exclude]})).unwrap();
            let body = r#"{"data": {"emoji": "\ud83d\ude00", "pin": "hunter2\ud83d"}}"#;
            let all = parse_body::<VaultAnswer<BTreeMap<String, Box<RawValue>>>>(answer(body)).unwrap();
            contents(&keys, all.data)
        };
        let refused = read("none").unwrap_err();
        assert_eq!(refused.reason, Reason::SourceRefused);
        assert!(refused.message.contains("key \"pin\"") && !refused.message.contains("hunter2"), "{refused}");
        assert_eq!(read("pin").unwrap()["emoji"].as_slice(), "😀".as_bytes());
    }

    #[test]
    fn what_a_server_says_is_not_repeated() {
        assert!(matches!(status_error(503), VaultError::Sealed(503)));
        assert!(matches!(status_error(307), VaultError::Redirects(307)));
        assert!(matches!(status_error(500), VaultError::Status(500)));
    }
}
