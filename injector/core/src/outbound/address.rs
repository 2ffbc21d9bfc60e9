//! The address of a server: what of the URL is used, and nothing more.

/// An address that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither http nor https.
    #[error("it must begin with http:// or https://")]
    Scheme,
    /// A user, a query or a fragment.
    #[error("it must not have a user, a password, ? or #")]
    More,
    /// No host, or not one.
    #[error("it names no host")]
    Host,
    /// A port that is none.
    #[error("its port is not between 1 and 65535")]
    Port,
    /// A path that is none.
    #[error("its path may hold letters, digits and -._~/% only")]
    Path,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the address is reached by TLS.
    pub tls: bool,
    /// The name or the IP address, without brackets, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What its paths begin with, without a slash at the end.
    pub prefix: String,
}

impl Address {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(AddressError::Scheme),
        };
        if rest.contains(['@', '?', '#', '\\']) {
            return Err(AddressError::More);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let in_path = |it: char| it.is_ascii_alphanumeric() || "-._~/%".contains(it);
        if !path.chars().all(in_path) {
            return Err(AddressError::Path);
        }
        let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or(AddressError::Host)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| AddressError::Host)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(AddressError::Port)?) })
        } else {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        let in_name = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
        if host.is_empty() || host.len() > 253 || (!authority.starts_with('[') && !host.chars().all(in_name)) {
            return Err(AddressError::Host);
        }
        let port = match port {
            Some(port) if port.chars().all(|it| it.is_ascii_digit()) => port.parse().map_err(|_| AddressError::Port)?,
            Some(_) => return Err(AddressError::Port),
            None if tls => 443,
            None => 80,
        };
        if port == 0 {
            return Err(AddressError::Port);
        }
        Ok(Self { tls, host: host.to_ascii_lowercase(), port, prefix: path.trim_end_matches('/').to_owned() })
    }

    /// What a request says whom it asks.
    pub fn authority(&self) -> String {
        let Self { host, port, tls, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == if *tls { 443 } else { 80 } { host } else { format!("{host}:{port}") }
    }

    /// Returns whether a list of hosts, such as `prometheus.monitoring.svc, metrics.example.com:8443`, has this one. A host without a port stands for
    /// all of its ports.
    pub fn is_in(&self, hosts: &str) -> bool {
        let mut hosts = hosts.split(|it: char| it == ',' || it.is_whitespace()).filter(|host| !host.is_empty());
        let own = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        hosts.any(|host| {
            let host = host.to_ascii_lowercase();
            host == own || host == format!("{own}:{}", self.port)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_read() {
        let read = |url: &str| {
            let Address { tls, host, port, prefix } = Address::parse(url).unwrap();
            (tls, host, port, prefix)
        };
        let of = |tls, host: &str, port, prefix: &str| (tls, host.to_owned(), port, prefix.to_owned());
        assert_eq!(read("http://prometheus:9090"), of(false, "prometheus", 9090, ""));
        assert_eq!(read("https://P.example.com/a/b/"), of(true, "p.example.com", 443, "/a/b"));
        assert_eq!(read("http://[fd00::1]:9090/"), of(false, "fd00::1", 9090, ""));
        assert_eq!(Address::parse("http://[fd00::1]:9090").unwrap().authority(), "[fd00::1]:9090");
        assert_eq!(Address::parse("https://a").unwrap().authority(), "a");
    }

    #[test]
    fn nothing_else_is() {
        for (url, error) in [
            ("ftp://a", AddressError::Scheme),
            ("a:9090", AddressError::Scheme),
            ("http://user:secret@a", AddressError::More),
            ("http://a?b", AddressError::More),
            ("http://a\\@b", AddressError::More),
            ("http://", AddressError::Host),
            ("http://a b", AddressError::Host),
            ("http://[::1", AddressError::Host),
            ("http://[a]", AddressError::Host),
            ("http://a:0", AddressError::Port),
            ("http://a:70000", AddressError::Port),
            ("http://a:+1", AddressError::Port),
            ("http://a/\r\nHost: b", AddressError::Path),
        ] {
            assert_eq!(Address::parse(url), Err(error), "{url:?}");
        }
    }

    #[test]
    fn a_secret_is_for_the_hosts_that_it_names() {
        let address = Address::parse("https://metrics.example.com:8443").unwrap();
        for (hosts, is_in) in [
            ("metrics.example.com", true),
            ("a, METRICS.example.com:8443", true),
            ("a metrics.example.com", true),
            ("metrics.example.com:443", false),
            ("example.com", false),
            ("evil-metrics.example.com", false),
            ("metrics.example.com.evil", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(address.is_in(hosts), is_in, "{hosts}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_can_stand_in_a_request(url in "https?://\\PC{0,30}") {
            if let Ok(address) = Address::parse(&url) {
                let text = format!("{}{}", address.authority(), address.prefix);
                prop_assert!(text.bytes().all(|it| it.is_ascii_graphic()), "{text:?}");
                prop_assert_eq!(Address::parse(&format!("{}://{text}", if address.tls { "https" } else { "http" })), Ok(address));
            }
        }
    }
}
