//! The certificates of the webhooks and the hub, from a Secret or from files.

use std::time::Duration;

use kube::Client;
use nudge_certs::{Certificates, CertificatesError, KubeSecret};

use super::options::{CertificateSource, Options};
use crate::supervise::Tasks;

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
        CertificateSource::Secret { name, names, lifetimes } => {
            let store = KubeSecret::new(client.clone(), &options.namespace, name);
            Certificates::keep(store, names.clone(), *lifetimes).await?
        }
    };
    tasks.spawn("certificate rotation", rotation);
    Ok(certificates)
}
