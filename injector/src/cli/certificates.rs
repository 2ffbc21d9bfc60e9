//! The certificates of the webhooks and the hub: kept in Secrets, or read from files.

use std::time::Duration;

use kube::Client;
use nudge_certs::{Certificates, CertificatesError, KubeSecret, Stores};

use super::options::{CertificateSource, Options};
use crate::supervise::Tasks;

/// The Secret with the authority and its private key.
const AUTHORITY: &str = "nudge-authority";
/// The Secret with the serving certificate, which servers mount.
const SERVING: &str = "nudge-serving";
/// The Secret in which the release before kept both.
const BEFORE: &str = "nudge-injector-tls";
/// How often files are read again.
const CHECK_FILES: Duration = Duration::from_secs(15);

/// Waits for the first certificates, and starts their rotation.
pub(super) async fn start(
    client: &Client,
    options: &Options,
    tasks: &mut Tasks,
) -> Result<Certificates, CertificatesError> {
    let (certificates, rotation) = match &options.certificates {
        CertificateSource::Files(files) => Certificates::from_files(files.clone(), CHECK_FILES)?,
        CertificateSource::Own { names, lifetimes } => {
            let secret = |name| KubeSecret::new(client.clone(), &options.namespace, name);
            let stores =
                Stores { authority: secret(AUTHORITY), serving: secret(SERVING), before: Some(secret(BEFORE)) };
            Certificates::keep(stores, names.clone(), *lifetimes).await?
        }
    };
    tasks.spawn("certificate rotation", rotation);
    Ok(certificates)
}
