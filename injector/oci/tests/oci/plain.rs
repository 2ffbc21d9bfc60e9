//! What is pushed is pulled again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use nudge_oci::{Artifact, Credential, OciError, Pulled, Reference, Registry, Request, Wanted};
use nudge_outbound::Reach;
use rustls::RootCertStore;
use zeroize::Zeroizing;

use crate::registry::DockerRegistry;

#[tokio::test]
async fn what_is_pushed_is_pulled() -> Result<()> {
    let server = DockerRegistry::start("", "")?;
    let reference = Reference::parse(&format!("oci+http://{}/team/shop", server.host()))?;
    let registry = Registry::new(Reach::Anywhere, Arc::new(RootCertStore::empty()));
    let file = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
    let files: BTreeMap<_, _> =
        [("config/prod/app.yaml".to_owned(), file("a: 1\n")), ("config/test/app.yaml".to_owned(), file("a: 2\n"))]
            .into();
    let nobody = |_: &_| false;
    let digest = registry.push(&reference, "1.0.0", &files, &Credential::Anonymous, &nobody).await?;
    let again = registry.push(&reference, "1.0.0", &files, &Credential::Anonymous, &nobody).await?;
    ensure!(digest == again, "{digest} {again}");
    let request = |wanted, path| Request {
        reference: &reference,
        wanted,
        platform: None,
        path,
        credential: &Credential::Anonymous,
        may_ask: &nobody,
        files: &|_| true,
    };
    let all = [Wanted::Tag("1.0.0".into()), Wanted::Semver("1".into()), Wanted::Digest(digest.clone())];
    let tag = &all[0];
    for wanted in &all {
        let Pulled::Artifact(Artifact { digest: found, files: pulled, .. }) =
            registry.pull(&request(wanted, ""), None).await?
        else {
            bail!("unchanged")
        };
        ensure!(found == digest && pulled == files);
        let Pulled::Unchanged = registry.pull(&request(wanted, ""), Some(&digest)).await? else { bail!("changed") };
    }
    let Pulled::Artifact(part) = registry.pull(&request(tag, "config/prod"), Some("sha256:0")).await? else {
        bail!("unchanged")
    };
    ensure!(part.files == BTreeMap::from([("app.yaml".to_owned(), file("a: 1\n"))]));
    let none = registry.pull(&request(tag, "config/none"), None).await;
    ensure!(matches!(&none, Err(OciError::NoFiles(path)) if path == "config/none"), "{none:?}");
    Ok(())
}
