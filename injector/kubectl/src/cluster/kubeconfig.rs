//! The kubeconfig: the files that are merged, and what the context says of a cluster. Where no file says anything, the
//! pod's own account.
//!
//! The library can't do this: it takes a missing file for a fault, and refuses a NO_PROXY that others take.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hyper::Uri;
use kube::Config;
use kube::config::{Cluster, Kubeconfig, KubeconfigError, LoadDataError};
use nudge_cluster::kubeconfig::unusable;
use zeroize::Zeroizing;

use super::credentials;
use super::proxy::{Variables, proxy};
use crate::failure::Failure;

/// Where a fault is.
enum Fault {
    /// In a file, or in what the files say together.
    Kubeconfig(Box<KubeconfigError>),
    /// In what is on the way to the cluster.
    Way(String),
}

impl From<KubeconfigError> for Fault {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig(Box::new(error))
    }
}

/// Finds the cluster of this context, in this file or in those that kubectl reads.
pub(crate) fn config(file: Option<&Path>, context: Option<&str>) -> Result<Config, Failure> {
    let read = match file {
        Some(file) => Kubeconfig::read_from(file).map(|kubeconfig| Merged { kubeconfig, missing: None }),
        None => merged(&files(std::env::var_os("KUBECONFIG"), std::env::home_dir())),
    };
    let found = read.map_err(Fault::from).and_then(|Merged { kubeconfig, missing }| match missing {
        None => config_of_context(kubeconfig, context),
        // As kubectl, only where there is nothing to choose from.
        Some(missing) if context.is_none() => in_pod()?.ok_or_else(|| missing.into()),
        Some(missing) => Err(missing.into()),
    });
    let mut config = found.map_err(|fault| failure(file, context, &fault))?;
    if let Some(program) = &mut config.auth_info.exec {
        credentials::at(std::io::stdin().is_terminal(), program).map_err(Failure::new)?;
    }
    Ok(config)
}

fn failure(file: Option<&Path>, context: Option<&str>, fault: &Fault) -> Failure {
    let why = match fault {
        Fault::Kubeconfig(error) => unusable(error),
        // The cluster is known.
        Fault::Way(why) => return Failure::new(why.as_str()),
    };
    Failure::new(match (file, context) {
        (Some(file), _) => format!("--kubeconfig {}: {why}", file.display()),
        (None, Some(_)) => format!("--context: {why}; see kubectl config get-contexts"),
        (None, None) => format!("no cluster is known: {why}; name a kubeconfig file with --kubeconfig or $KUBECONFIG"),
    })
}

/// The files, of which the first that says something counts.
fn files(listed: Option<OsString>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let listed = listed.filter(|listed| !listed.is_empty());
    match listed {
        Some(listed) => std::env::split_paths(&listed).filter(|file| !file.as_os_str().is_empty()).collect(),
        None => home.map(|home| home.join(".kube").join("config")).into_iter().collect(),
    }
}

/// What the files say together.
struct Merged {
    kubeconfig: Kubeconfig,
    /// Why they say nothing, if they do not.
    missing: Option<KubeconfigError>,
}

/// Merges the files: what the first one says of a name counts. A file that is not there says nothing.
fn merged(files: &[PathBuf]) -> Result<Merged, KubeconfigError> {
    let (mut kubeconfig, mut missing) = (Kubeconfig::default(), None);
    for file in files {
        match Kubeconfig::read_from(file) {
            Ok(mut read) => {
                // Programs write an empty one where there is none.
                read.current_context = read.current_context.filter(|name| !name.is_empty());
                kubeconfig = kubeconfig.merge(read)?;
            }
            Err(KubeconfigError::ReadConfig(error, file)) if error.kind() == ErrorKind::NotFound => {
                missing = missing.or(Some(KubeconfigError::ReadConfig(error, file)));
            }
            Err(error) => return Err(error),
        }
    }
    let Kubeconfig { contexts, clusters, auth_infos, .. } = &kubeconfig;
    let says_nothing = contexts.is_empty() && clusters.is_empty() && auth_infos.is_empty();
    let nothing = || missing.unwrap_or(KubeconfigError::CurrentContextNotSet);
    Ok(Merged { missing: says_nothing.then(nothing), kubeconfig })
}

/// The cluster of the pod that this runs in, if it does.
fn in_pod() -> Result<Option<Config>, Fault> {
    let Ok(mut config) = Config::incluster() else { return Ok(None) };
    config.proxy_url = proxy(None, &environment(), &config.cluster_url).map_err(Fault::Way)?;
    Ok(Some(config))
}

fn environment() -> Variables {
    Variables::read(|name| std::env::var(name).ok())
}

