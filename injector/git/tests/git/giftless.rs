//! Git LFS by a real server: giftless, behind the nginx that serves the repository.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use nudge_core::outbound::Address;
use nudge_git::{Credential, GitError};
use nudge_outbound::{Bounds, Reach, authorities_from_pem, request};
use nudge_tests::servers::giftless::{Giftless, USER};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::bounds::noise;
use crate::lfs::pointer;
use crate::repository::{Client, Repository};
use crate::web::Web;

/// The path of the repository on the server, and so for giftless.
const SHOP: &str = "open/shop";

/// A server with one repository, and a client that may read its objects.
struct Scene {
    giftless: Giftless,
    web: Web,
    repository: Repository,
    client: Client,
}

/// Starts giftless. `None` if a tool is missing.
pub(crate) async fn start() -> Result<Option<Giftless>> {
    Giftless::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).await
}

/// The credential by a token of giftless.
pub(crate) fn credential(token: String) -> Credential {
    Credential::Token { username: USER.to_owned(), token: Zeroizing::new(token) }
}

async fn scene() -> Result<Option<Scene>> {
    let Some(giftless) = start().await? else { return Ok(None) };
    let Some(web) = Web::start_first(&giftless.location("open", "")).await? else { return Ok(None) };
    let repository = Repository::new(web.root(), "shop")?;
    let token = credential(giftless.token(SHOP, "read", 600)?);
    let mut client = Client::new(&web.url(SHOP), token, Some(web.certificates.ca.clone()))?;
    client.lfs = true;
    Ok(Some(Scene { giftless, web, repository, client }))
}

/// Puts contents there as git-lfs does: by the batch API, an upload each, and the question whether that is right.
pub(crate) async fn upload(web: &Web, giftless: &Giftless, repository: &str, contents: &[Vec<u8>]) -> Result<()> {
    let authorities = authorities_from_pem(&web.certificates.ca).context("no CA")?;
    let address = Address::parse(web.url("").trim_end_matches('/'))?;
    let bounds = Bounds { timeout: std::time::Duration::from_mins(1), max_bytes: 1024 * 1024 };
    let ask = async |method: &str, path: &str, authorization: &str, body: &[u8]| -> Result<Bytes> {
        let asked = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", authorization)
            .header("content-type", "application/vnd.git-lfs+json")
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        let answer = request(&address, &Reach::Anywhere, &authorities, asked, bounds).await?;
        ensure!(answer.status().is_success(), "{method} {path}: {} {:?}", answer.status(), answer.body());
        Ok(answer.into_body())
    };
    let objects: Vec<(String, &Vec<u8>)> = contents.iter().map(|content| (pointer(content).1.0, content)).collect();
    let listed: Vec<Value> = objects.iter().map(|(id, content)| json!({"oid": id, "size": content.len()})).collect();
    let batch = json!({"operation": "upload", "transfers": ["basic"], "objects": listed});
    let own = format!("Bearer {}", giftless.token(repository, "read,write", 600)?);
    let path = format!("/{repository}.git/info/lfs/objects/batch");
    let answer: Value = serde_json::from_slice(&ask("POST", &path, &own, batch.to_string().as_bytes()).await?)?;
    for (number, (id, content)) in objects.iter().enumerate() {
        let object = &answer["objects"][number];
        ensure!(object["oid"] == **id, "another order: {answer}");
        if object["actions"].is_null() {
            // The object exists.
            continue;
        }
        for (action, method, body) in [
            ("upload", "PUT", content.as_slice()),
            ("verify", "POST", json!({"oid": id, "size": content.len()}).to_string().as_bytes()),
        ] {
            let action = &object["actions"][action];
            let path = action["href"].as_str().and_then(|it| it.strip_prefix(&web.url(""))).context("no URL")?;
            let authorization = action["header"]["Authorization"].as_str().context("no credential")?;
            ask(method, &format!("/{path}"), authorization, body).await?;
        }
    }
    Ok(())
}

impl Scene {
    /// Uploads a content, and writes its pointer.
    async fn keep(&self, path: &str, content: &[u8]) -> Result<String> {
        upload(&self.web, &self.giftless, SHOP, &[content.to_vec()]).await?;
        let (text, (id, _)) = pointer(content);
        self.repository.write(path, text)?;
        Ok(id)
    }

    /// How often the LFS server was asked.
    async fn asked(&self) -> Result<usize> {
        Ok(self.web.answered().await?.iter().filter(|line| line.contains("/info/lfs/")).count())
    }
}

