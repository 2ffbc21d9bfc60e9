//! Tokens: the servers that get the credential in exchange for a token.

use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use nudge_oci::{Credential, OciError, OciReference, PullRequest, Registry};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls::ServerConfig;
use serde_json::json;

use crate::asking::{HIDDEN, all, anywhere, basic, files, plain, pulled, refused, tag};
use crate::certificate::Certificate;
use crate::registry::DockerRegistry;
use crate::stand_in::{Answer, Asked, Content, StandIn, answer, fault};

/// A token of the form that Debian's registry checks.
fn token(certificate: &Certificate, actions: &[&str]) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(certificate.der())]});
    let access = json!([{"type": "repository", "name": "team/shop", "actions": actions}]);
    let claims = json!({
        "iss": "tests", "aud": "registry", "sub": "shop", "jti": "1", "access": access,
        "iat": now, "nbf": now - 60, "exp": now + 300,
    });
    let signed = [header, claims].map(|it| URL_SAFE_NO_PAD.encode(it.to_string())).join(".");
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &certificate.key_der(), &random)
        .map_err(|_| anyhow::anyhow!("no key"))?;
    let signature = key.sign(&random, signed.as_bytes()).map_err(|_| anyhow::anyhow!("no signature"))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// A server of tokens: `shop` with the password `right` may push, and everybody pull.
async fn realm(certificate: Certificate, tls: Option<Arc<ServerConfig>>) -> Result<StandIn> {
    let right = format!("Basic {}", STANDARD.encode("shop:right"));
    StandIn::start_at("127.0.0.1", tls, move |asked: &Asked| {
        let actions: &[&str] = match &asked.authorization {
            None => &["pull"],
            Some(it) if *it == right => &["pull", "push"],
            Some(_) => return fault(401, "UNAUTHORIZED"),
        };
        let token = token(&certificate, actions).unwrap_or_default();
        answer(200, &[], json!({"token": token, "expires_in": 300}).to_string())
    })
    .await
}

/// Debian's registry with that server as its realm, and who trusts both. By another name than the registry's, the realm
/// has TLS.
async fn served(by_name: bool) -> Result<(DockerRegistry, StandIn, Registry)> {
    let certificate = Certificate::new()?;
    let (client, tls) = (certificate.client()?, if by_name { Some(certificate.server()?) } else { None });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("realm.crt");
    fs::write(&file, certificate.pem())?;
    let realm = realm(certificate, tls).await?;
    let url = if by_name { format!("https://{}", realm.by_name()) } else { format!("http://{}", realm.host()) };
    let auth = format!(
        "auth: {{token: {{realm: '{url}/token', service: registry, issuer: tests, rootcertbundle: {}}}}}",
        file.display()
    );
    Ok((DockerRegistry::start_in(folder, |_| Ok((auth.clone(), String::new()))).await?, realm, client))
}

#[tokio::test]
async fn a_realm_on_the_host_of_the_registry_gives_tokens() -> Result<()> {
    let (server, realm, registry) = served(false).await?;
    let (reference, right, wanted) = (plain(&server.host())?, basic("right"), tag("1"));
    let nobody = registry.push(&reference, "1", &files([("a", "1")]), &Credential::Anonymous, &|_| false).await;
    ensure!(matches!(nobody, Err(OciError::NoAccess { act: "push", .. })), "{nobody:?}");
    // Another port of the host is another server.
    let elsewhere = registry.push(&reference, "1", &files([("a", "1")]), &right, &|_| false).await;
    ensure!(matches!(elsewhere, Err(OciError::RealmElsewhere { .. })), "{elsewhere:?}");
    let name = realm.host();
    let agrees = move |address: &nudge_core::outbound::Address| address.authority() == name;
    let digest = registry.push(&reference, "1", &files([("a", "1")]), &right, &agrees).await?;
    realm.asked();
    let anonymous = pulled(&registry, &all(&reference, &wanted)).await?;
    ensure!(anonymous.digest == digest);
    let asked = realm.asked();
    let path = "/token?service=registry&scope=repository%3Ateam%2Fshop%3Apull";
    ensure!(asked.len() == 1 && asked[0].path == path && asked[0].authorization.is_none(), "{asked:?}");
    let wrong = refused(
        &registry,
        &PullRequest { credential: &basic(HIDDEN), trusts_realm: &agrees, ..all(&reference, &wanted) },
    )
    .await?;
    ensure!(matches!(&wrong, OciError::CredentialRefused(host) if *host == realm.host()), "{wrong}");
    Ok(())
}

