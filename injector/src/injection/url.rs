//! Whether a web hook may point where an annotation says: the agent's own rules, as it reads the same text in its environment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;

/// Longest URL, in bytes.
const MAX_URL_BYTES: usize = 2048;

/// Why a URL is no target for a web hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    #[error("it is a URL such as http://127.0.0.1:8080/changed, with at most {MAX_URL_BYTES} bytes")]
    Malformed,
    #[error("it begins with http://; events stay in the pod and are signed")]
    Scheme,
    #[error("it may not hold a user or password")]
    UserInfo,
    #[error("it may not hold a comma, write %2C")]
    Comma,
    #[error("its host is an IP address or 'localhost'; names are not looked up")]
    Host,
    #[error(
        "{target} is not known to be in this pod; use localhost, or allow it with annotation {}: {target}",
        super::annotations::WEBHOOK_ALLOW
    )]
    Outside { target: SocketAddr },
}

/// Checks a URL. The pod's own addresses are not known yet, so loopback and `allowed` it is.
pub(super) fn check(text: &str, allowed: &[SocketAddr]) -> Result<(), UrlError> {
    if text.len() > MAX_URL_BYTES {
        return Err(UrlError::Malformed);
    }
    // The agent gets its web hooks as a list.
    if text.contains(',') {
        return Err(UrlError::Comma);
    }
    let uri: Uri = text.parse().map_err(|_| UrlError::Malformed)?;
    let authority = uri.authority().ok_or(UrlError::Malformed)?;
    if uri.scheme_str() != Some("http") {
        return Err(UrlError::Scheme);
    }
    if authority.as_str().contains('@') {
        return Err(UrlError::UserInfo);
    }
    let host = authority.host();
    let port: u16 = match authority.as_str().strip_prefix(host).unwrap_or_default() {
        "" => 80,
        rest => {
            let port = rest.strip_prefix(':').filter(|port| !port.starts_with('+'));
            port.and_then(|port| port.parse().ok()).ok_or(UrlError::Malformed)?
        }
    };
    let ips = match host {
        "localhost" => vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)],
        host => {
            let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let ip: IpAddr = literal.parse().map_err(|_| UrlError::Host)?;
            vec![ip.to_canonical()]
        }
    };
    if port == 0 || ips.iter().any(IpAddr::is_unspecified) {
        return Err(UrlError::Malformed);
    }
    let mut targets = ips.into_iter().map(|ip| SocketAddr::new(ip, port));
    match targets.find(|target| !target.ip().is_loopback() && !allowed.contains(target)) {
        Some(target) => Err(UrlError::Outside { target }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_itself_and_what_is_allowed() {
        let allowed = ["10.9.9.9:8080".parse().unwrap()];
        for good in ["http://127.0.0.1:8080/a?b=c", "http://localhost", "http://[::1]:81/", "http://10.9.9.9:8080/x"] {
            assert_eq!(check(good, &allowed), Ok(()), "{good}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        let outside = |text: &str| UrlError::Outside { target: text.parse().unwrap() };
        for (text, error) in [
            ("http://10.9.9.9:8081/", outside("10.9.9.9:8081")),
            ("http://[::ffff:10.1.1.1]/", outside("10.1.1.1:80")),
            ("https://127.0.0.1/", UrlError::Scheme),
            ("http://example.com/", UrlError::Host),
            ("http://2130706433/", UrlError::Host),
            ("http://127.0.0.1@10.1.1.1/", UrlError::UserInfo),
            ("http://127.0.0.1:0/", UrlError::Malformed),
            ("http://0.0.0.0/", UrlError::Malformed),
            ("http://127.0.0.1/a,b", UrlError::Comma),
            ("/hook", UrlError::Malformed),
            ("", UrlError::Malformed),
        ] {
            assert_eq!(check(text, &[]), Err(error), "{text}");
        }
        assert_eq!(check(&format!("http://127.0.0.1/{}", "a".repeat(2048)), &[]), Err(UrlError::Malformed));
    }
}
