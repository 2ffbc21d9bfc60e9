//! `kubectl nudge export`: configs with their versions and the lasting parts of their status, in one file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use clap::Args;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, ObjectList, PartialObjectMeta};
use kube::core::{DynamicObject, Request};
use kube::{Api, Resource as _};
use nudge_api::{ConfigSource, PartKind, VersionedConfig};
use nudge_cluster::lenient_object::Lenient;
use nudge_core::derived_keys::{ContentKey, Keys, ROOT};
use nudge_core::sources::version_manager;
use nudge_protocol::labels;
use nudge_protocol::plural::{agreeing, counted};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::backup::document::{API, CONTENT_KEY, DocumentKind, ENCRYPTED, FORMAT, HEADER, Header, Place, document};
use crate::backup::export::ParsedExport;
use crate::backup::part::{parts, seals};
use crate::backup::select::{Cluster, Selected, place, select};
use crate::backup::stream::{Writer, encode};
use crate::backup::{age, export_signature};
use crate::failure::{Failure, doing};
use crate::session::Session;

/// The Secret with the content key, in the namespace of Nudge.
pub(super) const CONTENT_KEY_SECRET: &str = "nudge-content-key";
/// The maximum number of objects in one answer of the API server.
const PAGE_OBJECTS: u32 = 250;
/// The maximum number of objects of a kind.
const MAX_OBJECTS: usize = 100_000;
/// The maximum number of missing objects that the header names.
const MAX_MISSING_OBJECTS: usize = 1000;

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "An export has the configs, their versions, sources and, with -A, policies. Values of Secrets are in it only with
--secrets-to, encrypted by the program age; otherwise it has their names. Approvals are not in it.

The command leaves out what is broken or not sealed, so that the rest can be restored. Warnings name it, and the exit code is 1.

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
    /// Also export the key that Secrets are sealed with: without it, versions with Secrets can't be used after a
    /// restore
    #[arg(long, requires = "secrets_to")]
    pub(crate) content_key: bool,
    /// Sign the export with this key of SSH; the signature goes to FILE.sig, and import --verify checks it
    #[arg(long, value_name = "KEY", requires = "filename")]
    pub(crate) sign: Option<PathBuf>,
    /// The namespace of Nudge itself
    #[arg(long, default_value = "nudge-system", value_name = "NAMESPACE")]
    pub(crate) system_namespace: String,
}

pub(crate) async fn run(session: &Session, command: &Export) -> Result<(), Failure> {
    let file = command.filename.as_deref().filter(|path| path.as_os_str() != "-");
    if command.sign.is_some() && file.is_none() {
        return Err(Failure::usage("--sign needs a file (-f FILE): the signature goes to FILE.sig"));
    }
    let mut left_out = Vec::new();
    let cluster = read(session, command.all_namespaces, &mut left_out).await?;
    let mut selected = select(cluster);
    let (text, header) = export_text(session, command, &mut selected, left_out).await?;
    // An export that can't be imported is no backup.
    let parsed = ParsedExport::parse(&text)
        .map_err(|failure| Failure::new(format!("the export can't be used: {}", failure.message)))?;
    match file {
        Some(path) => write(path, &text, command.sign.as_deref())?,
        None => session.out.print(&text)?,
    }
    let (configs, objects) = (parsed.configs.len(), parsed.objects.len() - parsed.configs.len());
    session.out.note(&format!(
        "exported {} and {} of {}",
        counted(configs, "config"),
        counted(objects, "other object"),
        counted(header.namespaces.len(), "namespace")
    ));
    for omission in &header.left_out {
        session.out.note(&format!("left out: {omission}"));
    }
    if header.missing_count == 0 {
        return Ok(());
    }
    for omission in &header.missing {
        session.out.warn(&format!("left out: {omission}"));
    }
    Err(Failure::new(format!(
        "the export is written, and is not complete: {} {} left out, as the warnings say",
        counted(header.missing_count, "object"),
        agreeing(header.missing_count, "was", "were")
    )))
}