#[tokio::test]
async fn contents_come_in_place_of_pointers_once() -> Result<()> {
    let Some(it) = scene().await? else { return Ok(()) };
    let noise = noise(200_000)?;
    it.keep("config/prod/large", b"large\n").await?;
    it.keep("config/prod/sub/noise", &noise).await?;
    it.repository.commit("large")?;
    let before = it.asked().await?;
    let commit = it.client.main().await.with_context(|| it.giftless.log())?;
    let files: Vec<_> = commit.files.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
    assert_eq!(files, [("a.conf", b"one\n".as_slice()), ("large", b"large\n"), ("sub/noise", &noise)]);
    assert_eq!(it.asked().await?, before + 3, "one list, and each object");
    // With the same pointers, nothing is asked again; with one more, no more than that is.
    it.repository.write("config/prod/a.conf", "two\n")?;
    it.repository.commit("second")?;
    let second = it.client.main().await?;
    assert_eq!((second.files["a.conf"].as_slice(), second.files["large"].as_slice()), (&b"two\n"[..], &b"large\n"[..]));
    assert_eq!(it.asked().await?, before + 3);
    it.keep("config/prod/more", b"more\n").await?;
    it.repository.commit("third")?;
    let before = it.asked().await?;
    assert_eq!(it.client.main().await?.files["more"].as_slice(), b"more\n");
    assert_eq!(it.asked().await?, before + 2);
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_not_there_or_not_the_same_is_named() -> Result<()> {
    let Some(it) = scene().await? else { return Ok(()) };
    let large = it.keep("config/prod/large", b"large\n").await?;
    let small = it.keep("config/prod/small", b"small\n").await?;
    it.repository.commit("large")?;
    fs::write(it.giftless.object(SHOP, &large), "other\n")?;
    let other = it.client.main().await;
    assert!(matches!(&other, Err(GitError::LfsContent(path)) if path == "large"), "{other:?}");
    fs::remove_file(it.giftless.object(SHOP, &large))?;
    let missing = it.client.main().await;
    assert!(matches!(&missing, Err(GitError::LfsMissing(path)) if path == "large"), "{missing:?}");
    // Giftless answers differently if it has none of the objects. For a new client, all are missing.
    fs::remove_file(it.giftless.object(SHOP, &small))?;
    let fresh = Client::new(&it.web.url(SHOP), it.client.credential.clone(), it.client.ca.clone())?;
    let fresh = Client { lfs: true, ..fresh };
    let none = fresh.main().await;
    assert!(matches!(&none, Err(GitError::LfsMissing(_))), "{none:?}");
    it.keep("config/prod/large", b"large\n").await?;
    it.keep("config/prod/small", b"small\n").await?;
    assert_eq!(fresh.main().await?.files["large"].as_slice(), b"large\n");
    Ok(())
}

#[tokio::test]
async fn a_wrong_credential_is_refused() -> Result<()> {
    let Some(mut it) = scene().await? else { return Ok(()) };
    it.keep("config/prod/large", b"large\n").await?;
    it.repository.commit("large")?;
    let good = it.giftless.token(SHOP, "read", 600)?;
    let (signed, signature) = good.rsplit_once('.').context("no token")?;
    let wrong = [
        ("of another key", format!("{signed}.{}", signature.chars().rev().collect::<String>())),
        ("expired", it.giftless.token(SHOP, "read", -600)?),
        ("of another repository", it.giftless.token("open/other", "read", 600)?),
        ("for something else", it.giftless.token(SHOP, "verify", 600)?),
        ("no token", "tok-no-token".to_owned()),
    ];
    for (what, token) in wrong {
        it.client.credential = credential(token.clone());
        let error = anyhow::Error::new(it.client.main().await.err().context(what)?);
        let said = format!("{error:#} {error:?}");
        assert!(matches!(error.downcast_ref(), Some(GitError::Credential(_))), "{what}: {error:?}");
        let header = BASE64_STANDARD.encode(format!("{USER}:{token}"));
        assert!(!said.contains(&token) && !said.contains(&header), "{said}");
    }
    it.client.credential = Credential::Anonymous;
    assert!(matches!(it.client.main().await, Err(GitError::Credential(_))));
    let refused =
        it.web.answered().await?.into_iter().filter(|line| line.contains("/batch ") && line.contains(" 40")).count();
    assert_eq!(refused, 6, "somebody else has refused them");
    it.client.credential = credential(good);
    it.client.main().await?;
    Ok(())
}
