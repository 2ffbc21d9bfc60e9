//! What no browser sends: other methods and paths, heads that two programs could read differently, bodies without end.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ui::bounds::WAIT_TIMEOUT;
use crate::ui::page::Page;
use crate::ui::scene::stage;

/// Returns everything that the server answers to these bytes, until it ends the connection.
async fn sent(page: &Page, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", page.port)).await?;
    // The server may end the connection before it has read all.
    let _ = stream.write_all(bytes).await;
    let mut text = Vec::new();
    let _ = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut text)).await.context("the connection does not end")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn nothing_but_the_page_and_its_endpoints_is_answered() -> Result<()> {
    let Some((installation, _, _)) = stage().await? else { return Ok(()) };
    let page = Page::start(&installation.cluster.kubeconfig(), &[]).await?;
    let session = page.session().await?;
    let host = format!("host: 127.0.0.1:{0}\r\norigin: http://127.0.0.1:{0}", page.port);
    let bearer = format!("authorization: Bearer {session}\r\ncontent-type: application/json");
    // There are no files behind the paths.
    for path in [
        "/../Cargo.toml",
        "/..%2f..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/./style.css",
        "/style.css/",
        "/main.js%00",
        "/assets/main.js",
        "/index.html",
        "/api/overview",
        "/api/session",
        "/metrics",
        "/version",
    ] {
        let answer = sent(&page, format!("GET {path} HTTP/1.1\r\n{host}\r\n{bearer}\r\n\r\n").as_bytes()).await?;
        ensure!(
            answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("there is no such path\"}"),
            "{path}: {answer}"
        );
    }
    for method in ["HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        for path in ["/", "/api/session", "/api/overview", "/api/act"] {
            let description = format!("{method} {path} HTTP/1.1\r\n{host}\r\n{bearer}\r\ncontent-length: 0\r\n\r\n");
            let answer = sent(&page, description.as_bytes()).await?;
            ensure!(answer.starts_with("HTTP/1.1 405 "), "{method} {path}: {answer}");
        }
    }
    // Neither token counts anywhere but in its place.
    let token = page.token();
    for (path, more) in [
        (format!("/api/overview?token={session}"), String::new()),
        (format!("/api/overview?authorization=Bearer%20{session}"), String::new()),
        ("/api/overview".to_owned(), format!("cookie: session={session}\r\n")),
        ("/api/overview".to_owned(), format!("x-authorization: Bearer {session}\r\n")),
        ("/api/overview".to_owned(), format!("authorization: Basic {session}\r\n")),
        ("/api/overview".to_owned(), format!("authorization: Bearer {token}\r\n")),
        ("/api/overview".to_owned(), format!("authorization: Bearer {session}\r\nauthorization: Bearer x\r\n")),
        (
            "/api/overview".to_owned(),
            format!("authorization: Bearer {session} \r\nauthorization: Bearer {session}\r\n"),
        ),
    ] {
        let request_text = format!(
            "POST {path} HTTP/1.1\r\n{host}\r\ncontent-type: application/json\r\n{more}content-length: 2\r\n\r\n{{}}"
        );
        let answer = sent(&page, request_text.as_bytes()).await?;
        ensure!(answer.starts_with("HTTP/1.1 401 "), "{path} {more}: {answer}");
    }
    // No other protocol on the same connection.
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    let answer = sent(&page, format!("GET / HTTP/1.1\r\n{host}\r\n{upgrade}\r\n\r\n").as_bytes()).await?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = sent(&page, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    ensure!(!answer.starts_with("HTTP/1.1 200") && !answer.contains("Nudge"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_request_is_one_request() -> Result<()> {
    let Some((installation, _, _)) = stage().await? else { return Ok(()) };
    let page = Page::start(&installation.cluster.kubeconfig(), &[]).await?;
    let (own, body) = (format!("127.0.0.1:{}", page.port), json!({"token": page.token()}).to_string());
    let length = body.len();
    let head = format!("host: {own}\r\norigin: http://{own}\r\ncontent-type: application/json");
    let post = format!("POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    // What follows the first request is not read: neither a second one, nor one that hides in the body of the first.
    for first in [
        format!("GET /style.css HTTP/1.1\r\nhost: {own}\r\nconnection: keep-alive\r\n\r\n{post}"),
        format!("GET /style.css HTTP/1.1\r\nhost: {own}\r\ncontent-length: {}\r\n\r\n{post}", post.len()),
        format!("GET /style.css HTTP/1.1\r\nhost: {own}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{post}"),
    ] {
        let answer = sent(&page, first.as_bytes()).await?;
        ensure!(answer.matches("HTTP/1.1 ").count() == 1 && !answer.contains("session\""), "{answer}");
        ensure!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    // Heads that can be read in two ways are refused, or read in the way that is of no use.
    for (what, asked) in [
        (
            "two lengths",
            format!(
                "POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\ncontent-length: 3\r\n\r\n{body}"
            ),
        ),
        (
            "a length with a sign",
            format!("POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length: +{length}\r\n\r\n{body}"),
        ),
        (
            "a space before the colon",
            format!("POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length : {length}\r\n\r\n{body}"),
        ),
        ("a folded host", format!("POST /api/session HTTP/1.1\r\nhost: evil.example\r\n {own}\r\n\r\n")),
        (
            "another encoding",
            format!("POST /api/session HTTP/1.1\r\n{head}\r\ntransfer-encoding: xchunked\r\n\r\n{body}"),
        ),
        (
            "another host in the target",
            format!(
                "POST http://evil.example/api/session HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        ),
        (
            "its own host in the target",
            format!("POST http://{own}/api/session HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"),
        ),
        (
            "a forwarded host",
            format!(
                "POST /api/session HTTP/1.1\r\nhost: evil.example\r\nx-forwarded-host: {own}\r\norigin: http://{own}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        ),
        (
            "a host without a port",
            format!(
                "POST /api/session HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        ),
        (
            "no host",
            format!(
                "POST /api/session HTTP/1.0\r\norigin: http://{own}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        ),
        (
            "a bare line feed in a value",
            format!(
                "POST /api/session HTTP/1.1\r\nhost: {own}\norigin: http://evil.example\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        ),
    ] {
        let answer = sent(&page, asked.as_bytes()).await?;
        ensure!(!answer.starts_with("HTTP/1.1 200") && !answer.contains("session\""), "{what}: {answer}");
    }
    // Bodies are read to their bound, however they come.
    let (all, large) = (String::from("x").repeat(1 << 20), 1_u64 << 40);
    for (what, asked) in [
        ("a long body", format!("POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{all}", all.len())),
        (
            "a body that is said to be long",
            format!("POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length: {large}\r\n\r\n{all}"),
        ),
        (
            "chunks without end",
            format!(
                "POST /api/session HTTP/1.1\r\n{head}\r\ntransfer-encoding: chunked\r\n\r\n100000\r\n{all}\r\n100000\r\n{all}"
            ),
        ),
        ("a body that does not come", format!("POST /api/session HTTP/1.1\r\n{head}\r\ncontent-length: 99\r\n\r\n{{")),
        ("a hundred heads", format!("POST /api/session HTTP/1.1\r\n{head}\r\n{}\r\n", "a: b\r\n".repeat(200))),
    ] {
        let answer = sent(&page, asked.as_bytes()).await?;
        ensure!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
    }
    // After all that, the token is still good, once.
    page.session().await?;
    ensure!(page.session().await.is_err());
    Ok(())
}
