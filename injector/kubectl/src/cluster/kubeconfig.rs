//! Reads the kubeconfig: merges its files, and finds the cluster of the context. If all files are empty, the pod's own
//! account is used.
//!
//! The library can't do this: to it, a missing file is an error, and it refuses a NO_PROXY that others accept.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hyper::Uri;
use kube::Config;
use kube::config::{Cluster, Kubeconfig, KubeconfigError, LoadDataError};
use nudge_cluster::kubeconfig::kubeconfig_fault;
use zeroize::Zeroizing;

use super::credentials;
use super::proxy::{Variables, proxy};
use crate::failure::Failure;

/// A fault of the configuration.
enum KubeconfigFault {
    /// A fault in a file, or in the merged files.
    Kubeconfig(Box<KubeconfigError>),
    Proxy(String),
}

impl From<KubeconfigError> for KubeconfigFault {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig(Box::new(error))
    }
}

/// Returns the client configuration for this context, from this file or from those that kubectl reads.
pub(crate) fn config(file: Option<&Path>, context: Option<&str>) -> Result<Config, Failure> {
    let merged = match file {
        Some(file) => Kubeconfig::read_from(file).map(|kubeconfig| Merged { kubeconfig, missing: None }),
        None => merge(&files(std::env::var_os("KUBECONFIG"), std::env::home_dir())),
    };
    let config = merged.map_err(KubeconfigFault::from).and_then(|Merged { kubeconfig, missing }| match missing {
        None => config_of_context(kubeconfig, context),
        // The pod's account counts only without a context, as with kubectl.
        Some(missing) if context.is_none() => in_pod()?.ok_or_else(|| missing.into()),
        Some(missing) => Err(missing.into()),
    });
    let mut config = config.map_err(|fault| failure(file, context, &fault))?;
    if let Some(program) = &mut config.auth_info.exec {
        credentials::set_interactive(std::io::stdin().is_terminal(), program).map_err(Failure::new)?;
    }
    Ok(config)
}

fn failure(file: Option<&Path>, context: Option<&str>, fault: &KubeconfigFault) -> Failure {
    let cause = match fault {
        KubeconfigFault::Kubeconfig(error) => kubeconfig_fault(error),
        // The kubeconfig itself is usable.
        KubeconfigFault::Proxy(cause) => return Failure::new(cause.as_str()),
    };
    Failure::new(match (file, context) {
        (Some(file), _) => format!("--kubeconfig {}: {cause}", file.display()),
        (None, Some(_)) => format!("--context: {cause}; see kubectl config get-contexts"),
        (None, None) => {
            format!("no cluster is known: {cause}; name a kubeconfig file with --kubeconfig or $KUBECONFIG")
        }
    })
}

/// Returns the files in the order of their merge.
fn files(variable: Option<OsString>, home: Option<PathBuf>) -> Vec<PathBuf> {
    match variable.filter(|paths| !paths.is_empty()) {
        Some(paths) => std::env::split_paths(&paths).filter(|file| !file.as_os_str().is_empty()).collect(),
        None => home.map(|home| home.join(".kube").join("config")).into_iter().collect(),
    }
}

/// The merged files.
struct Merged {
    kubeconfig: Kubeconfig,
    /// The error, if the files are all empty or missing.
    missing: Option<KubeconfigError>,
}

/// Merges the files: for each name, the first file that has it counts. A missing file counts as empty.
fn merge(files: &[PathBuf]) -> Result<Merged, KubeconfigError> {
    let (mut kubeconfig, mut missing) = (Kubeconfig::default(), None);
    for file in files {
        match Kubeconfig::read_from(file) {
            Ok(mut next) => {
                // Programs write an empty context for none.
                next.current_context = next.current_context.filter(|name| !name.is_empty());
                kubeconfig = kubeconfig.merge(next)?;
            }
            Err(KubeconfigError::ReadConfig(error, file)) if error.kind() == ErrorKind::NotFound => {
                missing = missing.or(Some(KubeconfigError::ReadConfig(error, file)));
            }
            Err(error) => return Err(error),
        }
    }
    let Kubeconfig { contexts, clusters, auth_infos, .. } = &kubeconfig;
    let is_empty = contexts.is_empty() && clusters.is_empty() && auth_infos.is_empty();
    let error = || missing.unwrap_or(KubeconfigError::CurrentContextNotSet);
    Ok(Merged { missing: is_empty.then(error), kubeconfig })
}

