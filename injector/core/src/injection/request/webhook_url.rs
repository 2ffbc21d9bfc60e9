//! The check of a webhook's URL. The agent reads the same text from its environment, and has the same rules.

use std::net::SocketAddr;

use nudge_protocol::settings::parse_listed_webhook;
use nudge_protocol::webhook_url::{TargetPolicy, WebhookUrlError};

use super::annotations::WEBHOOK_ALLOW;

/// Checks a URL. The pod's own addresses are not known yet, so only loopback and `allowed` pass.
pub(super) fn check(text: &str, allowed: &[SocketAddr]) -> Result<(), String> {
    let policy = TargetPolicy::new(Vec::new(), allowed.to_vec());
    match parse_listed_webhook(text).and_then(|url| policy.check(url)) {
        Ok(_) => Ok(()),
        Err(WebhookUrlError::Outside(target)) => Err(format!(
            "{target} is not known to be in this pod; use localhost, or allow it with annotation {WEBHOOK_ALLOW}: {target}"
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the URL for messages and logs, without the fields that may hold a password or a token.
pub(super) fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        (None, Some((_, rest))) => format!("…@{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_secret() {
        for (text, shown) in [
            ("http://10.1.1.1/a?token=hunter2", "http://10.1.1.1/a"),
            ("http://me:hunter2@10.1.1.1/a#hunter2", "http://…@10.1.1.1/a"),
            ("me:hunter2@10.1.1.1", "…@10.1.1.1"),
            ("http://127.0.0.1/a,b", "http://127.0.0.1/a,b"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn loopback_and_allowed_addresses_pass() {
        let allowed = ["10.9.9.9:8080".parse().unwrap()];
        for good in ["http://127.0.0.1:8080/a?b=c", "http://localhost", "http://[::1]:81/", "http://10.9.9.9:8080/x"] {
            assert_eq!(check(good, &allowed), Ok(()), "{good}");
        }
        for (bad, says) in [
            ("http://10.9.9.9:8081/", "nudge.dev/webhook-allow: 10.9.9.9:8081"),
            ("https://127.0.0.1/", "http://"),
            ("http://127.0.0.1/a,b", "%2C"),
        ] {
            assert!(check(bad, &allowed).unwrap_err().contains(says), "{bad}");
        }
    }
}
