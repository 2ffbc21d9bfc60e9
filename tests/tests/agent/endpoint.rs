//! Every call of the endpoint, asked of a real agent over TLS.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode};
use nudge_protocol::status::{Outcome, Status};
use nudge_protocol::webhooks::{WebhookList, WebhookView};
use nudge_protocol::{ContainerName, ErrorBody, headers};
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{Access, AgentUnderTest, Client, ConfigDir, Raw, Reply, procfs};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const APP: &str = env!("CARGO_BIN_EXE_app");

/// Returns the versions 1 and 2 of `shop`; 1 is current.
async fn shop() -> Result<AgentUnderTest> {
    AgentUnderTest::start(shop_dir()?, &[], &IDLE).await
}

fn shop_dir() -> Result<ConfigDir> {
    let dir = ConfigDir::new()?;
    dir.write_version("shop", "1", [("greeting", "hello"), ("lives", "3")])?;
    dir.write_version("shop", "2", [("greeting", "hi"), ("lives", "5")])?;
    dir.switch("shop", "1")?;
    Ok(dir)
}

/// Returns one version of `shop` with these keys.
async fn shop_with(entries: &[(&str, &[u8])]) -> Result<AgentUnderTest> {
    let dir = ConfigDir::new()?;
    dir.write_version("shop", "1", entries.iter().copied())?;
    dir.switch("shop", "1")?;
    AgentUnderTest::start(dir, &[], &IDLE).await
}

/// Asks on the condition that there is something else than `etag`.
async fn get_unless(client: &mut Client, path: &str, etag: &str) -> Result<Reply> {
    let request = client.request(Method::GET, path).header(IF_NONE_MATCH, etag);
    client.send(request.body(Full::default())?).await
}

fn etag(reply: &Reply) -> Result<String> {
    Ok(reply.headers.get(ETAG).context("no ETag")?.to_str()?.to_owned())
}

fn error_of(reply: &Reply) -> Result<String> {
    assert_eq!(reply.headers[CONTENT_TYPE], "application/json");
    let ErrorBody { error, message } = serde_json::from_slice(&reply.body)?;
    assert!(message.contains(' '), "one word: {message}");
    Ok(error)
}

#[tokio::test]
async fn the_dictionary_is_one_json_object_of_strings_with_sorted_keys() -> Result<()> {
    let mut shop = shop_with(&[
        ("zone", b"a\"b\\c\n\xc3\xa9"),
        ("empty", b""),
        ("Bin", &[0xff, 0]),
        ("number", b"3"),
        ("nul", b"\0"),
    ])
    .await?;
    let reply = shop.client.get("/config").await?;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers[CONTENT_TYPE], "application/json");
    assert_eq!(reply.headers[CACHE_CONTROL], "no-store");
    let expected = concat!(
        r#"{"Bin":"/wA=","empty":"","nudge.binary":"Bin","nudge.config.shop.version":"1","#,
        r#""nudge.configs":"shop=1","nul":"\u0000","number":"3","zone":"a\"b\\c\né"}"#,
    );
    assert_eq!(str::from_utf8(&reply.body)?, expected);
    Ok(())
}

#[tokio::test]
async fn of_two_configs_with_the_same_key_the_later_one_wins_and_the_status_says_so() -> Result<()> {
    let dir = ConfigDir::new()?;
    for (config, version, who) in [("shop", "7", "shop"), ("base", "1", "base")] {
        dir.write_version(config, version, [("who", who), (config, "yes")])?;
        dir.switch(config, version)?;
    }
    let mut shop = AgentUnderTest::start(dir, &["--config", "shop", "--config", "base"], &IDLE).await?;
    let dictionary: Value = serde_json::from_slice(&shop.client.get("/config").await?.body)?;
    assert_eq!(dictionary["who"], "base");
    assert_eq!(dictionary["shop"], "yes");
    assert_eq!(dictionary["nudge.configs"], "shop=7,base=1");
    assert_eq!(dictionary["nudge.config.shop.version"], "7");
    let overlaps = shop.client.status().await?.overlaps;
    assert_eq!(overlaps.len(), 1);
    assert_eq!((overlaps[0].key.as_str(), overlaps[0].winner.as_str()), ("who", "base"));
    assert_eq!(overlaps[0].hidden[0].as_str(), "shop");
    assert!(shop.agent.log().contains("several configs have the same key"));
    Ok(())
}

