//! A GitHub App: a token of its installation, requested once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use nudge_core::outbound::Address;
use nudge_git::{App, Credential, GitError};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use zeroize::Zeroizing;

use crate::answers::{Answers, answer};
use crate::repository::{Client, Repository};
use crate::web::{Certificates, TOKEN, Web};

/// A key as GitHub gives it, and its public half.
fn key(form: &[&str]) -> Result<(Vec<u8>, Vec<u8>)> {
    let run = |arguments: &[&str], input: &[u8]| -> Result<Vec<u8>> {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let mut child = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        child.stdin.take().map(|mut stdin| stdin.write_all(input)).transpose()?;
        Ok(child.wait_with_output()?.stdout)
    };
    let private = run(&[&["genrsa"], form, &["2048"]].concat(), b"")?;
    let public = run(&["rsa", "-RSAPublicKey_out", "-outform", "DER"], &private)?;
    Ok((private, public))
}

fn app(key: &[u8], port: u16) -> Result<Credential> {
    Ok(Credential::App(App {
        id: "12".to_owned(),
        installation: "34".to_owned(),
        key: Zeroizing::new(key.to_vec()),
        api: Address::parse(&format!("https://localhost:{port}/api/v3"))?,
    }))
}

#[tokio::test]
async fn an_installation_has_a_token_which_is_requested_once() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    Repository::new(web.root(), "shop")?;
    Repository::new(web.root(), "two")?;
    let certificates = Certificates::new()?;
    let good = Arc::new(AtomicBool::new(false));
    for (form, public) in [(["-traditional"].as_slice(), true), ([].as_slice(), false)] {
        let (key, public_key) = key(form)?;
        assert_eq!(String::from_utf8_lossy(&key).contains("BEGIN RSA PRIVATE KEY"), public);
        good.store(false, Ordering::SeqCst);
        let is_good = Arc::clone(&good);
        let api = Answers::start(
            &certificates,
            Arc::new(move |request| {
                let token =
                    request.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or_default();
                let (text, signature) = token.rsplit_once('.').unwrap_or_default();
                let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
                let verified = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &public_key)
                    .verify(text.as_bytes(), &signature);
                let claims =
                    BASE64_URL_SAFE_NO_PAD.decode(text.split('.').nth(1).unwrap_or_default()).unwrap_or_default();
                let claims = String::from_utf8_lossy(&claims).into_owned();
                if verified.is_err()
                    || !claims.contains(r#""iss":"12""#)
                    || !request.starts_with("POST /api/v3/app/installations/34/access_tokens ")
                {
                    return Some(answer("401 Unauthorized", "", r#"{"message":"Bad credentials"}"#));
                }
                // The first is one that was taken back.
                let token = if is_good.swap(true, Ordering::SeqCst) { TOKEN } else { "expired" };
                let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
                let body = format!(r#"{{"token":"{token}","expires_at":"{end}"}}"#);
                Some(answer("201 Created", "", body))
            }),
        )
        .await?;
        let ca = [web.certificates.ca.clone(), api.ca.clone()].concat();
        let mut client = Client::new(&web.url("token/shop"), app(&key, api.port)?, Some(ca))?;
        let refused = client.main().await;
        assert!(refused.is_ok(), "with a new token: {refused:?}");
        client.main().await?;
        client.url = nudge_git::GitUrl::parse(&web.url("token/two"))?;
        client.main().await?;
        assert_eq!(api.asked().len(), 2, "it is kept");
        assert!(!format!("{:?}", client.credential).contains("PRIVATE"));
    }
    Ok(())
}

#[tokio::test]
async fn what_the_api_refuses_is_said() -> Result<()> {
    let Some(web) = Web::start().await? else { return Ok(()) };
    let certificates = Certificates::new()?;
    let (private, _) = key(&["-traditional"])?;
    for (status, part) in [
        ("401 Unauthorized", "refuses the key"),
        ("404 Not Found", "no such installation"),
        ("302 Found", "redirect"),
        ("200 OK", "no token"),
    ] {
        let api = Answers::start(
            &certificates,
            Arc::new(move |_| Some(answer(status, "location: https://localhost:1/\r\n", "ghs_secret"))),
        )
        .await?;
        let client = Client::new(&web.url("token/shop"), app(&private, api.port)?, Some(certificates.ca.clone()))?;
        let message = client.main().await.unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains("ghs_secret"), "{message}");
    }
    let client = Client::new(&web.url("token/shop"), app(b"no key", 1)?, Some(certificates.ca.clone()))?;
    assert!(matches!(client.main().await, Err(GitError::AppKey)));
    assert!(web.log().unwrap_or_default().is_empty(), "the git server was asked without a token");
    Ok(())
}
