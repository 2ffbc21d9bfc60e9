//! The address of a server, with only the parts of its URL that are used.

/// The reason why an address can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is neither http nor https.
    #[error("it must begin with http:// or https://")]
    Scheme,
    /// The URL has a user, a query or a fragment.
    #[error("it must not have a user, a password, ? or #")]
    ExtraPart,
    /// The host is missing or invalid.
    #[error("it names no host")]
    Host,
    /// The port is invalid.
    #[error("its port is not between 1 and 65535")]
    Port,
    /// The path is invalid.
    #[error("its path may hold letters, digits and -._~/% only")]
    Path,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the address is reached by TLS.
    pub tls: bool,
    /// The name or the IP address, without brackets, in lower case.
    pub host: String,
    /// The port, or else the default of the scheme.
    pub port: u16,
    /// The prefix of all paths, without a slash at the end.
    pub prefix: String,
}

impl Address {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let (tls, remainder) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(remainder), _) => (true, remainder),
            (_, Some(remainder)) => (false, remainder),
            _ => return Err(AddressError::Scheme),
        };
        if remainder.contains(['@', '?', '#', '\\']) {
            return Err(AddressError::ExtraPart);
        }
        let (authority, path) = remainder.split_at(remainder.find('/').unwrap_or(remainder.len()));
        let in_path = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
        if !path.chars().all(in_path) {
            return Err(AddressError::Path);
        }
        let (host, port) = if let Some(remainder) = authority.strip_prefix('[') {
            let (host, port) = remainder.split_once(']').ok_or(AddressError::Host)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| AddressError::Host)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(AddressError::Port)?) })
        } else {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        let in_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if host.is_empty() || host.len() > 253 || (!authority.starts_with('[') && !host.chars().all(in_name)) {
            return Err(AddressError::Host);
        }
        let port = match port {
            Some(port) if port.chars().all(|c| c.is_ascii_digit()) => port.parse().map_err(|_| AddressError::Port)?,
            Some(_) => return Err(AddressError::Port),
            None if tls => 443,
            None => 80,
        };
        if port == 0 {
            return Err(AddressError::Port);
        }
        Ok(Self { tls, host: host.to_ascii_lowercase(), port, prefix: path.trim_end_matches('/').to_owned() })
    }

    /// Returns the authority of requests, with the port if it is not the default.
    pub fn authority(&self) -> String {
        let Self { host, port, tls, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == if *tls { 443 } else { 80 } { host } else { format!("{host}:{port}") }
    }

    /// Returns whether a list of hosts, such as `prometheus.monitoring.svc, metrics.example.com:8443`, contains this
    /// host. A host without a port stands for all of its ports.
    pub fn is_listed_in(&self, hosts: &str) -> bool {
        let mut hosts = hosts.split(|c: char| c == ',' || c.is_whitespace()).filter(|host| !host.is_empty());
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
            ("http://user:secret@a", AddressError::ExtraPart),
            ("http://a?b", AddressError::ExtraPart),
            ("http://a\\@b", AddressError::ExtraPart),
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
            assert_eq!(address.is_listed_in(hosts), is_in, "{hosts}");
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