#[tokio::test]
async fn the_etag_is_strong_and_changes_with_the_content_alone() -> Result<()> {
    let mut shop = shop().await?;
    let first = shop.client.get("/config").await?;
    let tag = etag(&first)?;
    let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).context("no strong ETag")?;
    assert!(inner.len() >= 22 && inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    assert_eq!(etag(&shop.client.get("/config").await?)?, tag);

    for same in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        let reply = get_unless(&mut shop.client, "/config", &same).await?;
        assert_eq!((reply.status, etag(&reply)?), (StatusCode::NOT_MODIFIED, tag.clone()), "{same}");
        assert!(reply.body.is_empty());
    }
    let reply = get_unless(&mut shop.client, "/config", "\"x\"").await?;
    assert_eq!((reply.status, reply.body), (StatusCode::OK, first.body.clone()));

    shop.dir.switch("shop", "2")?;
    let reply = get_unless(&mut shop.client, "/config?wait=20s", &tag).await?;
    let other = etag(&reply)?;
    assert_ne!(other, tag);
    shop.dir.switch("shop", "1")?;
    let reply = get_unless(&mut shop.client, "/config?wait=20s", &other).await?;
    assert_eq!((etag(&reply)?, reply.body), (tag, first.body), "the same content has the same ETag again");
    Ok(())
}

#[tokio::test]
async fn a_waiting_request_is_held_until_a_switch_and_gets_what_is_new() -> Result<()> {
    let mut shop = shop().await?;
    let tag = etag(&shop.client.get("/config").await?)?;
    let mut waiting = Raw::open(&shop.access).await?;
    let description = format!("If-None-Match: {tag}");
    waiting.send(head(&shop.access, "GET /config?wait=2m", &[&description])).await?;
    // The agent sees what came first first: when it has answered on a new connection it has taken this request in.
    Client::new(&shop.access)?.get("/status").await?;
    assert!(waiting.is_silent().await);

    let switched = Instant::now();
    shop.dir.switch("shop", "2")?;
    let reply = waiting.reply().await?;
    assert!(switched.elapsed() < WAIT_TIMEOUT);
    assert_eq!(reply.status, StatusCode::OK);
    assert_ne!(etag(&reply)?, tag);
    assert_eq!(serde_json::from_slice::<Value>(&reply.body)?["greeting"], "hi");
    Ok(())
}

#[tokio::test]
async fn a_wait_without_a_change_ends_with_304_at_its_time() -> Result<()> {
    let mut shop = shop().await?;
    let tag = etag(&shop.client.get("/config").await?)?;
    for (wait, at_least) in [("wait=300ms", 300), ("wait=1s", 1000), ("wait=0s", 0)] {
        let begun = Instant::now();
        let reply = get_unless(&mut shop.client, &format!("/config?{wait}"), &tag).await?;
        assert_eq!((reply.status, etag(&reply)?), (StatusCode::NOT_MODIFIED, tag.clone()), "{wait}");
        assert!(begun.elapsed() >= Duration::from_millis(at_least), "{wait}");
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{wait}");
    }
    Ok(())
}

#[tokio::test]
async fn only_a_client_that_has_the_newest_dictionary_waits() -> Result<()> {
    let mut shop = shop().await?;
    let begun = Instant::now();
    let reply = shop.client.get("/config?wait=2m").await?;
    assert_eq!(reply.status, StatusCode::OK, "nothing to compare with");
    let reply = get_unless(&mut shop.client, "/config?wait=2m", "\"old\"").await?;
    assert_eq!(reply.status, StatusCode::OK, "it has another one");
    let reply = get_unless(&mut shop.client, "/config?wait=6m", &etag(&reply)?).await?;
    assert_eq!(
        (reply.status, error_of(&reply)?.as_str()),
        (StatusCode::BAD_REQUEST, "BadRequest"),
        "5 minutes at most"
    );
    assert!(begun.elapsed() < WAIT_TIMEOUT);
    Ok(())
}