/// Returns the text of the export, and its header.
async fn export_text(
    session: &Session,
    command: &Export,
    selected: &mut Selected,
    mut left_out: Vec<String>,
) -> Result<(Zeroizing<String>, Header), Failure> {
    let with_secrets = !command.secrets_to.is_empty();
    let names = selected.configs.iter().flat_map(|(place, config)| parts(place, config));
    let names = names.filter(|sealed| sealed.part.kind == PartKind::Secret).map(|sealed| sealed.place());
    let names: BTreeSet<String> = names.map(|secret| format!("{}/{}", secret.namespace, secret.name)).collect();
    let mut hidden = Writer::default();
    let mut content_key = None;
    if command.content_key {
        let key = read_content_key(session, &command.system_namespace).await?;
        let document = json!({"apiVersion": API, "kind": CONTENT_KEY, "key": BASE64_STANDARD.encode(&*key)});
        hidden.add("the content key", &document)?;
        content_key = Some(Keys::of_root(&key).content);
    } else {
        left_out.push("the content key: it was not requested (--content-key)".to_owned());
    }
    if with_secrets {
        add_secrets(session, selected, content_key.as_ref(), &mut hidden).await?;
    } else if !names.is_empty() {
        left_out.push("the values of Secrets: there is no recipient (--secrets-to)".to_owned());
    }
    left_out.push("VersionApprovals: users approve again".to_owned());
    let namespaces = selected.documents.keys().map(|(namespace, ..)| namespace).filter(|name| !name.is_empty());
    let header = Header {
        api_version: API.to_owned(),
        kind: HEADER.to_owned(),
        format: FORMAT,
        exported_at: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string(),
        cluster: cluster_id(session).await,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        namespaces: namespaces.cloned().collect::<BTreeSet<_>>().into_iter().collect(),
        secrets: names.into_iter().collect(),
        encrypted: with_secrets,
        content_key: command.content_key,
        left_out,
        missing: selected.missing.iter().take(MAX_MISSING_OBJECTS).cloned().collect(),
        missing_count: selected.missing.len(),
    };
    let mut file = Writer::default();
    file.add("the header", &json!(header))?;
    for ((_, _, name), text) in &selected.documents {
        file.push(name, text)?;
    }
    if with_secrets {
        let armored = age::encrypt(&command.secrets_to, &hidden.text())?;
        file.add("the encrypted Secrets", &json!({"apiVersion": API, "kind": ENCRYPTED, "armored": armored}))?;
    }
    Ok((file.text(), header))
}

/// Adds the Secrets of versions to the documents that will be encrypted.
async fn add_secrets(
    session: &Session,
    selected: &mut Selected,
    content_key: Option<&ContentKey>,
    hidden: &mut Writer,
) -> Result<(), Failure> {
    let mut written = BTreeSet::new();
    for (place, config) in &selected.configs {
        let config_seals = seals(place, config, content_key).map_err(Failure::new)?;
        for sealed in parts(place, config).filter(|sealed| sealed.part.kind == PartKind::Secret) {
            let (object, title) = (sealed.place(), sealed.title());
            let secret = get(session, DocumentKind::Secret, &object.namespace, &object.name).await?;
            let Some(secret) = secret.map(|secret| document(DocumentKind::Secret, secret)) else {
                selected.missing.insert(format!("{object}: it is a part of {title}, and does not exist"));
                continue;
            };
            match (sealed.fault(&secret, config_seals.as_ref()), encode(&secret)) {
                (Some(fault), _) => drop(selected.missing.insert(format!("{object}: it {fault} of {title}"))),
                (None, Err(cause)) => drop(selected.missing.insert(format!("{object}: {cause}"))),
                // A status may name a Secret twice.
                (None, Ok(text)) if written.insert(object.clone()) => hidden.push(&object.to_string(), &text)?,
                (None, Ok(_)) => {}
            }
        }
    }
    Ok(())
}