/// The cluster that the context names.
fn config_of_context(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, Fault> {
    let Kubeconfig { contexts, clusters, auth_infos, current_context, .. } = kubeconfig;
    let name = context.map(str::to_owned).or(current_context).filter(|name| !name.is_empty());
    let name = name.ok_or(KubeconfigError::CurrentContextNotSet)?;
    let context = contexts.into_iter().find(|one| one.name == name).and_then(|one| one.context);
    let context = context.ok_or(KubeconfigError::LoadContext(name))?;
    let cluster = clusters.into_iter().find(|one| one.name == context.cluster).and_then(|one| one.cluster);
    let cluster = cluster.ok_or(KubeconfigError::LoadClusterOfContext(context.cluster))?;
    // A user that is not there is nobody, as with kubectl.
    let user = auth_infos.into_iter().find(|one| Some(&one.name) == context.user.as_ref());
    let mut user = user.and_then(|one| one.auth_info).unwrap_or_default();
    if let Some(program) = &mut user.exec
        && program.provide_cluster_info
    {
        program.cluster = Some((&cluster).try_into().map_err(Fault::from)?);
    }
    let server = cluster.server.as_deref().ok_or(KubeconfigError::MissingClusterUrl)?;
    let server: Uri = server.parse().map_err(KubeconfigError::ParseClusterUrl)?;
    let proxy = proxy(cluster.proxy_url.as_deref(), &environment(), &server).map_err(Fault::Way)?;
    let mut config = Config::new(server);
    config.proxy_url = proxy;
    config.default_namespace =
        context.namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
    config.root_cert = authorities(&cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name = cluster.tls_server_name;
    config.auth_info = user;
    Ok(config)
}

/// The certificates that the server is checked by, if the kubeconfig has any.
fn authorities(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, KubeconfigError> {
    let data = cluster.certificate_authority_data.as_deref().filter(|data| !data.is_empty());
    let file = cluster.certificate_authority.as_deref().filter(|file| !file.is_empty());
    let failed = KubeconfigError::LoadCertificateAuthority;
    let text = match (data, file) {
        (Some(data), _) => BASE64_STANDARD.decode(data).map_err(|error| failed(LoadDataError::DecodeBase64(error)))?,
        (None, Some(file)) => {
            std::fs::read(file).map_err(|error| failed(LoadDataError::ReadFile(error, file.into())))?
        }
        (None, None) => return Ok(None),
    };
    let blocks = pem::parse_many(Zeroizing::new(text).as_slice()).map_err(KubeconfigError::ParseCertificates)?;
    Ok(Some(blocks.into_iter().filter(|block| block.tag() == "CERTIFICATE").map(pem::Pem::into_contents).collect()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(server: &str, context: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: '{context}'\n\
             clusters: [{{name: {server}, cluster: {{server: 'https://{server}'}}}}]\n\
             contexts: [{{name: {server}, context: {{cluster: {server}, user: nobody, namespace: shop}}}}]\n"
        )
    }

    #[test]
    fn files_are_merged_and_those_that_are_missing_say_nothing() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("one"), file("one", "")).unwrap();
        fs::write(at("two"), file("two", "two")).unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("odd"), "[").unwrap();
        let server = |names: &[&str], context: Option<&str>| {
            let files: Vec<PathBuf> = names.iter().map(|name| at(name)).collect();
            let merged = merged(&files).map_err(|error| unusable(&error))?;
            if let Some(missing) = merged.missing {
                return Err(unusable(&missing));
            }
            let config = config_of_context(merged.kubeconfig, context).map_err(|fault| match fault {
                Fault::Kubeconfig(error) => unusable(&error),
                Fault::Way(why) => why,
            })?;
            Ok(format!("{} {}", config.cluster_url, config.default_namespace))
        };
        let (one, two) = (Ok("https://one/ shop".to_owned()), Ok("https://two/ shop".to_owned()));
        assert_eq!(server(&["gone", "one", "two"], None), two, "the first context that is named");
        assert_eq!(server(&["two", "one", "gone"], Some("one")), one);
        assert_eq!(server(&["empty", "two"], None), two);
        let gone = server(&["gone", "away"], None).unwrap_err();
        assert!(gone.ends_with("gone: No such file or directory"), "{gone}");
        assert!(server(&["one", "odd"], None).unwrap_err().starts_with("it is not a kubeconfig"));
        assert!(server(&["one"], None).unwrap_err().starts_with("it names no current context"));
        assert_eq!(server(&["one"], Some("three")), Err("there is no context three".to_owned()));
    }

    #[test]
    fn a_proxy_that_can_not_be_used_is_no_missing_cluster() {
        let why = "HTTPS_PROXY is not a URL";
        let failed = |context| failure(None, context, &Fault::Way(why.to_owned())).message;
        assert_eq!((failed(None), failed(Some("one"))), (why.to_owned(), why.to_owned()));
    }

    #[test]
    fn the_list_takes_the_place_of_the_file_at_home() {
        let of = |listed: Option<&str>| files(listed.map(Into::into), Some("/home/jane".into()));
        assert_eq!(of(None), [PathBuf::from("/home/jane/.kube/config")]);
        assert_eq!(of(Some("")), of(None));
        let list = std::env::join_paths(["/a", "", "/b"]).unwrap();
        assert_eq!(files(Some(list), None), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
