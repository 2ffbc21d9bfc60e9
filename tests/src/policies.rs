//! Records the requests that a real API server admits or denies by its policies: two webhooks that allow everything,
//! one asked before the policies and one after them. The test program `deploy` replays them to the same expressions,
//! where no API server knows policies.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use nudge_api::VersionedConfig;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::cluster::Authority;

/// Set to write what a current API server says into the file of the recorded requests.
const WRITE: &str = "NUDGE_WRITE_REQUESTS";

/// A request, the objects at that time, and the verdict of the API server's policies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// The request of the AdmissionReview.
    pub request: Value,
    /// The namespace of the object.
    pub namespace: Value,
    /// The VersionedConfigs there.
    pub params: Vec<Value>,
    /// What its user may do there: verb, resource and name, with a space between.
    pub may: Vec<String>,
    /// The policy that denied it with its message; nothing where all allowed it.
    pub denied: Option<(String, String)>,
}

impl Recorded {
    /// Returns the file of the requests that the tests of this name have recorded.
    fn file(name: &str) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/requests")).join(format!("{name}.json"))
    }

    /// Returns all recorded requests.
    pub fn all() -> Result<Vec<Self>> {
        let mut collected = Vec::new();
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/requests"))? {
            let file = file?.path();
            let text = std::fs::read_to_string(&file)?;
            collected.extend(serde_json::from_str::<Vec<Self>>(&text).with_context(|| file.display().to_string())?);
        }
        Ok(collected)
    }
}

/// Requests that have come, each with whether its end is known.
#[derive(Default)]
struct State {
    all: Vec<(Recorded, bool)>,
}

/// Records while it lives, if that is requested.
pub struct Recorder {
    name: &'static str,
    state: Option<Arc<Mutex<State>>>,
}

impl Recorder {
    /// Starts to record the requests of these resources (group and plural) under a name.
    pub async fn start(name: &'static str, admin: &Client, resources: &[(&str, &str)]) -> Result<Self> {
        if std::env::var_os(WRITE).is_none() {
            return Ok(Self { name, state: None });
        }
        let authority = Authority::new("recorder")?;
        let certified = authority.server(&["127.0.0.1"])?;
        let certificate = CertificateDer::from_pem_slice(certified.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes())?;
        let tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        tokio::spawn(serve(listener, Arc::new(tls).into(), Arc::clone(&state), admin.clone()));
        let bundle = {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(authority.certificate())
        };
        let rules: Vec<Value> = resources
            .iter()
            .map(|(group, resource)| {
                json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": ["*"], "scope": "Namespaced"})
            })
            .collect();
        let webhook = |path: &str| {
            json!({
                "name": "recorder.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": rules,
                "clientConfig": {"url": format!("https://{address}/{path}"), "caBundle": bundle}
            })
        };
        let before = json!({"metadata": {"name": "recorder"}, "webhooks": [webhook("before")]});
        let after = json!({"metadata": {"name": "recorder"}, "webhooks": [webhook("after")]});
        let post = PostParams::default();
        Api::<MutatingWebhookConfiguration>::all(admin.clone()).create(&post, &serde_json::from_value(before)?).await?;
        Api::<ValidatingWebhookConfiguration>::all(admin.clone())
            .create(&post, &serde_json::from_value(after)?)
            .await?;
        Ok(Self { name, state: Some(state) })
    }

    /// The last request was denied by this policy.
    pub fn denied(&self, policy: &str, message: &str) {
        let Some(state) = &self.state else { return };
        if let Some((last, known)) = state.lock().all.last_mut() {
            last.denied = Some((policy.to_owned(), message.to_owned()));
            *known = true;
        }
    }

