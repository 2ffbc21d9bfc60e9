//! Requests that are out of bounds.

use anyhow::{Context, Result};
use hyper::header::{ALLOW, CONTENT_TYPE};
use nudge_protocol::ErrorBody;
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{AgentUnderTest, Raw, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn start_agent() -> Result<AgentUnderTest> {
    AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await
}

/// Sends one request with the token over a connection of its own.
async fn ask(agent: &AgentUnderTest, line: &str, headers: &[&str], body: &[u8]) -> Result<Reply> {
    let mut raw = Raw::open(&agent.access).await?;
    // A refusal may come, and the connection end, before all is sent.
    let _ = raw.send([head(&agent.access, line, headers).as_bytes(), body].concat()).await;
    timeout(WAIT_TIMEOUT, raw.reply()).await.with_context(|| format!("no reply to {line:.80}"))?
}

/// Returns the status and the word for programs; it must be explained in JSON.
fn refusal(reply: &Reply) -> Result<(u16, String)> {
    assert_eq!(reply.headers[CONTENT_TYPE], "application/json");
    let ErrorBody { error, message } = serde_json::from_slice(&reply.body)?;
    assert!(message.contains(' '), "one word: {message}");
    Ok((reply.status.as_u16(), error))
}

async fn still_answers(mut agent: AgentUnderTest) -> Result<()> {
    agent.agent.check()?;
    assert_eq!(agent.client.get("/config").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_refused_with_those_that_it_takes() -> Result<()> {
    let agent = start_agent().await?;
    for (line, allow) in [
        ("POST /config", "GET, HEAD"),
        ("DELETE /config/lives", "GET, HEAD"),
        ("PUT /status", "GET, HEAD"),
        ("OPTIONS /config", "GET, HEAD"),
        ("BREW /config", "GET, HEAD"),
        ("TRACE /metrics", "GET, HEAD"),
        ("PATCH /hooks", "GET, HEAD, POST"),
        ("DELETE /hooks", "GET, HEAD, POST"),
        ("GET /hooks/hook_1", "DELETE"),
        ("POST /hooks/hook_1", "DELETE"),
    ] {
        let reply = ask(&agent, line, &[], b"").await?;
        assert_eq!(refusal(&reply)?, (405, "MethodNotAllowed".to_owned()), "{line}");
        assert_eq!(reply.headers[ALLOW], allow, "{line}");
    }
    still_answers(agent).await
}

#[tokio::test]
async fn a_path_that_is_not_there_is_not_found() -> Result<()> {
    let agent = start_agent().await?;
    for path in
        ["/", "/nothing", "/Config", "//config", "/config/", "/config/../status", "/config/lives/x", "/metrics/", "*"]
    {
        let method = if path == "*" { "OPTIONS" } else { "GET" };
        let reply = ask(&agent, &format!("{method} {path}"), &[], b"").await?;
        assert_eq!(refusal(&reply)?, (404, "NotFound".to_owned()), "{path}");
    }
    still_answers(agent).await
}

#[tokio::test]
async fn a_query_that_means_nothing_is_a_bad_request() -> Result<()> {
    let agent = start_agent().await?;
    for path in [
        "/config?format=xml",
        "/config?wait=soon",
        "/config?wait=30",
        "/config?wait=-1s",
        "/config?wait=99999999999s",
        "/config?x=1",
        "/config/lives?x=1",
        "/status?wait=1s",
        "/healthz?x",
        "/config/%ff",
        "/config/%e2%28",
    ] {
        let reply = ask(&agent, &format!("GET {path}"), &[], b"").await?;
        assert_eq!(refusal(&reply)?, (400, "BadRequest".to_owned()), "{path}");
    }
    still_answers(agent).await
}

#[tokio::test]
async fn path_head_and_body_have_a_length_each() -> Result<()> {
    let agent = start_agent().await?;
    let path = |bytes: usize| format!("GET /{}", "x".repeat(bytes - 1));
    assert_eq!(refusal(&ask(&agent, &path(2048), &[], b"").await?)?.0, 404);
    assert_eq!(refusal(&ask(&agent, &path(2049), &[], b"").await?)?, (414, "TargetTooLong".to_owned()));
    let query = format!("GET /config?{}", "x".repeat(3000));
    assert_eq!(refusal(&ask(&agent, &query, &[], b"").await?)?, (414, "TargetTooLong".to_owned()));

    let header = |bytes: usize| format!("X: {}", "x".repeat(bytes));
    assert_eq!(ask(&agent, "GET /config", &[&header(7 * 1024)], b"").await?.status, 200);
    assert_eq!(ask(&agent, "GET /config", &[&header(9 * 1024)], b"").await?.status, 431);
    assert_eq!(ask(&agent, "GET /config", &[&header(100 * 1024)], b"").await?.status, 431);
    assert_eq!(ask(&agent, "GET /config", &["A: b"; 200], b"").await?.status, 431);

    let fits = ask(&agent, "POST /hooks", &["Content-Length: 4096"], &[b' '; 4096]).await?;
    assert_eq!(refusal(&fits)?, (400, "BadRequest".to_owned()), "it fits and is no JSON");
    for line in ["POST /hooks", "GET /config"] {
        let declared = ask(&agent, line, &["Content-Length: 4097"], b"").await?;
        assert_eq!(refusal(&declared)?, (413, "BodyTooLarge".to_owned()), "{line}");
    }
    let chunk = [b"1001\r\n".as_slice(), &[b' '; 4097], b"\r\n"].concat();
    let undeclared = ask(&agent, "POST /hooks", &["Transfer-Encoding: chunked"], &chunk).await?;
    assert_eq!(refusal(&undeclared)?, (413, "BodyTooLarge".to_owned()));
    still_answers(agent).await
}

#[tokio::test]
async fn what_is_not_http_is_a_bad_request_and_the_end_of_its_connection() -> Result<()> {
    let agent = start_agent().await?;
    let token = &agent.access.token;
    for text in [
        "nonsense\r\n\r\n".to_owned(),
        "\r\n\0\r\n\r\n".to_owned(),
        "GET /config\r\n\r\n".to_owned(),
        "GET /config HTTP/9.9\r\n\r\n".to_owned(),
        "GET /con fig HTTP/1.1\r\n\r\n".to_owned(),
        "BR(EW /config HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /config HTTP/1.1\r\nAuthorization Bearer {token}\r\n\r\n"),
        format!("GET /config HTTP/1.1\r\nAuthorization: Bearer {token}\r\nBad\0Name: x\r\n\r\n"),
        head(&agent.access, "POST /hooks", &["Content-Length: 3", "Content-Length: 4"]) + "{}  ",
        head(&agent.access, "POST /hooks", &["Content-Length: -1"]),
    ] {
        let mut raw = Raw::open(&agent.access).await?;
        raw.send(&text).await?;
        let reply =
            timeout(WAIT_TIMEOUT, raw.reply()).await.with_context(|| text.clone())?.with_context(|| text.clone())?;
        assert_eq!(reply.status, 400, "{text:?}");
        timeout(WAIT_TIMEOUT, raw.ended()).await.with_context(|| format!("not closed after {text:?}"))?;
    }
    still_answers(agent).await
}

#[tokio::test]
async fn plain_http_is_refused_with_the_advice_to_use_https() -> Result<()> {
    let agent = start_agent().await?;
    for (method, body) in [("GET /config", 0), ("POST /hooks", 4000)] {
        let mut plain = TcpStream::connect(agent.access.address).await?;
        plain.write_all(&[head(&agent.access, method, &[]).as_bytes(), &vec![b'x'; body]].concat()).await?;
        let mut reply = String::new();
        timeout(WAIT_TIMEOUT, plain.read_to_string(&mut reply)).await??;
        let (head, body) = reply.split_once("\r\n\r\n").context("no HTTP")?;
        assert!(head.starts_with("HTTP/1.1 400 "), "{reply}");
        let error: ErrorBody = serde_json::from_str(body)?;
        assert!(error.error == "PlainHttp" && error.message.contains("HTTPS"), "{error:?}");
    }
    still_answers(agent).await
}

#[tokio::test]
async fn what_is_not_tls_ends_its_connection() -> Result<()> {
    let agent = start_agent().await?;
    let garbage: [&[u8]; 5] = [
        b"\0\x01\x02\x03\x04\x05",
        b"SSH-2.0-x\r\n",
        b"get / http/1.1\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff, 1],
        &[0xff; 5000],
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(agent.access.address).await?;
        stream.write_all(bytes).await?;
        // The end may be orderly, after an alert, or a reset.
        let ended = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "not ended after {bytes:?}");
    }
    still_answers(agent).await
}
