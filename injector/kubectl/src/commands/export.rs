//! `kubectl nudge export`: configs with their versions and what their status must keep, in one file.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use clap::Args;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;
use nudge_api::{ConfigSource, PartKind, VersionedConfig};
use nudge_cluster::lenient::Lenient;
use nudge_core::sources::holder;
use nudge_protocol::labels;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::backup::age;
use crate::backup::document::{API, CONTENT_KEY, ENCRYPTED, FORMAT, HEADER, HELD_BY, Header, Kind, document, label};
use crate::backup::export::Export as Parsed;
use crate::backup::status::kept;
use crate::backup::stream::Writer;
use crate::failure::{Failure, doing};
use crate::session::Session;

/// The Secret with the content key, in the namespace of Nudge.
pub(super) const CONTENT_KEY_SECRET: &str = "nudge-content-key";
/// Its key.
pub(super) const KEY: &str = "key";
/// Objects in one answer of the API server.
const PAGE: u32 = 250;
/// Most objects of a kind.
const MOST: usize = 100_000;

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "An export has the configs, their versions, sources and, with -A, policies. Values of Secrets are in it only with
--secrets-to, encrypted by the program age; otherwise it has their names. Approvals are not in it.

Examples:
  kubectl nudge export -A -f nudge.yaml
  kubectl nudge export -A -f nudge.yaml --secrets-to age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p --content-key"
)]
pub(crate) struct Export {
    /// All namespaces, and the policies of the cluster
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Write to this file, which nobody else may read; - is standard output, which is the default
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,
    /// Encrypt the Secrets of versions for this recipient of age; can be repeated
    #[arg(long, value_name = "RECIPIENT", value_parser = age::recipient)]
    pub(crate) secrets_to: Vec<String>,
    /// Also export the key that Secrets are sealed with: without it, versions with Secrets can't be used after a restore
    #[arg(long, requires = "secrets_to")]
    pub(crate) content_key: bool,
    /// The namespace of Nudge itself
    #[arg(long, default_value = "nudge-system", value_name = "NAMESPACE")]
    pub(crate) system_namespace: String,
}

/// What was read.
#[derive(Default)]
struct Collected {
    /// In the order of the file.
    documents: Vec<Value>,
    namespaces: BTreeSet<String>,
    /// Secrets of versions, by namespace and name.
    secrets: BTreeSet<(String, String)>,
    left_out: Vec<String>,
}

pub(crate) async fn run(session: &Session, command: &Export) -> Result<(), Failure> {
    let collected = collect(session, command.all_namespaces).await?;
    let mut hidden = Writer::default();
    let mut left_out = collected.left_out;
    if command.secrets_to.is_empty() {
        if !collected.secrets.is_empty() {
            left_out.push("the values of Secrets: there is no recipient (--secrets-to)".to_owned());
        }
    } else {
        for (namespace, name) in &collected.secrets {
            if let Some(secret) = secret(session, namespace, name).await? {
                hidden.add(&format!("Secret {namespace}/{name}"), &secret)?;
            } else {
                left_out.push(format!("Secret {namespace}/{name}: it does not exist"));
            }
        }
    }
    if command.content_key {
        hidden.add("the content key", &content_key(session, &command.system_namespace).await?)?;
    } else {
        left_out.push("the content key: it was not asked for (--content-key)".to_owned());
    }
    left_out.push("VersionApprovals: users approve again".to_owned());
    let header = Header {
        api_version: API.to_owned(),
        kind: HEADER.to_owned(),
        format: FORMAT,
        exported_at: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string(),
        cluster: cluster(session).await,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        namespaces: collected.namespaces.iter().cloned().collect(),
        secrets: collected.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect(),
        encrypted: !command.secrets_to.is_empty(),
        content_key: command.content_key,
        left_out,
    };
    let mut file = Writer::default();
    file.add("the header", &json!(header))?;
    for document in &collected.documents {
        file.add(document["metadata"]["name"].as_str().unwrap_or_default(), document)?;
    }
    if !command.secrets_to.is_empty() {
        let armored = age::encrypt(&command.secrets_to, &hidden.text())?;
        file.add("the encrypted Secrets", &json!({"apiVersion": API, "kind": ENCRYPTED, "armored": armored}))?;
    }
    let file = file.text();
    // What can't be imported is no backup.
    let read = Parsed::parse(&file)
        .map_err(|failure| Failure::new(format!("the export can't be used: {}", failure.message)))?;
    match command.filename.as_deref().filter(|path| path.as_os_str() != "-") {
        Some(path) => write(path, &file)?,
        None => session.out.print(&file)?,
    }
    let (configs, objects) = (read.configs.len(), read.objects.len() - read.configs.len());
    session.out.note(&format!(
        "exported {} and {} of {}",
        counted(configs, "config"),
        counted(objects, "other object"),
        counted(header.namespaces.len(), "namespace")
    ));
    for what in &header.left_out {
        session.out.note(&format!("left out: {what}"));
    }
    Ok(())
}