/// Returns the configuration of the pod's own account, if the command runs in a pod.
fn in_pod() -> Result<Option<Config>, KubeconfigFault> {
    let Ok(mut config) = Config::incluster() else { return Ok(None) };
    config.proxy_url = proxy(None, &environment(), &config.cluster_url).map_err(KubeconfigFault::Proxy)?;
    Ok(Some(config))
}

fn environment() -> Variables {
    Variables::read(|name| std::env::var(name).ok())
}

/// Returns the client configuration for the context.
fn config_of_context(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigFault> {
    let Kubeconfig { contexts, clusters, auth_infos, current_context, .. } = kubeconfig;
    let name = context.map(str::to_owned).or(current_context).filter(|name| !name.is_empty());
    let name = name.ok_or(KubeconfigError::CurrentContextNotSet)?;
    let context = contexts.into_iter().find(|entry| entry.name == name).and_then(|entry| entry.context);
    let context = context.ok_or(KubeconfigError::LoadContext(name))?;
    let cluster = clusters.into_iter().find(|entry| entry.name == context.cluster).and_then(|entry| entry.cluster);
    let cluster = cluster.ok_or(KubeconfigError::LoadClusterOfContext(context.cluster))?;
    // A missing user is anonymous, as with kubectl.
    let user = auth_infos.into_iter().find(|entry| Some(&entry.name) == context.user.as_ref());
    let mut user = user.and_then(|entry| entry.auth_info).unwrap_or_default();
    if let Some(program) = &mut user.exec
        && program.provide_cluster_info
    {
        program.cluster = Some((&cluster).try_into().map_err(KubeconfigFault::from)?);
    }
    let server = cluster.server.as_deref().ok_or(KubeconfigError::MissingClusterUrl)?;
    let server: Uri = server.parse().map_err(KubeconfigError::ParseClusterUrl)?;
    let proxy_url = proxy(cluster.proxy_url.as_deref(), &environment(), &server).map_err(KubeconfigFault::Proxy)?;
    let mut config = Config::new(server);
    config.proxy_url = proxy_url;
    config.default_namespace =
        context.namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
    config.root_cert = authorities(&cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name = cluster.tls_server_name;
    config.auth_info = user;
    Ok(config)
}

/// Returns the CA certificates for the server, if the kubeconfig has any.
fn authorities(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, KubeconfigError> {
    let data = cluster.certificate_authority_data.as_deref().filter(|data| !data.is_empty());
    let file = cluster.certificate_authority.as_deref().filter(|file| !file.is_empty());
    let load_error = KubeconfigError::LoadCertificateAuthority;
    let text = match (data, file) {
        (Some(data), _) => {
            BASE64_STANDARD.decode(data).map_err(|error| load_error(LoadDataError::DecodeBase64(error)))?
        }
        (None, Some(file)) => {
            std::fs::read(file).map_err(|error| load_error(LoadDataError::ReadFile(error, file.into())))?
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
            let merged = merge(&files).map_err(|error| kubeconfig_fault(&error))?;
            if let Some(missing) = merged.missing {
                return Err(kubeconfig_fault(&missing));
            }
            let config = config_of_context(merged.kubeconfig, context).map_err(|fault| match fault {
                KubeconfigFault::Kubeconfig(error) => kubeconfig_fault(&error),
                KubeconfigFault::Proxy(cause) => cause,
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
        let cause = "HTTPS_PROXY is not a URL";
        let failed = |context| failure(None, context, &KubeconfigFault::Proxy(cause.to_owned())).message;
        assert_eq!((failed(None), failed(Some("one"))), (cause.to_owned(), cause.to_owned()));
    }

    #[test]
    fn the_list_takes_the_place_of_the_file_at_home() {
        let files_of = |listed: Option<&str>| files(listed.map(Into::into), Some("/home/jane".into()));
        assert_eq!(files_of(None), [PathBuf::from("/home/jane/.kube/config")]);
        assert_eq!(files_of(Some("")), files_of(None));
        let list = std::env::join_paths(["/a", "", "/b"]).unwrap();
        assert_eq!(files(Some(list), None), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
