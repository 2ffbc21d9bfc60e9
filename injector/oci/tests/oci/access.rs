//! Names and passwords, and TLS.

use std::fs;

use anyhow::{Result, ensure};
use nudge_oci::{Credential, OciError, OciReference, PullRequest};
use nudge_protocol::error_chain::chain;

use crate::asking::{HIDDEN, all, anywhere, basic, files, plain, pulled, refused, tag};
use crate::certificate::Certificate;
use crate::registry::DockerRegistry;

/// The user `shop` with the password `right`.
const USERS: &str = "shop:$2b$04$UPmyLQW.zCdDjWRXuzqIqOM3OOcUaeJvAMh6GSSuCnwUZiw5mRXKG\n";

#[tokio::test]
async fn a_password_is_checked_by_the_registry_over_tls() -> Result<()> {
    let certificate = Certificate::new()?;
    let server = DockerRegistry::start_in(tempfile::tempdir()?, |folder| {
        let file = |name: &str, content: &str| {
            fs::write(folder.join(name), content)?;
            Ok::<_, anyhow::Error>(folder.join(name).display().to_string())
        };
        let users = file("users", USERS)?;
        let (chain, key) = (file("tls.crt", &certificate.pem())?, file("tls.key", &certificate.key_pem())?);
        let auth = format!("auth: {{htpasswd: {{realm: registry, path: {users}}}}}");
        Ok((auth, format!(", tls: {{certificate: {chain}, key: {key}}}")))
    })
    .await?;
    let reference = OciReference::parse(&format!("oci://{}/team/shop", server.host()))?;
    let (registry, right, wanted) = (certificate.client()?, basic("right"), tag("1"));
    let bad = basic(HIDDEN);
    let digest = registry.push(&reference, "1", &files([("a", "1")]), &right, &|_| false).await?;
    let by = |credential| PullRequest { credential, ..all(&reference, &wanted) };
    ensure!(pulled(&registry, &by(&right)).await?.digest == digest);
    let wrong = refused(&registry, &by(&bad)).await?;
    ensure!(matches!(&wrong, OciError::CredentialRefused(host) if *host == server.host()), "{wrong}");
    let nobody = refused(&registry, &by(&Credential::Anonymous)).await?;
    ensure!(matches!(nobody, OciError::NoAccess { act: "pull", .. }), "{nobody}");
    let nobody = registry.push(&reference, "2", &files([("a", "1")]), &Credential::Anonymous, &|_| false).await;
    ensure!(matches!(nobody, Err(OciError::NoAccess { act: "push", .. })), "{nobody:?}");
    // Nobody who does not trust the certificate sends anything.
    let stranger = refused(&anywhere(), &by(&right)).await?;
    ensure!(chain(&stranger).contains("authority of its certificate is not trusted"), "{}", chain(&stranger));
    let without = plain(&server.host())?;
    let without = refused(&registry, &PullRequest { credential: &right, ..all(&without, &wanted) }).await?;
    ensure!(matches!(without, OciError::Status { status: 400, .. }), "{without}");
    Ok(())
}