async fn collect(session: &Session, all: bool) -> Result<Collected, Failure> {
    let mut collected = Collected::default();
    let namespace = (!all).then_some(session.namespace.as_str());
    if all {
        let policies = list(session, Kind::Policy, None, "").await?.unwrap_or_default();
        collected.documents.extend(policies.into_iter().map(|object| document(Kind::Policy, object)));
    } else {
        collected.left_out.push("RolloutPolicies: they belong to the cluster (-A)".to_owned());
    }
    let configs = list(session, Kind::Config, namespace, "")
        .await?
        .ok_or_else(|| Failure::new("this cluster does not know VersionedConfigs; install Nudge first"))?;
    let (mut documents, mut published) = (Vec::new(), Vec::new());
    for object in configs {
        let status = object.data["status"].clone();
        let (namespace, name) = place(&object);
        let mut exported = document(Kind::Config, object);
        if !status.is_null() {
            let read = |error: serde_json::Error| {
                Failure::new(format!("config {namespace}/{name}: its status can't be read: {error}"))
            };
            let status = kept(serde_json::from_value(status).map_err(read)?);
            if status.published_version.is_some() {
                published.push((namespace.clone(), name.clone()));
            }
            exported["status"] = serde_json::to_value(status).map_err(read)?;
        }
        let config: VersionedConfig = serde_json::from_value(exported.clone())
            .map_err(|error| Failure::new(format!("config {namespace}/{name} can't be read: {error}")))?;
        let parts = Parsed::parts(&config).filter(|(_, _, part)| part.kind == PartKind::Secret);
        collected.secrets.extend(parts.map(|(_, _, part)| (namespace.clone(), part.name.clone())));
        collected.namespaces.insert(namespace);
        documents.push(exported);
    }
    let maps = list(session, Kind::ConfigMap, namespace, labels::CONFIG).await?.unwrap_or_default();
    documents.extend(maps.into_iter().map(|object| document(Kind::ConfigMap, object)));
    for (namespace, name) in published {
        if let Some(map) = get(session, Kind::ConfigMap, &namespace, &name).await? {
            let map = document(Kind::ConfigMap, map);
            // One with these labels is in the list.
            if label(&map, labels::CONFIG).is_none() {
                documents.push(map);
            }
        }
    }
    match list(session, Kind::Source, namespace, "").await? {
        Some(sources) => documents.extend(sources.into_iter().map(|object| document(Kind::Source, object))),
        None => collected.left_out.push("ConfigSources: this cluster has none".to_owned()),
    }
    note_holders(session, &mut documents).await?;
    let meta = |document: &Value, field: &str| document["metadata"][field].as_str().unwrap_or_default().to_owned();
    // Configs before their versions, sources last, so that two exports can be compared.
    documents.sort_by_cached_key(|document| (meta(document, "namespace"), Kind::of(document), meta(document, "name")));
    collected.namespaces.extend(documents.iter().map(|document| meta(document, "namespace")));
    collected.documents.extend(documents);
    Ok(collected)
}

