//! The targets that webhooks may have: by default only the pod itself. The agent checks every webhook. The injector
//! checks those in a pod's annotations, so that it admits no pod whose agent would not start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::Uri;

/// The maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 2048;

/// The reason why a URL can't be the target of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    /// The URL can't be read.
    #[error("the URL can't be read; write it like http://127.0.0.1:8080/changed, with at most {MAX_URL_BYTES} bytes")]
    Malformed,
    /// The URL is not plain HTTP. Events do not leave the pod, and each one is signed.
    #[error("the URL must begin with http://; events stay in the pod and are signed")]
    Scheme,
    /// The URL has a user or password in it.
    #[error("the URL must not contain a user or password")]
    UserInfo,
    /// The host is a name.
    #[error("the URL's host must be an IP address or 'localhost'; names are not looked up")]
    Host,
    /// The URL contains a comma, which separates the items of a list.
    #[error("a URL in this setting must not contain a comma, which would end it; write %2C")]
    Listed,
    /// The host is not in the pod.
    #[error(
        "{0} is not in this pod; allow it with --webhook-allow {0} (in a pod with the annotation nudge.dev/webhook-allow)"
    )]
    Outside(SocketAddr),
}

/// A URL that has the right form. Its target is not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    host: String,
    path: String,
    addresses: Vec<SocketAddr>,
}

impl WebhookUrl {
    /// Returns the URL as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for WebhookUrl {
    type Err = WebhookUrlError;

    fn from_str(text: &str) -> Result<Self, WebhookUrlError> {
        if text.len() > MAX_URL_BYTES {
            return Err(WebhookUrlError::Malformed);
        }
        let uri: Uri = text.parse().map_err(|_| WebhookUrlError::Malformed)?;
        let authority = uri.authority().ok_or(WebhookUrlError::Malformed)?;
        if uri.scheme_str() != Some("http") {
            return Err(WebhookUrlError::Scheme);
        }
        if authority.as_str().contains('@') {
            return Err(WebhookUrlError::UserInfo);
        }
        let host = authority.host();
        // `Authority::port` has no answer for a port that is too large, as for one that is not there.
        let port = match authority.as_str().strip_prefix(host).unwrap_or_default() {
            "" => 80,
            // Rust's numbers may begin with a plus sign, ports may not.
            rest => {
                let port = rest.strip_prefix(':').filter(|port| !port.starts_with('+'));
                port.and_then(|port| port.parse().ok()).ok_or(WebhookUrlError::Malformed)?
            }
        };
        let ips = match host {
            // Servers on "localhost" listen on one of the two or on both.
            "localhost" => vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)],
            host => {
                let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                let ip: IpAddr = literal.parse().map_err(|_| WebhookUrlError::Host)?;
                vec![ip.to_canonical()]
            }
        };
        if port == 0 || ips.iter().any(IpAddr::is_unspecified) {
            return Err(WebhookUrlError::Malformed);
        }
        let addresses = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        // A URL may leave out the slash between host and query; a request may not (RFC 9112, section 3.2.1).
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { text: text.to_owned(), host: authority.to_string(), path, addresses })
    }
}

/// A URL whose target is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTarget(WebhookUrl);

impl WebhookTarget {
    /// Returns the URL as it was given.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the addresses to try in turn.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// Returns the value of the `Host` header.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Returns the request target: path and query.
    pub fn path(&self) -> &str {
        &self.0.path
    }
}

/// The policy that says which targets are allowed.
#[derive(Clone, Debug, Default)]
pub struct TargetPolicy {
    pod_addresses: Vec<IpAddr>,
    allowed: Vec<SocketAddr>,
}

impl TargetPolicy {
    /// Creates a policy that allows loopback, the pod's own addresses, and the addresses of `allowed`.
    pub fn new(pod_addresses: Vec<IpAddr>, allowed: Vec<SocketAddr>) -> Self {
        Self { pod_addresses, allowed }
    }

    /// Checks the target of a URL. Once is enough: an address, unlike a name, always means the same target.
    pub fn check(&self, url: WebhookUrl) -> Result<WebhookTarget, WebhookUrlError> {
        let inside = |target: &SocketAddr| target.ip().is_loopback() || self.pod_addresses.contains(&target.ip());
        match url.addresses.iter().find(|target| !inside(target) && !self.allowed.contains(target)) {
            Some(&target) => Err(WebhookUrlError::Outside(target)),
            None => Ok(WebhookTarget(url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str) -> Result<WebhookTarget, WebhookUrlError> {
        let policy = TargetPolicy::new(vec!["10.0.0.7".parse().unwrap()], vec!["10.9.9.9:8080".parse().unwrap()]);
        policy.check(text.parse()?)
    }

    #[test]
    fn the_pod_itself_and_allowed_targets_are_accepted() {
        let target = check("http://127.0.0.1:8080/a?b=c").unwrap();
        assert_eq!((target.host(), target.path()), ("127.0.0.1:8080", "/a?b=c"));
        assert_eq!(check("http://localhost").unwrap().addresses().len(), 2);
        assert_eq!(check("http://[::1]:81/").unwrap().addresses(), ["[::1]:81".parse().unwrap()]);
        assert!(check("http://10.0.0.7/").is_ok() && check("http://10.9.9.9:8080/").is_ok());
        assert!(check("http://[::ffff:127.0.0.1]/").is_ok());
    }

    #[test]
    fn other_targets_are_refused_each_with_its_reason() {
        let outside = |text: &str| WebhookUrlError::Outside(text.parse().unwrap());
        for (text, error) in [
            ("http://169.254.169.254/latest", outside("169.254.169.254:80")),
            ("http://10.9.9.9:8081/", outside("10.9.9.9:8081")),
            ("http://[::ffff:10.1.1.1]/", outside("10.1.1.1:80")),
            ("https://127.0.0.1/", WebhookUrlError::Scheme),
            ("file:///etc/passwd", WebhookUrlError::Malformed),
            ("http://example.com/", WebhookUrlError::Host),
            ("http://127.1/", WebhookUrlError::Host),
            ("http://2130706433/", WebhookUrlError::Host),
            ("http://localhost.example.com/", WebhookUrlError::Host),
            ("http://127.0.0.1@10.1.1.1/", WebhookUrlError::UserInfo),
            ("http://127.0.0.1:0/", WebhookUrlError::Malformed),
            ("http://127.0.0.1:99999/", WebhookUrlError::Malformed),
            ("http://0.0.0.0/", WebhookUrlError::Malformed),
            ("/hook", WebhookUrlError::Malformed),
            ("", WebhookUrlError::Malformed),
        ] {
            assert_eq!(check(text), Err(error), "{text}");
        }
        assert_eq!(check(&format!("http://127.0.0.1/{}", "a".repeat(2048))), Err(WebhookUrlError::Malformed));
    }

    proptest! {
        #[test]
        fn every_accepted_target_is_loopback_or_allowed(text in "http://[0-9a-z.:@%\\[\\]]{1,20}(/.{0,5})?") {
            if let Ok(target) = check(&text) {
                for address in target.addresses() {
                    prop_assert!(address.ip().is_loopback() || ["10.0.0.7", "10.9.9.9"].contains(&address.ip().to_string().as_str()));
                }
            }
        }
    }
}