/// Reads the objects that an export is selected from.
async fn read(session: &Session, all_namespaces: bool, left_out: &mut Vec<String>) -> Result<Cluster, Failure> {
    let namespace = (!all_namespaces).then_some(session.namespace.as_str());
    let mut cluster = Cluster::default();
    if all_namespaces {
        let policies = list(session, DocumentKind::Policy, None, "").await?.unwrap_or_default();
        cluster.objects.extend(policies.into_iter().map(|object| (DocumentKind::Policy, object)));
    } else {
        left_out.push("RolloutPolicies: they belong to the cluster (-A)".to_owned());
    }
    let configs = list(session, DocumentKind::Config, namespace, "")
        .await?
        .ok_or_else(|| Failure::new("this cluster does not know VersionedConfigs; install Nudge first"))?;
    let maps = list(session, DocumentKind::ConfigMap, namespace, labels::CONFIG).await?.unwrap_or_default();
    let maps = maps
        .into_iter()
        .map(|object| (place(DocumentKind::ConfigMap, &object), document(DocumentKind::ConfigMap, object)));
    cluster.maps.extend(maps);
    for object in &configs {
        let Place { namespace, name, .. } = place(DocumentKind::Config, object);
        let published = Place::new(DocumentKind::ConfigMap, &namespace, &name);
        // A published ConfigMap with the labels of a part is in the list already.
        if !object.data["status"]["publishedVersion"].is_string() || cluster.maps.contains_key(&published) {
            continue;
        }
        if let Some(map) = get(session, DocumentKind::ConfigMap, &namespace, &name).await? {
            cluster.maps.insert(published, document(DocumentKind::ConfigMap, map));
        }
    }
    match labelled_secrets(session, namespace).await? {
        Some(secrets) => cluster.secrets = secrets,
        None => left_out.push("Secrets of versions that are not sealed: you may not list Secrets".to_owned()),
    }
    match list(session, DocumentKind::Source, namespace, "").await? {
        Some(sources) => {
            cluster.managers = managers(session, &sources).await?;
            cluster.objects.extend(sources.into_iter().map(|object| (DocumentKind::Source, object)));
        }
        None => left_out.push("ConfigSources: this cluster has none".to_owned()),
    }
    cluster.objects.extend(configs.into_iter().map(|object| (DocumentKind::Config, object)));
    Ok(cluster)
}

/// Lists the labels of the Secrets that are labelled as parts. Returns `None` if the user may not list Secrets.
async fn labelled_secrets(
    session: &Session,
    namespace: Option<&str>,
) -> Result<Option<BTreeMap<Place, Value>>, Failure> {
    let request = Request::new(Secret::url_path(&(), namespace));
    let secrets = list_pages("secrets", labels::CONFIG, 403, async |params| {
        let request = request.list_metadata(params).map_err(kube::Error::BuildRequest)?;
        session.client.request::<ObjectList<Lenient<PartialObjectMeta<Secret>>>>(request).await
    });
    let to_labels = |Lenient(PartialObjectMeta { metadata, .. }): Lenient<PartialObjectMeta<Secret>>| {
        let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        (Place::new(DocumentKind::Secret, &namespace, &name), json!({"metadata": {"labels": metadata.labels}}))
    };
    Ok(secrets.await?.map(|secrets| secrets.into_iter().map(to_labels).collect()))
}

/// Lists all objects page by page. Returns `None` if the API server answers with the status `absent`.
async fn list_pages<T: Clone>(
    plural: &str,
    selector: &str,
    absent: u16,
    read_page: impl AsyncFn(&ListParams) -> Result<ObjectList<T>, kube::Error>,
) -> Result<Option<Vec<T>>, Failure> {
    let mut params = ListParams::default().limit(PAGE_OBJECTS).labels(selector);
    let mut objects = Vec::new();
    loop {
        let page = match read_page(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == absent => return Ok(None),
            Err(error) => return Err(Failure::of(&format!("listing {plural}"), &error)),
        };
        objects.extend(page.items);
        if objects.len() > MAX_OBJECTS {
            let message = format!("there are more than {MAX_OBJECTS} {plural}; export namespaces one by one with -n");
            return Err(Failure::new(message));
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(Some(objects));
        }
    }
}