/// Notes who holds `spec.version` of configs that have a source. Without that, every source would take it after an import, or none.
async fn note_holders(session: &Session, documents: &mut [Value]) -> Result<(), Failure> {
    let sources = documents.iter().filter(|document| Kind::of(document) == Some(Kind::Source));
    let read = sources.filter_map(|document| serde_json::from_value::<ConfigSource>(document.clone()).ok());
    let sourced: BTreeSet<(String, String)> = read
        .map(|source| (source.metadata.namespace.clone().unwrap_or_default(), source.config().to_owned()))
        .collect();
    for (namespace, name) in sourced {
        let configs: Api<VersionedConfig> = Api::namespaced(session.client.clone(), &namespace);
        let held = match configs.get_opt(&name).await {
            Ok(Some(config)) => holder(&config).map(str::to_owned),
            Ok(None) => continue,
            // Users may write anything into managedFields.
            Err(kube::Error::SerdeError(_)) => Some("somebody".to_owned()),
            Err(error) => return Err(Failure::of(&format!("reading config {namespace}/{name}"), &error)),
        };
        let is = |document: &&mut Value| {
            let meta = &document["metadata"];
            Kind::of(document) == Some(Kind::Config) && meta["namespace"] == namespace && meta["name"] == name
        };
        if let Some((document, holder)) = documents.iter_mut().find(is).zip(held) {
            document[HELD_BY] = holder.into();
        }
    }
    Ok(())
}

fn place(object: &DynamicObject) -> (String, String) {
    let meta = &object.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The objects of a kind. Without a namespace, of all. `None` where the cluster does not know the kind.
pub(super) fn api(session: &Session, kind: Kind, namespace: Option<&str>) -> Api<Lenient<DynamicObject>> {
    let (client, resource) = (session.client.clone(), kind.resource());
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

async fn list(
    session: &Session,
    kind: Kind,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Option<Vec<DynamicObject>>, Failure> {
    let (api, plural) = (api(session, kind, namespace), kind.resource().plural);
    let mut params = ListParams::default().limit(PAGE).labels(selector);
    let mut all = Vec::new();
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            // A component that is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(Failure::of(&format!("listing {plural}"), &error)),
        };
        all.extend(page.items.into_iter().map(|Lenient(object)| object));
        if all.len() > MOST {
            return Err(Failure::new(format!(
                "there are more than {MOST} {plural}; export namespaces one by one with -n"
            )));
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(Some(all));
        }
    }
}

pub(super) async fn get(
    session: &Session,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let api = api(session, kind, Some(namespace).filter(|namespace| !namespace.is_empty()));
    let what = || format!("reading {} {namespace}/{name}", kind.resource().kind);
    let found = api.get_opt(name).await.map_err(|error| Failure::of(&what(), &error))?;
    Ok(found.map(|Lenient(object)| object))
}

async fn secret(session: &Session, namespace: &str, name: &str) -> Result<Option<Value>, Failure> {
    Ok(get(session, Kind::Secret, namespace, name).await?.map(|object| document(Kind::Secret, object)))
}

async fn content_key(session: &Session, namespace: &str) -> Result<Value, Failure> {
    let what = format!("Secret {CONTENT_KEY_SECRET} in namespace {namespace}");
    let secrets: Api<Secret> = Api::namespaced(session.client.clone(), namespace);
    let secret = secrets.get(CONTENT_KEY_SECRET).await.map_err(doing(format!("reading {what}")))?;
    let key = secret.data.and_then(|mut data| data.remove(KEY)).map(|key| Zeroizing::new(key.0));
    let key = key.filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| {
        Failure::new(format!("{what} has no key yet; name Nudge's namespace with --system-namespace"))
    })?;
    Ok(json!({"apiVersion": API, "kind": CONTENT_KEY, "key": BASE64_STANDARD.encode(&*key)}))
}

/// So many things.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A name of the cluster that no other has, if the user may know.
async fn cluster(session: &Session) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    namespaces.get_metadata_opt("kube-system").await.ok()??.metadata.uid
}

/// Replaces the file as a whole, readable by its owner alone.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("writing {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