    /// Writes the file.
    pub fn write(&self) -> Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        let state = state.lock();
        let mut matching: Vec<&Recorded> =
            state.all.iter().filter(|(_, known)| *known).map(|(recorded, _)| recorded).collect();
        // Waiting asks again and again.
        matching.dedup_by(|a, b| a.request == b.request && a.denied == b.denied);
        // A line each, so that a change shows.
        let lines = matching.into_iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        std::fs::write(Recorded::file(self.name), format!("[\n{}\n]\n", lines.join(",\n")))?;
        Ok(())
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, state: Arc<Mutex<State>>, admin: Client) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, state, admin) = (tls.clone(), Arc::clone(&state), admin.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(|request| answer(request, &state, &admin));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Removes what no policy looks at and is long.
fn trim(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

async fn answer(request: Request<Incoming>, state: &Mutex<State>, admin: &Client) -> Result<Response<Full<Bytes>>> {
    let before = request.uri().path() == "/before";
    let body = request.into_body().collect().await?.to_bytes();
    let mut review: Value = serde_json::from_slice(&body)?;
    let uid = review["request"]["uid"].clone();
    let mut request = review["request"].take();
    for object in ["object", "oldObject"] {
        trim(&mut request[object]);
    }
    // What the cluster's own controllers do meanwhile.
    let is_own = request["userInfo"]["username"]
        .as_str()
        .is_some_and(|user| user.starts_with("system:serviceaccount:kube-system:"));
    if is_own {
        return allowed(&uid);
    }
    if before {
        let namespace = request["namespace"].as_str().unwrap_or_default().to_owned();
        let configs =
            Api::<VersionedConfig>::namespaced(admin.clone(), &namespace).list(&ListParams::default()).await?;
        let mut params: Vec<Value> = configs.items.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        params.iter_mut().for_each(trim);
        let mut namespace = serde_json::to_value(Api::<Namespace>::all(admin.clone()).get(&namespace).await?)?;
        trim(&mut namespace);
        let may = rights(&request, admin).await?;
        state.lock().all.push((Recorded { request, namespace, params, may, denied: None }, false));
    } else if let Some((last, known)) = state.lock().all.last_mut()
        && last.request["name"] == request["name"]
        && last.request["operation"] == request["operation"]
    {
        *known = true;
    }
    allowed(&uid)
}

/// Returns the rights of the user that policies request.
async fn rights(request: &Value, admin: &Client) -> Result<Vec<String>> {
    let object = if request["object"]["metadata"].is_null() { &request["oldObject"] } else { &request["object"] };
    let names = [&request["name"], &object["metadata"]["labels"]["nudge.dev/config"], &object["spec"]["configName"]];
    let names = names.into_iter().filter_map(Value::as_str);
    let asked_rights = names.flat_map(|name| {
        [
            ("update", "configmaps", name),
            ("update", "secrets", name),
            ("override", "versionedconfigs", name),
            ("approve", "versionedconfigs", name),
        ]
    });
    let reviews = Api::<SubjectAccessReview>::all(admin.clone());
    let mut may = Vec::new();
    for (verb, resource, name) in asked_rights.chain([("delete", "configmaps", ""), ("delete", "secrets", "")]) {
        let group = if resource == "versionedconfigs" { "nudge.dev" } else { "" };
        let attributes = json!({
            "namespace": request["namespace"], "verb": verb, "group": group, "resource": resource, "name": name
        });
        let user = &request["userInfo"];
        let spec = json!({"user": user["username"], "groups": user["groups"], "resourceAttributes": attributes});
        let review = serde_json::from_value(json!({"metadata": {}, "spec": spec}))?;
        let reviewed: SubjectAccessReview = reviews.create(&PostParams::default(), &review).await?;
        if reviewed.status.is_some_and(|status| status.allowed) {
            may.push([verb, resource, name].join(" "));
        }
    }
    Ok(may)
}

fn allowed(uid: &Value) -> Result<Response<Full<Bytes>>> {
    let response = json!({"uid": uid, "allowed": true});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(serde_json::to_vec(&answer)?.into()))
}
