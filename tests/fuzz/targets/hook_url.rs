//! An accepted URL of a webhook points into the pod or to an allowed address, and to exactly the address in its text.
#![cfg_attr(fuzzing, no_main)]

use std::net::{IpAddr, SocketAddr};

use hyper::{Request, header};
use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_agent::notify::{TargetPolicy, WebhookTarget, WebhookUrl, WebhookUrlError};

const OWN: [&str; 2] = ["10.0.0.7", "fd00::7"];
const ALLOWED: &str = "10.9.9.9:8080";

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(bytes) else { return Corpus::Reject };
    let policy = TargetPolicy::new(OWN.map(|ip| ip.parse().unwrap()).to_vec(), vec![ALLOWED.parse().unwrap()]);
    let checked = text.parse::<WebhookUrl>().and_then(|url| policy.check(url));
    match checked {
        Ok(target) => {
            assert_inside(&target);
            assert_as_written(text, &target);
            assert_can_be_asked(&target);
        }
        Err(WebhookUrlError::Outside(target)) => assert!(!is_inside(&target)),
        Err(error) => assert!(error.to_string().len() < 300),
    }
    Corpus::Keep
});

fn is_inside(address: &SocketAddr) -> bool {
    let ip = address.ip();
    ip.is_loopback() || OWN.contains(&ip.to_string().as_str()) || address.to_string() == ALLOWED
}

fn assert_inside(target: &WebhookTarget) {
    assert!(!target.addresses().is_empty());
    for address in target.addresses() {
        assert!(is_inside(address) && address.port() != 0, "{address}");
    }
}

/// Reads the address by the standard library's parsers: two readings of one URL are how such checks are got around.
fn assert_as_written(text: &str, target: &WebhookTarget) {
    assert_eq!(target.as_str(), text);
    let (scheme, rest) = text.split_once("://").unwrap();
    assert!(scheme.eq_ignore_ascii_case("http"));
    let authority = rest.split(['/', '?', '#']).next().unwrap();
    assert_eq!(target.host(), authority);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            assert!(port.bytes().all(|digit| digit.is_ascii_digit()), "{authority}");
            (host, port.parse().unwrap())
        }
        _ => (authority, 80),
    };
    let ips: Vec<IpAddr> = if host == "localhost" {
        vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]
    } else {
        vec![host.trim_matches(['[', ']']).parse::<IpAddr>().unwrap().to_canonical()]
    };
    let addresses: Vec<SocketAddr> = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    assert_eq!(target.addresses(), addresses);
}

/// What is posted later can be formed, and nothing of the URL gets into another part of it.
fn assert_can_be_asked(target: &WebhookTarget) {
    assert!(target.path().starts_with('/'), "{}", target.path());
    let plain = |text: &str| text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    assert!(plain(target.host()) && plain(target.path()));
    let request = Request::post(target.path()).header(header::HOST, target.host()).body(()).unwrap();
    assert!(request.uri().authority().is_none());
}
