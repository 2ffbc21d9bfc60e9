//! The certificates of the webhooks and the hub. The role certs keeps them in a Secret, and the other roles read them
//! from files.

use std::path::Path;
use std::time::Duration;

use kube::Client;
use nudge_certs::{
    CertificateFiles, Certificates, CertificatesError, FilesError, KubeSecret, PUBLISH_CHECK_INTERVAL, Rotation,
    Stores, publish_to_webhooks,
};
use nudge_protocol::error_chain::chain;

use super::options::{CertificateSource, Options};
use super::waiting::Waiting;
use crate::task_supervisor::Tasks;

/// The Secret with the authority and its private key.
const AUTHORITY_SECRET: &str = "nudge-authority";
/// The name of both webhook configurations.
const WEBHOOKS: &str = "nudge-injector";
/// The Secret with the serving certificate, which servers mount.
const SERVING_SECRET: &str = "nudge-serving";
/// The interval between two reads of the files.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Waits for the first certificates, and starts their rotation. `None` if the roles need none.
pub(super) async fn start(
    client: &Client,
    options: &Options,
    tasks: &mut Tasks,
) -> Result<Option<Certificates>, CertificatesError> {
    let Some(source) = &options.certificates else { return Ok(None) };
    let (certificates, rotation) = match source {
        CertificateSource::Folder(folder) => from_folder(folder).await?,
        CertificateSource::Own { names, lifetimes } => {
            let secret = |name| KubeSecret::new(client.clone(), &options.namespace, name);
            let stores = Stores { authority: secret(AUTHORITY_SECRET), serving: secret(SERVING_SECRET) };
            Certificates::keep(stores, names.clone(), *lifetimes).await?
        }
    };
    tasks.spawn("certificate rotation", rotation);
    Ok(Some(certificates))
}

/// Starts to keep `caBundle` of the webhook configurations up to date.
pub(super) fn publish(client: &Client, certificates: &Certificates, tasks: &mut Tasks) {
    let (client, bundle) = (client.clone(), certificates.ca_bundle());
    tasks.spawn_restarted("CA publication to webhooks", move || {
        publish_to_webhooks(client.clone(), WEBHOOKS.to_owned(), bundle.clone(), PUBLISH_CHECK_INTERVAL)
    });
}

/// Waits until something has written the certificates, and reads them.
async fn from_folder(folder: &Path) -> Result<(Certificates, Rotation), CertificatesError> {
    let mut waiting = Waiting::default();
    loop {
        match Certificates::from_files(CertificateFiles::in_folder(folder), FILE_CHECK_INTERVAL) {
            Err(CertificatesError::Files(error)) if is_missing(&error) => {
                waiting.pause("waiting for the serving certificate", &chain(&error)).await;
            }
            result => return result,
        }
    }
}

fn is_missing(error: &FilesError) -> bool {
    matches!(error, FilesError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn missing_files_are_waited_for_and_damaged_ones_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let mut reading = tokio::spawn(async move { from_folder(&path).await.map(drop) });
        let waited = tokio::time::timeout(Duration::from_mins(1), &mut reading).await;
        assert!(waited.is_err(), "it waits");
        for file in ["tls.key", "tls.crt"] {
            std::fs::write(folder.path().join(file), "nothing").unwrap();
        }
        assert!(reading.await.unwrap().unwrap_err().to_string().contains("tls.crt"));
    }
}