#[tokio::test]
async fn a_shell_reads_the_env_format_back_as_it_was() -> Result<()> {
    let value = "it's $HOME `id` \"x\" \\ \n two";
    let mut shop = shop_with(&[("B_2", value.as_bytes()), ("_empty", b""), ("bin", &[0xff])]).await?;
    let reply = shop.client.get("/config?format=env").await?;
    assert_eq!((reply.status, &reply.headers[CACHE_CONTROL]), (StatusCode::OK, &"no-store".parse()?));
    let text = str::from_utf8(&reply.body)?;
    let names: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once("='")?.0)).filter(|name| !name.contains(' ')).collect();
    assert_eq!(names, ["B_2", "NUDGE_BINARY", "NUDGE_CONFIGS", "_empty", "bin"]);
    let script =
        format!("set -eu\n{text}printf '%s|' \"$B_2\" \"$_empty\" \"$bin\" \"$NUDGE_BINARY\" \"$NUDGE_CONFIGS\"");
    let shell = Command::new("sh").args(["-c", &script]).output()?;
    assert!(shell.status.success(), "{shell:?}");
    assert_eq!(String::from_utf8(shell.stdout)?, format!("{value}||/w==|bin|shop=1|"));
    Ok(())
}

#[tokio::test]
async fn the_env_format_has_an_etag_of_its_own_and_can_be_waited_for() -> Result<()> {
    let mut shop = shop().await?;
    let json = etag(&shop.client.get("/config").await?)?;
    let env = etag(&shop.client.get("/config?format=env").await?)?;
    assert!(json != env && env.starts_with('"') && env.ends_with('"'));
    assert_eq!(get_unless(&mut shop.client, "/config?format=env", &env).await?.status, StatusCode::NOT_MODIFIED);
    assert_eq!(get_unless(&mut shop.client, "/config?format=env", &json).await?.status, StatusCode::OK);
    assert_eq!(get_unless(&mut shop.client, "/config", &env).await?.status, StatusCode::OK);
    assert_eq!(
        get_unless(&mut shop.client, "/config?format=env&wait=1ms", &env).await?.status,
        StatusCode::NOT_MODIFIED
    );
    shop.dir.switch("shop", "2")?;
    let reply = get_unless(&mut shop.client, "/config?format=env&wait=20s", &env).await?;
    assert_eq!(str::from_utf8(&reply.body)?, "NUDGE_CONFIGS='shop=2'\ngreeting='hi'\nlives='5'\n");
    Ok(())
}

#[tokio::test]
async fn what_the_env_format_cant_express_is_an_error_and_no_silent_drop() -> Result<()> {
    for (key, value) in [("game.properties", "x"), ("1st", "x"), ("a-b", "x"), ("nul", "a\0b"), ("NUDGE_CONFIGS", "x")]
    {
        let mut shop = shop_with(&[(key, value.as_bytes()), ("fine", b"y")]).await?;
        let reply = shop.client.get("/config?format=env").await?;
        assert_eq!((reply.status, error_of(&reply)?.as_str()), (StatusCode::NOT_ACCEPTABLE, "NotExpressible"), "{key}");
        assert!(str::from_utf8(&reply.body)?.contains(key));
        assert_eq!(shop.client.get("/config").await?.status, StatusCode::OK, "the JSON format has it: {key}");
    }
    Ok(())
}

#[tokio::test]
async fn a_single_value_comes_as_its_raw_bytes() -> Result<()> {
    let big: Vec<u8> = (0u32..1024 * 1024).map(|at| b"0123456789abcdef\n\"\\"[at as usize * 7 % 19]).collect();
    let values: [(&str, &[u8]); 5] = [
        ("big", &big),
        ("binary", &[0xff, 0, 0xfe]),
        ("empty", b""),
        ("quotes", b"\"\\\n\x01"),
        ("text", "é=3".as_bytes()),
    ];
    let mut shop = shop_with(&values).await?;
    for (key, value) in values {
        let reply = shop.client.get(&format!("/config/{key}")).await?;
        assert_eq!(
            (reply.status, &reply.headers[CONTENT_TYPE]),
            (StatusCode::OK, &"application/octet-stream".parse()?)
        );
        assert_eq!(reply.headers[CONTENT_LENGTH], value.len().to_string());
        assert!(reply.body == value, "{key}");
        let again = get_unless(&mut shop.client, &format!("/config/{key}"), &etag(&reply)?).await?;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{key}");
    }
    assert_eq!(shop.client.get("/config/nudge.configs").await?.body, "shop=1");
    assert_eq!(shop.client.get("/config/nudge.binary").await?.body, "binary");
    assert_eq!(shop.client.get("/config/%74ext").await?.body, "é=3");
    for unknown in ["/config/none", "/config/", "/config/TEXT", "/config/text/"] {
        let reply = shop.client.get(unknown).await?;
        assert_eq!((reply.status, error_of(&reply)?.as_str()), (StatusCode::NOT_FOUND, "NotFound"), "{unknown}");
    }
    Ok(())
}

