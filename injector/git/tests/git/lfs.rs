//! Git LFS: contents in place of pointers, and whom the credential is sent to.

use std::sync::Arc;

use anyhow::Result;
use nudge_git::{Credential, GitError};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::answers::{Answer, Answers, answer};
use crate::repository::{Client, Repository, text};
use crate::web::{TOKEN, USER, Web};

/// The pointer of a content, with its id.
pub(crate) fn pointer(content: &[u8]) -> (String, (String, Vec<u8>)) {
    let id = format!("{:?}", digest(&SHA256, content)).replace("SHA256:", "");
    let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize {}\n", content.len());
    (text, (id, content.to_vec()))
}

/// The batch API with one object, which is downloaded from this base, or from the host that was asked.
pub(crate) fn server((id, content): (String, Vec<u8>), base: String) -> Answer {
    Arc::new(move |request| {
        let line = request.lines().next().unwrap_or_default();
        if line.contains("/objects/batch ") {
            let host = request
                .lines()
                .find_map(|line| line.strip_prefix("host: ").or_else(|| line.strip_prefix("Host: ")))
                .unwrap_or_default();
            let base = if base.is_empty() { format!("https://{host}") } else { base.clone() };
            let known = request.contains(&id);
            let action =
                format!(r#""actions":{{"download":{{"href":"{base}/object?signed=1","header":{{"x-store":"1"}}}}}}"#);
            let error = r#""error":{"code":404,"message":"no"}"#.to_owned();
            let object = format!(r#"{{"objects":[{{"oid":"{id}","size":1,{}}}]}}"#, if known { action } else { error });
            return Some(answer("200 OK", "", object));
        }
        Some(if line.contains("/object?signed=1 ") {
            answer("200 OK", "", &content)
        } else {
            answer("404 Not Found", "", "")
        })
    })
}

/// Answers that change.
#[derive(Clone, Default)]
struct Behind(Arc<Mutex<Option<Answer>>>);

impl Behind {
    fn set(&self, answer: Answer) {
        *self.0.lock() = Some(answer);
    }

    fn answer(&self, request: &str) -> Option<Vec<u8>> {
        let answer = self.0.lock().clone();
        answer.map_or_else(|| Some(crate::answers::answer("404 Not Found", "", "")), |answer| answer(request))
    }
}

struct Scene {
    web: Web,
    repository: Repository,
    client: Client,
    /// The LFS server that nginx passes requests for it to.
    behind: Behind,
    lfs: Answers,
}

async fn scene() -> Result<Option<Scene>> {
    let certificates = crate::web::Certificates::new()?;
    let behind = Behind::default();
    let now = behind.clone();
    let lfs = Answers::start(&certificates, Arc::new(move |request| now.answer(request))).await?;
    let pass = format!(
        "location ~ /info/lfs/|^/object$ {{ proxy_pass https://127.0.0.1:{}; proxy_http_version 1.1; proxy_set_header Host $http_host; \
         proxy_set_header Authorization $http_authorization; }}",
        lfs.port
    )
    .replace("location ~ /info", "location ~* /info");
    let Some(web) = Web::start_first(&pass).await? else { return Ok(None) };
    let repository = Repository::new(web.root(), "shop")?;
    let credential = Credential::Token { username: USER.to_owned(), token: Zeroizing::new(TOKEN.to_owned()) };
    let ca = [web.certificates.ca.clone(), certificates.ca].concat();
    let mut client = Client::new(&web.url("token/shop"), credential, Some(ca))?;
    client.lfs = true;
    Ok(Some(Scene { web, repository, client, behind, lfs }))
}

fn has_credential(request: &str) -> bool {
    request.to_lowercase().contains("authorization: basic")
}

#[tokio::test]
async fn contents_come_in_place_of_pointers_once() -> Result<()> {
    let Some(mut it) = scene().await? else { return Ok(()) };
    let (pointer, object) = pointer(b"large\n");
    it.repository.write("config/prod/large", &pointer)?;
    it.repository.commit("large")?;
    let missing = it.client.main().await;
    assert!(matches!(missing, Err(GitError::Lfs(_))), "{missing:?}");
    it.behind.set(server(object, String::new()));
    let commit = it.client.main().await?;
    assert_eq!(text(&commit), [("a.conf", "one\n".to_owned()), ("large", "large\n".to_owned())]);
    let asked = it.lfs.asked().len();
    it.client.main().await?;
    assert_eq!(it.lfs.asked().len(), asked, "it is kept");
    it.client.lfs = false;
    assert!(matches!(it.client.main().await, Err(GitError::LfsOff(path)) if path == "large"));
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_or_not_the_same_is_refused() -> Result<()> {
    let Some(it) = scene().await? else { return Ok(()) };
    let (text, object) = pointer(b"large\n");
    it.repository.write("config/prod/large", &text)?;
    it.repository.commit("large")?;
    it.behind.set(server((object.0.clone(), b"other\n".to_vec()), String::new()));
    assert!(matches!(it.client.main().await, Err(GitError::LfsContent(path)) if path == "large"));
    it.behind.set(server((object.0.clone(), vec![b'x'; 100_000]), String::new()));
    assert!(matches!(it.client.main().await, Err(GitError::LfsContent(_))));
    it.behind.set(server(("f".repeat(64), Vec::new()), String::new()));
    assert!(matches!(it.client.main().await, Err(GitError::LfsMissing(path)) if path == "large"));
    Ok(())
}

#[tokio::test]
async fn a_credential_goes_to_no_other_host() -> Result<()> {
    let Some(it) = scene().await? else { return Ok(()) };
    let (text, object) = pointer(b"large\n");
    it.repository.write("config/prod/large", &text)?;
    it.repository.commit("large")?;
    let certificates = crate::web::Certificates::new()?;
    let other = Answers::start(&certificates, server(object.clone(), String::new())).await?;
    // Objects may be on another host, which gets the headers that the LFS server names for it.
    let client = Client { ca: Some([it.client.ca.clone().unwrap(), certificates.ca.clone()].concat()), ..it.client };
    it.behind.set(server(object.clone(), format!("https://localhost:{}", other.port)));
    client.main().await?;
    let asked = other.asked();
    assert!(asked.len() == 1 && asked[0].contains("x-store: 1") && !has_credential(&asked[0]), "{asked:?}");
    assert!(it.lfs.asked().iter().any(|request| has_credential(request)), "the batch API needs it");

    // Named by the repository: nothing goes there.
    let (text, object) = pointer(b"larger\n");
    it.repository.write("config/prod/large", &text)?;
    for (config, good) in [
        (format!("[lfs]\n\turl = https://127.0.0.1:{}/lfs\n", other.port), false),
        (format!("[lfs]\n\turl = https://localhost:{}/lfs\n", other.port), false),
        ("[lfs]\n\turl = http://localhost/lfs\n".to_owned(), false),
        (format!("[lfs]\n\turl = https://localhost:{}/x/info/lfs\n", it.web.port), true),
    ] {
        it.repository.write(".lfsconfig", &config)?;
        it.repository.commit("config")?;
        it.behind.set(server(object.clone(), String::new()));
        let fetched = client.main().await;
        assert_eq!(fetched.is_ok(), good, "{config}: {fetched:?}");
        assert!(good || matches!(fetched, Err(GitError::LfsHost(_))), "{fetched:?}");
    }
    // By a redirect.
    let (text, _) = pointer(b"largest\n");
    it.repository.write("config/prod/large", &text)?;
    it.repository.commit("largest")?;
    let location = format!("location: https://localhost:{}/lfs/objects/batch\r\n", other.port);
    it.behind.set(Arc::new(move |_| Some(answer("307 Temporary Redirect", &location, ""))));
    assert!(matches!(client.main().await, Err(GitError::Redirect(_))));
    assert_eq!(other.asked().len(), 1);
    Ok(())
}