#[tokio::test]
async fn a_realm_elsewhere_gets_the_credential_only_if_the_caller_agrees() -> Result<()> {
    let (server, realm, registry) = served(true).await?;
    let (reference, right, wanted) = (plain(&server.host())?, basic("right"), tag("1"));
    let request = PullRequest { credential: &right, ..all(&reference, &wanted) };
    let error = refused(&registry, &request).await?;
    ensure!(matches!(&error, OciError::RealmElsewhere { host, .. } if *host == realm.by_name()), "{error}");
    let pushed = registry.push(&reference, "1", &files([("a", "1")]), &right, &|_| false).await;
    ensure!(matches!(pushed, Err(OciError::RealmElsewhere { .. })), "{pushed:?}");
    ensure!(realm.asked().is_empty(), "the realm was asked");
    let name = realm.by_name();
    let agrees = move |address: &nudge_core::outbound::Address| address.authority() == name;
    let digest = registry.push(&reference, "1", &files([("a", "1")]), &right, &agrees).await?;
    ensure!(realm.asked().iter().all(|it| it.authorization.is_some()));
    let request = PullRequest { trusts_realm: &agrees, ..request };
    ensure!(pulled(&registry, &request).await?.digest == digest);
    // Without a credential there is nothing to agree to.
    realm.asked();
    pulled(&registry, &all(&reference, &wanted)).await?;
    ensure!(realm.asked().iter().all(|it| it.authorization.is_none()));
    Ok(())
}

/// A registry that wants the token `good`, and says so by this header.
fn guarded(content: &Content, challenge: &str, asked: &Asked) -> Answer {
    if asked.authorization.as_deref() == Some("Bearer good") {
        return content.answer(asked);
    }
    answer(401, &[("www-authenticate", challenge)], HIDDEN)
}

fn content() -> Content {
    let mut content = Content::default();
    let layer = content.blob("text/plain", b"1", &json!({"org.opencontainers.image.title": "a"}));
    content.artifact("1.0.0", &[layer]);
    content
}

