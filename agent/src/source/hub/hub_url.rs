//! The hub's URL: a name or an address, with no path.

use std::str::FromStr;

use hyper::Uri;
use rustls::pki_types::ServerName;

/// The error of a text that is not the URL of a hub.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the URL of a hub; write it like https://nudge-hub.nudge-system.svc or https://10.96.0.7:8443")]
pub struct HubUrlError {
    text: String,
}

/// The hub's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubUrl {
    /// The name or address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The name and port as in the URL, the value of `Host`.
    pub authority: String,
    /// The name that the hub's certificate must have.
    pub server_name: ServerName<'static>,
}

impl FromStr for HubUrl {
    type Err = HubUrlError;
    fn from_str(text: &str) -> Result<Self, HubUrlError> {
        let refuse = || HubUrlError { text: text.chars().take(200).collect() };
        let uri: Uri = text.parse().map_err(|_| refuse())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(refuse)?;
        if uri.scheme_str() != Some("https")
            || !matches!(uri.path_and_query().map_or("/", |path| path.as_str()), "/" | "")
        {
            return Err(refuse());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = ServerName::try_from(host.clone()).map_err(|_| refuse())?;
        Ok(Self { port: authority.port_u16().unwrap_or(443), authority: authority.to_string(), host, server_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_with_and_without_a_port() {
        for (text, host, port) in [
            ("https://nudge-hub.nudge-system.svc", "nudge-hub.nudge-system.svc", 443),
            ("https://10.96.0.7:8443/", "10.96.0.7", 8443),
            ("https://[fd00::7]:8443", "fd00::7", 8443),
        ] {
            let url: HubUrl = text.parse().unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
        }
        for bad in
            ["", "hub", "http://hub", "https://", "https://hub/path", "https://me@hub", "https://a b", "https://hub?x"]
        {
            assert!(bad.parse::<HubUrl>().is_err(), "{bad}");
        }
    }
}