#[tokio::test]
async fn the_status_has_what_is_served_and_who_was_notified() -> Result<()> {
    let arguments = ["--notify", "SIGUSR1", "--ack", "fetched"];
    let mut shop = AgentUnderTest::start(shop_dir()?, &arguments, &[APP, "--catch", "SIGUSR1"]).await?;

    let status = shop.client.status().await?;
    assert_eq!((status.source.as_str(), status.configs.len()), ("dir", 1));
    let config = &status.configs[0];
    assert_eq!((config.name.as_str(), config.version.as_str(), config.keys, config.bytes), ("shop", "1", 2, 6));
    assert!(config.digest.starts_with("sha256:") && config.digest.len() == 71 && config.problem.is_none());
    let app = &status.containers[0];
    assert_eq!((app.name.as_str(), app.notified.outcome, &app.fetched), ("app", Outcome::NothingYet, &None));

    shop.dir.switch("shop", "2")?;
    let delivered = |status: &Status| status.containers[0].notified.outcome == Outcome::Delivered;
    let status = shop.status_when("the child is notified", delivered).await?;
    let app = &status.containers[0];
    assert_eq!(status.configs[0].version.as_str(), "2");
    assert_eq!(app.notified.etag.as_ref(), Some(&status.etag));
    let child = procfs::descendants(shop.agent.pid())?[0];
    assert_eq!(app.notified.processes, [child]);
    assert!(!app.acknowledged, "notified, but it has not fetched");

    let request = shop.client.request(Method::GET, "/config").header(headers::CONTAINER, "app");
    let fetched = shop.client.send(request.body(Full::default())?).await?;
    let status = shop.client.status().await?;
    assert_eq!(status.containers[0].fetched, Some(etag(&fetched)?));
    assert!(status.containers[0].acknowledged);
    Ok(())
}