/// Returns who holds `spec.version` of configs that have a source. Without that, every source would take the field
/// after an import, or none.
async fn managers(session: &Session, sources: &[DynamicObject]) -> Result<BTreeMap<Place, String>, Failure> {
    let sources = sources.iter().filter_map(|source| source.clone().try_parse::<ConfigSource>().ok());
    let sourced: BTreeSet<Place> = sources
        .map(|source| {
            Place::new(DocumentKind::Config, source.metadata.namespace.as_deref().unwrap_or_default(), source.config())
        })
        .collect();
    let mut managers = BTreeMap::new();
    for place in sourced {
        let configs: Api<VersionedConfig> = Api::namespaced(session.client.clone(), &place.namespace);
        let manager = match configs.get_opt(&place.name).await {
            Ok(Some(config)) => version_manager(&config.metadata).map(str::to_owned),
            Ok(None) => continue,
            // Users may write anything into managedFields, even text that can't be parsed.
            Err(kube::Error::SerdeError(_)) => Some("somebody".to_owned()),
            Err(error) => return Err(Failure::of(&format!("reading {place}"), &error)),
        };
        managers.extend(manager.map(|manager| (place, manager)));
    }
    Ok(managers)
}

/// Returns the API for a kind, of all namespaces if none is given.
pub(super) fn api(session: &Session, kind: DocumentKind, namespace: Option<&str>) -> Api<Lenient<DynamicObject>> {
    let (client, resource) = (session.client.clone(), kind.resource());
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// Lists the objects of a kind. Returns `None` if the cluster does not know the kind.
async fn list(
    session: &Session,
    kind: DocumentKind,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Option<Vec<DynamicObject>>, Failure> {
    let kind_api = api(session, kind, namespace);
    let objects =
        list_pages(&kind.resource().plural, selector, 404, async |params| kind_api.list(params).await).await?;
    Ok(objects.map(|objects| objects.into_iter().map(|Lenient(object)| object).collect()))
}

pub(super) async fn get(
    session: &Session,
    kind: DocumentKind,
    namespace: &str,
    name: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let kind_api = api(session, kind, Some(namespace).filter(|namespace| !namespace.is_empty()));
    let context = || format!("reading {} {namespace}/{name}", kind.resource().kind);
    let object = kind_api.get_opt(name).await.map_err(|error| Failure::of(&context(), &error))?;
    Ok(object.map(|Lenient(object)| object))
}

async fn read_content_key(session: &Session, namespace: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let place = format!("Secret {CONTENT_KEY_SECRET} in namespace {namespace}");
    let secrets: Api<Secret> = Api::namespaced(session.client.clone(), namespace);
    let secret = secrets.get(CONTENT_KEY_SECRET).await.map_err(doing(format!("reading {place}")))?;
    let key = secret.data.and_then(|mut data| data.remove(ROOT)).map(|key| Zeroizing::new(key.0));
    let key = key.filter(|key| !key.is_empty());
    key.ok_or_else(|| Failure::new(format!("{place} has no key yet; name Nudge's namespace with --system-namespace")))
}

/// Returns a name of the cluster that no other has, if the user may read it.
async fn cluster_id(session: &Session) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    namespaces.get_metadata_opt("kube-system").await.ok()??.metadata.uid
}

/// Replaces the file as a whole, readable by its owner alone, and the signature next to it.
fn write(path: &Path, text: &str, key: Option<&Path>) -> Result<(), Failure> {
    let failure = |error: std::io::Error| Failure::new(format!("writing {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // The file is written in a folder of its own. The signature is the only other file there.
    let home = tempfile::Builder::new().prefix(".nudge-export-").tempdir_in(folder).map_err(failure)?;
    let content = home.path().join("export");
    let mut file = tempfile::Builder::new().prefix("export").tempfile_in(home.path()).map_err(failure)?;
    file.write_all(text.as_bytes()).map_err(failure)?;
    file.as_file().sync_all().map_err(failure)?;
    file.persist(&content).map_err(|error| failure(error.error))?;
    if let Some(key) = key {
        export_signature::sign(&content, key)?;
        std::fs::rename(export_signature::signature_path(&content), export_signature::signature_path(path))
            .map_err(failure)?;
    } else if let Err(error) = std::fs::remove_file(export_signature::signature_path(path))
        && error.kind() != std::io::ErrorKind::NotFound
    {
        // The signature of an earlier export would make this one look changed.
        return Err(failure(error));
    }
    std::fs::rename(content, path).map_err(failure)
}
