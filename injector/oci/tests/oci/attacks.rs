//! Registries that attack.

use anyhow::{Result, ensure};
use nudge_oci::{OciError, Pick, PullRequest};
use serde_json::{Value, json};

use crate::artifacts::{archive, gzip};
use crate::asking::{HIDDEN, all, anywhere, basic, files, plain, pulled, refused, tag};
use crate::certificate::Certificate;
use crate::stand_in::{Answer, Asked, Content, StandIn, answer, digest_of, fault};

fn title(title: &str) -> Value {
    json!({"org.opencontainers.image.title": title})
}

async fn error_of(content: Content, wanted: &Pick) -> Result<OciError> {
    let server = content.serve().await?;
    refused(&anywhere(), &all(&plain(&server.host())?, wanted)).await
}

#[tokio::test]
async fn content_of_another_digest_is_not_used() -> Result<()> {
    let wanted = tag("1.0.0");
    let is_digest = |error: &OciError| matches!(error, OciError::Digest { .. });
    // Of the same length, shorter, and longer; of a file and of an archive.
    let packed = gzip(&archive(&[("a", "right")])?)?;
    for blob in [b"right".as_slice(), &packed] {
        for other in [vec![b'w'; blob.len()], b"w".to_vec(), vec![b'w'; blob.len() + 1], vec![b'w'; 1 << 20]] {
            let mut content = Content::default();
            let annotations = if blob.len() == 5 { title("a") } else { json!({}) };
            let layer = content.blob("application/x.tar", blob, &annotations);
            content.artifact("1.0.0", &[layer]);
            content.replace(&digest_of(blob), &other);
            let error = error_of(content, &wanted).await?;
            ensure!(is_digest(&error), "{error:?}");
        }
    }
    // Of a manifest that is requested by its digest, by the user and by an index.
    let mut content = Content::default();
    let layer = content.blob("text/plain", b"1", &title("a"));
    let manifest = content.artifact("other", &[layer]);
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    content.document("1.0.0", &json!({"schemaVersion": 2, "manifests": [manifest]}));
    content.replace(&digest, br#"{"schemaVersion": 2, "config": {}, "layers": []}"#);
    for wanted in [wanted, Pick::Digest(digest)] {
        let error = error_of(content.clone(), &wanted).await?;
        ensure!(is_digest(&error), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn every_bound_of_a_registry_is_kept() -> Result<()> {
    let wanted = tag("1.0.0");
    // Sizes are looked at before anything is fetched.
    for (kind, annotations) in [("text/plain", title("a")), ("application/x.tar", json!({}))] {
        let mut content = Content::default();
        let mut layer = content.blob(kind, b"x", &annotations);
        layer["size"] = json!(65 * 1024 * 1024);
        content.artifact("1.0.0", &[layer]);
        let server = content.serve().await?;
        let error = refused(&anywhere(), &all(&plain(&server.host())?, &wanted)).await?;
        ensure!(matches!(error, OciError::TooLarge { .. }) && server.asked().len() == 1, "{error}");
    }
    // Files together.
    let mut content = Content::default();
    let big = vec![b'x'; 2 << 20];
    let layers = ["a", "b"].map(|name| content.blob("text/plain", &big, &title(name)));
    content.artifact("1.0.0", &layers);
    let error = error_of(content, &wanted).await?;
    ensure!(error.to_string().contains("more than 3145728 bytes"), "{error}");
    // Layers and manifests.
    let mut content = Content::default();
    let layer = content.blob("text/plain", b"", &title("a"));
    content.artifact("1.0.0", &vec![layer; 1001]);
    let error = error_of(content, &wanted).await?;
    ensure!(matches!(error, OciError::TooMany { what: "layers", .. }), "{error}");
    let mut content = Content::default();
    content.document("1.0.0", &json!({"schemaVersion": 2, "more": "x".repeat(4 << 20)}));
    let error = error_of(content, &wanted).await?;
    ensure!(matches!(error, OciError::TooLarge { .. }), "{error}");
    // An index that names an index.
    let mut content = Content::default();
    let inner = content.document("inner", &json!({"schemaVersion": 2, "manifests": []}));
    content.document("1.0.0", &json!({"schemaVersion": 2, "manifests": [inner]}));
    let error = error_of(content, &wanted).await?;
    ensure!(matches!(error, OciError::Malformed { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn lists_of_tags_have_an_end_on_the_same_registry() -> Result<()> {
    let wanted = Pick::Semver("1".into());
    let page = |tags: &[String], link: String| {
        let body = json!({"name": "team/shop", "tags": tags}).to_string();
        StandIn::start(move |_| answer(200, &[("link", &link)], body.clone()))
    };
    let many: Vec<String> = (0..200).map(|n| format!("0.0.{n}")).collect();
    for (tags, link, expected) in [
        (&many[..1], "</v2/team/shop/tags/list?last=x>; rel=\"next\"", "pages of tags"),
        (&many[..], "</v2/team/shop/tags/list?last=x>; rel=\"next\"", "more than 10000 tags"),
        (&many[..1], "<http://169.254.169.254/v2/>; rel=\"next\"", "not on the same registry"),
        (&many[..], "", "header Link"),
    ] {
        let server = page(tags, link.to_owned()).await?;
        let error = refused(&anywhere(), &all(&plain(&server.host())?, &wanted)).await?;
        ensure!(error.to_string().contains(expected), "{error}");
    }
    Ok(())
}

/// A registry that has its blobs elsewhere, and wants a name and a password.
fn moved(content: &Content, location: &str, asked: &Asked) -> Answer {
    if asked.authorization.is_none() {
        return answer(401, &[("www-authenticate", "Basic realm=\"x\"")], HIDDEN);
    }
    if asked.path.contains("/blobs/") { answer(307, &[("location", location)], HIDDEN) } else { content.answer(asked) }
}

#[tokio::test]
async fn a_blob_elsewhere_is_fetched_without_the_credential_and_over_tls_only() -> Result<()> {
    let certificate = Certificate::new()?;
    let content = Content::of_archive(&gzip(&archive(&[("a", "1")])?)?);
    let blob = gzip(&archive(&[("a", "1")])?)?;
    let storage = StandIn::start_at("127.0.0.1", Some(certificate.server()?), move |asked| match asked.path.as_str() {
        "/bucket/blob?signature=x%2F" => answer(200, &[], blob.clone()),
        "/again" => answer(302, &[("location", "/bucket/blob?signature=x%2F")], HIDDEN),
        _ => fault(403, "DENIED"),
    });
    let storage = storage.await?;
    let plain_storage = StandIn::start(|_| answer(200, &[], HIDDEN)).await?;
    let (right, wanted, registry) = (basic("right"), tag("1.0.0"), certificate.client()?);
    let at = |location: String| {
        let content = content.clone();
        StandIn::start_at("127.0.0.1", None, move |asked| moved(&content, &location, asked))
    };
    let server = at(format!("https://{}/bucket/blob?signature=x%2F", storage.by_name())).await?;
    let reference = plain(&server.host())?;
    let found = pulled(&registry, &PullRequest { credential: &right, ..all(&reference, &wanted) }).await?;
    ensure!(found.files == files([("a", "1")]));
    let asked = storage.asked();
    ensure!(asked.len() == 1 && asked[0].authorization.is_none(), "{asked:?}");
    for (location, expected) in [
        (format!("https://{}/again", storage.by_name()), "redirects again"),
        (format!("https://{}/none", storage.by_name()), "status 403"),
        (format!("http://{}/blob", plain_storage.by_name()), "no TLS"),
        ("ftp://a/b".to_owned(), "not an address"),
        (String::new(), "not an address"),
        // To the registry itself, again without the credential.
        ("/other".to_owned(), "status 401"),
    ] {
        let server = at(location.clone()).await?;
        let reference = plain(&server.host())?;
        let error = refused(&registry, &PullRequest { credential: &right, ..all(&reference, &wanted) }).await?;
        ensure!(error.to_string().contains(expected), "{location}: {error}");
    }
    ensure!(storage.asked().iter().all(|it| it.authorization.is_none()) && plain_storage.asked().is_empty());
    Ok(())
}

#[tokio::test]
async fn nothing_else_is_redirected() -> Result<()> {
    let other = StandIn::start(|_| answer(200, &[], HIDDEN)).await?;
    let location = format!("http://{}/v2/", other.by_name());
    let server = StandIn::start(move |_| answer(307, &[("location", &location)], HIDDEN)).await?;
    let (registry, reference) = (anywhere(), plain(&server.host())?);
    for wanted in [tag("1"), Pick::Semver("1".into())] {
        let error = refused(&registry, &all(&reference, &wanted)).await?;
        ensure!(matches!(error, OciError::Redirect { .. }), "{error:?}");
    }
    let pushed = registry.push(&reference, "1", &files([("a", HIDDEN)]), &basic(HIDDEN), &|_| true).await;
    ensure!(matches!(pushed, Err(OciError::Redirect { .. })), "{pushed:?}");
    // Nor is an upload sent to another host.
    let location = format!("http://{}/upload", other.by_name());
    let server = StandIn::start(move |asked| match asked.method.as_str() {
        "HEAD" => answer(404, &[], ""),
        _ => answer(202, &[("location", &location)], HIDDEN),
    });
    let server = server.await?;
    let pushed = registry.push(&plain(&server.host())?, "1", &files([("a", HIDDEN)]), &basic(HIDDEN), &|_| true).await;
    ensure!(matches!(pushed, Err(OciError::Redirect { what: "an upload", .. })), "{pushed:?}");
    ensure!(other.asked().is_empty(), "a redirect was followed");
    Ok(())
}

#[tokio::test]
async fn hostile_archives_and_errors_are_refused_in_our_own_words() -> Result<()> {
    let wanted = tag("1.0.0");
    for blob in
        [b"no archive, but longer than a block of one".repeat(20), vec![0x1f, 0x8b, 8, 0], vec![0x28, 0xb5, 0x2f, 0xfd]]
    {
        let error = error_of(Content::of_archive(&blob), &wanted).await?;
        ensure!(error.to_string().contains("not a tar archive"), "{error}");
    }
    for (status, code, expected) in [
        (403, "DENIED", "not public"),
        (404, "NAME_UNKNOWN", "there is no repository"),
        (404, "MANIFEST_UNKNOWN", "has no 1.0.0"),
        (429, "TOOMANYREQUESTS", "try later"),
        (500, "UNKNOWN", "status 500"),
    ] {
        let server = StandIn::start(move |_| fault(status, code)).await?;
        let error = refused(&anywhere(), &all(&plain(&server.host())?, &wanted)).await?;
        ensure!(error.to_string().contains(expected), "{status}: {error}");
    }
    Ok(())
}