#[tokio::test]
async fn webhooks_are_subscribed_listed_and_cancelled() -> Result<()> {
    let mut shop = shop().await?;
    assert_eq!(shop.client.get("/hooks").await?.body, r#"{"hooks":[]}"#);

    let subscription = r#"{"url": "http://127.0.0.1:9/changed", "container": "app"}"#;
    let reply = shop.send(Method::POST, "/hooks", subscription.to_owned()).await?;
    assert_eq!(reply.status, StatusCode::CREATED);
    let hook: WebhookView = serde_json::from_slice(&reply.body)?;
    assert_eq!(reply.headers[LOCATION], format!("/hooks/{}", hook.id));
    assert_eq!((hook.url.as_str(), hook.notified.outcome), ("http://127.0.0.1:9/changed", Outcome::NothingYet));
    assert_eq!(hook.container.as_ref().map(ContainerName::as_str), Some("app"));
    assert_eq!(hook.etag, etag(&shop.client.get("/config").await?)?);

    let reply = shop.send(Method::POST, "/hooks", subscription.to_owned()).await?;
    assert_eq!((reply.status, serde_json::from_slice::<WebhookView>(&reply.body)?), (StatusCode::OK, hook.clone()));
    let list: WebhookList = serde_json::from_slice(&shop.client.get("/hooks").await?.body)?;
    assert_eq!(list.hooks, std::slice::from_ref(&hook));
    assert_eq!(shop.client.status().await?.hooks, std::slice::from_ref(&hook));

    let path = format!("/hooks/{}", hook.id);
    let reply = shop.send(Method::DELETE, &path, String::new()).await?;
    assert_eq!((reply.status, reply.body.len()), (StatusCode::NO_CONTENT, 0));
    let reply = shop.send(Method::DELETE, &path, String::new()).await?;
    assert_eq!((reply.status, error_of(&reply)?.as_str()), (StatusCode::NOT_FOUND, "NotFound"));
    assert_eq!(shop.client.get("/hooks").await?.body, r#"{"hooks":[]}"#);
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_cant_be_taken_is_refused_with_the_reason() -> Result<()> {
    let mut shop = shop().await?;
    for (body, status, error) in [
        ("", 400, "BadRequest"),
        ("{}", 400, "BadRequest"),
        ("[1]", 400, "BadRequest"),
        (r#"{"url": "http://127.0.0.1:9/", "x": 1}"#, 400, "BadRequest"),
        (r#"{"url": "http://127.0.0.1:9/", "container": "A B"}"#, 400, "BadRequest"),
        (r#"{"url": "nonsense"}"#, 422, "HookNotAllowed"),
        (r#"{"url": "https://127.0.0.1:9/"}"#, 422, "HookNotAllowed"),
        (r#"{"url": "http://example.com/"}"#, 422, "HookNotAllowed"),
        (r#"{"url": "http://192.0.2.1:9/"}"#, 422, "HookNotAllowed"),
    ] {
        let reply = shop.send(Method::POST, "/hooks", body.to_owned()).await?;
        assert_eq!((reply.status.as_u16(), error_of(&reply)?.as_str()), (status, error), "{body}");
    }
    for number in 0..17 {
        let body = format!(r#"{{"url": "http://localhost:9/{number}"}}"#);
        let reply = shop.send(Method::POST, "/hooks", body).await?;
        if number < 16 {
            assert_eq!(reply.status, StatusCode::CREATED);
        } else {
            assert_eq!((reply.status.as_u16(), error_of(&reply)?.as_str()), (429, "TooManyHooks"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn health_and_metrics_need_no_token_and_hold_no_secret() -> Result<()> {
    let dir = ConfigDir::new()?;
    let secrets = [("key-of-the-safe", "value-in-the-safe"), ("other-key", "other-value")];
    dir.write_version("vault", "v-one", secrets)?;
    dir.switch("vault", "v-one")?;
    let mut shop = AgentUnderTest::start(dir, &[], &IDLE).await?;
    for path in ["/config", "/config/key-of-the-safe", "/config/no-such-key", "/config?format=env", "/status", "/hooks"]
    {
        shop.client.get(path).await?;
    }
    let mut stranger = Client::without_token(shop.access.address, &shop.access.authority)?;
    stranger.get("/config/other-key").await?;

    for path in ["/healthz", "/readyz"] {
        let reply = stranger.get(path).await?;
        assert_eq!((reply.status, str::from_utf8(&reply.body)?), (StatusCode::OK, "ok\n"), "{path}");
    }
    let reply = stranger.get("/metrics").await?;
    assert_eq!(reply.status, StatusCode::OK);
    assert!(reply.headers[CONTENT_TYPE].to_str()?.starts_with("application/openmetrics-text"));
    let text = str::from_utf8(&reply.body)?;
    for expected in ["requests_total{code=\"200\"} ", "requests_total{code=\"401\"} 1\n", "connections 2\n", "# EOF"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let secret = secrets.iter().flat_map(|(key, value)| [*key, *value]);
    for secret in secret.chain(["vault", "v-one", "no-such-key", shop.access.token.as_str()]) {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    Ok(())
}

#[tokio::test]
async fn head_is_get_without_the_body() -> Result<()> {
    let mut shop = shop().await?;
    for path in ["/config", "/config?format=env", "/config/greeting", "/status", "/hooks", "/healthz", "/readyz"] {
        let get = shop.client.get(path).await?;
        let head = shop.send(Method::HEAD, path, String::new()).await?;
        assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0), "{path}");
        for name in [CONTENT_TYPE, ETAG, CACHE_CONTROL, CONTENT_LENGTH] {
            assert_eq!(head.headers.get(&name), get.headers.get(&name), "{name} of {path}");
        }
    }
    assert_eq!(shop.send(Method::HEAD, "/config/none", String::new()).await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn nothing_but_health_is_served_without_the_token() -> Result<()> {
    let shop = shop().await?;
    let Access { address, token, authority, .. } = &shop.access;
    let mut client = Client::without_token(*address, authority)?;
    let other_token = token.chars().rev().collect::<String>();
    let wrong =
        ["", "Bearer", "Bearer ", &token[1..], &format!("Basic {token}"), &other_token, &format!("{token}{token}")];
    let calls = [
        (Method::GET, "/config"),
        (Method::HEAD, "/config"),
        (Method::GET, "/config/greeting"),
        (Method::GET, "/config/none"),
        (Method::GET, "/status"),
        (Method::GET, "/hooks"),
        (Method::POST, "/hooks"),
        (Method::DELETE, "/hooks/hook_1"),
        (Method::PUT, "/config"),
        (Method::GET, "/nothing"),
    ];
    for (method, path) in calls {
        for given in [None].into_iter().chain(wrong.iter().map(Some)) {
            let mut request = client.request(method.clone(), path);
            if let Some(given) = given {
                request = request.header(AUTHORIZATION, *given);
            }
            let reply = client.send(request.body(Full::default())?).await?;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{method} {path} {given:?}");
            assert!(reply.headers[WWW_AUTHENTICATE].to_str()?.starts_with("Bearer"), "{method} {path}");
            assert!(!reply.headers.contains_key(ALLOW) && !reply.headers.contains_key(ETAG), "{method} {path}");
            assert!(method == Method::HEAD || error_of(&reply)? == "Unauthorized", "{method} {path}");
        }
    }
    for right in [token.clone(), format!("Bearer {token}"), format!("bearer {token}")] {
        let request = client.request(Method::GET, "/config").header(AUTHORIZATION, right);
        assert_eq!(client.send(request.body(Full::default())?).await?.status, StatusCode::OK);
    }
    Ok(())
}

#[tokio::test]
async fn the_log_holds_neither_the_token_nor_values() -> Result<()> {
    for format in ["text", "json"] {
        let log = log_of_a_busy_day(format).await?;
        for line in log.lines().filter(|_| format == "json") {
            assert_eq!(line.matches(r#","message":"#).count(), 1, "one field twice: {line}");
            let line: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
            assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
        }
        for expected in [
            "DEBUG",
            "INFO",
            "started",
            "TLS handshake failed",
            "the last good version stays",
            "not notified; retrying",
        ] {
            assert!(log.contains(expected), "{expected} in {log}");
        }
        assert!(!log.contains("secret"), "{log}");
    }
    Ok(())
}

/// Returns all that could make an agent talkative; everything that it must keep to itself has the word `secret` in it,
/// and the token is replaced by that word.
async fn log_of_a_busy_day(format: &str) -> Result<String> {
    let dir = ConfigDir::new()?;
    for (version, value) in [("1", "secret 1"), ("2", "secret 2")] {
        dir.write_version("shop", version, [("password", value.as_bytes()), ("raw", b"\xffsecret")])?;
    }
    dir.write_version("shop", "bad", [("not a key", "secret")])?;
    dir.switch("shop", "1")?;
    let arguments = ["--log-level", "debug", "--log-format", format, "--notify", "SIGUSR1"];
    let mut shop = AgentUnderTest::start(dir, &arguments, &[APP, "--catch", "SIGUSR1"]).await?;
    let token = shop.access.token.clone();

    for path in ["/config", "/config?format=env", "/config/password", "/config/secret", "/config?secret=1", "/secret"] {
        shop.client.get(path).await?;
    }
    shop.client.get(&format!("/config?token={}", token.replace('+', "%2B"))).await?;
    shop.subscribed("http://127.0.0.1:1/secret?secret=1").await?;
    shop.subscribe("http://secret:secret@127.0.0.1/").await?;
    let mut client = Client::without_token(shop.access.address, &shop.access.authority)?;
    let request = client.request(Method::GET, "/config").header(AUTHORIZATION, "Bearer secret");
    client.send(request.body(Full::default())?).await?;
    // Without TLS, and with a request that is none: both may end in an error that quotes them.
    let mut plain = TcpStream::connect(shop.access.address).await?;
    plain.write_all(head(&shop.access, "GET /secret", &[]).as_bytes()).await?;
    plain.read_to_end(&mut Vec::new()).await?;
    let mut raw = Raw::open(&shop.access).await?;
    raw.send(format!("GET /config HTTP/1.1\r\nAuthorization Bearer {token} secret\r\n\r\n")).await?;
    raw.ended().await;

    shop.dir.switch("shop", "2")?;
    shop.wait_for_lines(1, "SIGUSR1").await?;
    shop.logs("TLS handshake failed").await?;
    shop.logs("not notified; retrying").await?;
    shop.dir.switch("shop", "bad")?;
    shop.logs("the last good version stays").await?;
    shop.agent.process().stop()?;
    Ok(shop.agent.log().replace(&token, "secret"))
}