#[tokio::test]
async fn a_look_at_what_did_not_change_is_one_request() -> Result<()> {
    let realm = StandIn::start(|_| answer(200, &[], r#"{"access_token": "good"}"#)).await?;
    let challenge = format!(r#"Bearer realm="http://{}/token",service="x""#, realm.host());
    let content = content();
    let server = StandIn::start(move |asked| guarded(&content, &challenge, asked)).await?;
    let (registry, reference, wanted) = (anywhere(), plain(&server.host())?, tag("1.0.0"));
    let request = all(&reference, &wanted);
    let digest = pulled(&registry, &request).await?.digest;
    server.asked();
    realm.asked();
    let None = registry.pull(&request, Some(&digest)).await? else { bail!("changed") };
    let asked = server.asked();
    ensure!(asked.len() == 1 && asked[0].method == "HEAD" && realm.asked().is_empty(), "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn an_expired_token_is_replaced_once() -> Result<()> {
    let realm = StandIn::start(|_| answer(200, &[], r#"{"token": "bad"}"#)).await?;
    let challenge = format!(r#"Bearer realm="http://{}/token""#, realm.host());
    let content = content();
    let server = StandIn::start(move |asked| guarded(&content, &challenge, asked)).await?;
    let (registry, reference, wanted) = (anywhere(), plain(&server.host())?, tag("1.0.0"));
    for _ in 0..2 {
        let error = refused(&registry, &all(&reference, &wanted)).await?;
        ensure!(matches!(error, OciError::NoAccess { .. }), "{error}");
        let (asked, tokens) = (server.asked().len(), realm.asked().len());
        ensure!(asked == 2 && tokens == 1, "{asked} requests, {tokens} tokens");
    }
    Ok(())
}

#[tokio::test]
async fn a_realm_without_tls_is_on_the_host_of_a_registry_without_tls() -> Result<()> {
    let realm = StandIn::start(|_| answer(200, &[], r#"{"token": "good"}"#)).await?;
    let wanted = tag("1.0.0");
    for (name, is_own) in [(realm.host(), true), (realm.by_name(), false)] {
        let (challenge, content) = (format!(r#"Bearer realm="http://{name}/token""#), content());
        let server = StandIn::start(move |asked| guarded(&content, &challenge, asked)).await?;
        let reference = plain(&server.host())?;
        if is_own {
            pulled(&anywhere(), &all(&reference, &wanted)).await?;
            ensure!(realm.asked().len() == 1);
            continue;
        }
        for (credential, may_ask) in [(Credential::Anonymous, false), (basic(HIDDEN), true)] {
            let request =
                PullRequest { credential: &credential, trusts_realm: &move |_| may_ask, ..all(&reference, &wanted) };
            let error = refused(&anywhere(), &request).await?;
            ensure!(matches!(error, OciError::RealmWithoutTls { .. }), "{error}");
        }
    }
    ensure!(realm.asked().is_empty(), "the realm was asked");
    Ok(())
}

#[tokio::test]
async fn a_realm_that_is_none_gets_nothing() -> Result<()> {
    let realm = StandIn::start(|asked| match asked.path.split('?').next() {
        Some("/moved") => answer(307, &[("location", "/token")], HIDDEN),
        Some("/empty") => answer(200, &[], r#"{"token": ""}"#),
        Some("/busy") => fault(429, "TOOMANYREQUESTS"),
        _ => answer(200, &[], format!("[\"{HIDDEN}\"]")),
    })
    .await?;
    let certificate = Certificate::new()?;
    let (right, wanted) = (basic(HIDDEN), tag("1"));
    let of = async |challenge: &str| -> Result<OciError> {
        let challenge = challenge.to_owned();
        let server = StandIn::start_at("127.0.0.1", Some(certificate.server()?), move |_| {
            answer(401, &[("www-authenticate", &challenge)], HIDDEN)
        });
        let server = server.await?;
        let reference = OciReference::parse(&format!("oci://{}/team/shop", server.host()))?;
        refused(&certificate.client()?, &PullRequest { credential: &right, ..all(&reference, &wanted) }).await
    };
    let host = realm.host();
    // The registry has TLS, and so must its realm.
    let plain = of(&format!(r#"Bearer realm="http://{host}/token""#)).await?;
    ensure!(matches!(plain, OciError::RealmWithoutTls { .. }), "{plain}");
    for bad in ["", "/token", "ftp://a/b", "https://user@a/b", "https://a/b c", "https://"] {
        let error = of(&format!(r#"Bearer realm="{bad}""#)).await?;
        ensure!(matches!(error, OciError::Realm(_)), "{bad}: {error}");
    }
    for other in ["Negotiate", "", "Bearer service=\"x\""] {
        let error = of(other).await?;
        ensure!(matches!(error, OciError::Challenge(_)), "{other}: {error}");
    }
    ensure!(realm.asked().is_empty(), "the realm was asked");
    // Of answers that are no tokens.
    for (path, expected) in [("moved", "307"), ("empty", "no token"), ("busy", "try later"), ("other", "no token")] {
        let challenge = format!(r#"Bearer realm="http://{host}/{path}""#);
        let server = StandIn::start(move |_| answer(401, &[("www-authenticate", &challenge)], HIDDEN)).await?;
        let reference = crate::asking::plain(&server.host())?;
        let request = PullRequest { credential: &right, trusts_realm: &|_| true, ..all(&reference, &wanted) };
        let error = refused(&anywhere(), &request).await?;
        ensure!(error.to_string().contains(expected), "{path}: {error}");
    }
    ensure!(realm.asked().iter().all(|it| !it.path.starts_with("/token")), "a redirect was followed");
    Ok(())
}
