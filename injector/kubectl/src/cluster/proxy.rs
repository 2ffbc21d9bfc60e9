//! Finds the proxy to the API server as client-go does: the one of the kubeconfig, or else the one of the environment,
//! unless NO_PROXY excepts the server.
//!
//! The library chooses by the address of the proxy instead of the server's.

use std::net::IpAddr;

use hyper::Uri;
use nudge_core::outbound::AddressRange;

/// The fault of a proxy with another scheme.
const SCHEMES: &str = "is not a URL that begins with http://, https:// or socks5://";

/// The variables of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variables {
    /// The proxy for servers with TLS.
    pub(super) https: Option<String>,
    /// The proxy for servers without TLS.
    pub(super) http: Option<String>,
    /// The servers that are reached without a proxy.
    pub(super) no_proxy: Option<String>,
}

impl Variables {
    /// Reads the proxies from variables; upper case takes precedence.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&str; 2]| names.into_iter().filter_map(&variable).find(|value| !value.is_empty());
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            no_proxy: first(["NO_PROXY", "no_proxy"]),
        }
    }
}

/// Returns the proxy for this server, or the reason why the named proxy can't be used. `proxy_url` is the field of the
/// kubeconfig; NO_PROXY has no effect on it.
pub(super) fn proxy(proxy_url: Option<&str>, variables: &Variables, server: &Uri) -> Result<Option<Uri>, String> {
    if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
        let proxy = parse_proxy(url).ok_or_else(|| format!("proxy-url {SCHEMES}"))?;
        return to_client_proxy(&proxy, "proxy-url").map(Some);
    }
    let tls = server.scheme_str() == Some("https");
    let (url, name) = if tls { (&variables.https, "HTTPS_PROXY") } else { (&variables.http, "HTTP_PROXY") };
    let Some(url) = url else { return Ok(None) };
    let (host, port) = (server.host().unwrap_or_default(), server.port_u16().unwrap_or(if tls { 443 } else { 80 }));
    if is_direct(variables.no_proxy.as_deref().unwrap_or_default(), host, port) {
        return Ok(None);
    }
    // A proxy without a scheme is one of HTTP. A text that is not a URL at all names no proxy.
    let proxy = if url.contains("://") { parse_proxy(url) } else { parse_proxy(&format!("http://{url}")) };
    match proxy {
        Some(proxy) => to_client_proxy(&proxy, name).map(Some),
        None if url.parse::<Uri>().is_ok() => Err(format!("{name} {SCHEMES}")),
        None => Ok(None),
    }
}

fn parse_proxy(url: &str) -> Option<Uri> {
    let url: Uri = url.parse().ok()?;
    let is_known = matches!(url.scheme_str()?, "http" | "https" | "socks5" | "socks5h");
    (is_known && url.host().is_some_and(|host| !host.is_empty())).then_some(url)
}

/// Converts the proxy to a URL that the client takes.
fn to_client_proxy(proxy: &Uri, name: &str) -> Result<Uri, String> {
    if !proxy.scheme_str().is_some_and(|scheme| scheme.starts_with("socks5")) {
        return Ok(proxy.clone());
    }
    let host = proxy.host().unwrap_or_default();
    if proxy.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(format!("{name} has a user for a SOCKS proxy, which is not supported; use an HTTP proxy"));
    }
    // The proxy looks up the name of the server in any case.
    let url = format!("socks5://{host}:{}", proxy.port_u16().unwrap_or(1080));
    url.parse().map_err(|_| format!("{name} is not a URL"))
}

/// Returns whether the server is reached without a proxy.
fn is_direct(no_proxy: &str, host: &str, port: u16) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let entries = no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    entries.filter(|entry| !entry.is_empty()).any(|entry| excepts(&entry, &host, address, port))
}

/// Returns whether an entry of NO_PROXY applies to the server. An entry is `*`, a range, an address, a name that
/// includes its subdomains, or `.name` for the subdomains alone.
fn excepts(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(range) = entry.parse::<AddressRange>() {
        return address.is_some_and(|address| range.contains(address));
    }
    let (name, entry_port) = split(entry);
    if name.is_empty() || entry_port.is_some_and(|entry_port| !entry_port.is_empty() && entry_port != port.to_string())
    {
        return false;
    }
    if let Ok(excepted) = name.parse::<IpAddr>() {
        return address == Some(excepted.to_canonical());
    }
    let name = name.strip_prefix('*').filter(|domain| domain.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|before| before.ends_with('.')),
    }
}

/// Splits an entry into its name or address, and its port.
fn split(entry: &str) -> (&str, Option<&str>) {
    if let Some((name, port)) = entry.strip_prefix('[').and_then(|inner| inner.split_once("]:")) {
        return (name, Some(port));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => (name, Some(port)),
        _ => (entry, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decided(of_cluster: Option<&str>, variables: &[(&str, &str)], server: &str) -> Result<Option<String>, String> {
        let value =
            |name: &str| variables.iter().find(|variable| variable.0 == name).map(|variable| variable.1.to_owned());
        let url = proxy(of_cluster, &Variables::read(value), &server.parse().unwrap())?;
        Ok(url.map(|proxy| proxy.to_string()))
    }

    const SERVER: &str = "https://api.example.com:6443";

    #[test]
    fn the_kubeconfig_comes_first_then_the_variable_of_the_scheme() {
        let all = [("HTTPS_PROXY", "http://secure:1"), ("HTTP_PROXY", "http://plain:2")];
        let proxy_of = |variables: &[(&str, &str)], server: &str| decided(None, variables, server).unwrap();
        for (variables, server, expected) in [
            (&all[..], SERVER, Some("http://secure:1/")),
            (&all[..], "http://api.example.com", Some("http://plain:2/")),
            (&all[1..], SERVER, None),
            (&all[..1], "http://api.example.com", None),
            (&[], SERVER, None),
            (&[("https_proxy", "http://lower:3")], SERVER, Some("http://lower:3/")),
            (&[("HTTPS_PROXY", ""), ("https_proxy", "http://lower:3")], SERVER, Some("http://lower:3/")),
            (&[("https_proxy", "http://lower:3"), all[0]], SERVER, Some("http://secure:1/")),
            // A scheme that is left out is http. A name alone would be a URL without a host.
            (&[("HTTPS_PROXY", "127.0.0.1:8080")], SERVER, Some("http://127.0.0.1:8080/")),
            (&[("HTTPS_PROXY", "cache.corp.example.com:1234")], SERVER, Some("http://cache.corp.example.com:1234/")),
            (&[("HTTPS_PROXY", "cache.corp.example.com")], SERVER, Some("http://cache.corp.example.com/")),
            (&[("HTTPS_PROXY", "localhost")], SERVER, Some("http://localhost/")),
            (&[("HTTPS_PROXY", "https://secure")], SERVER, Some("https://secure/")),
            (&[("HTTPS_PROXY", "http://user:p%40ss@secure:1")], SERVER, Some("http://user:p%40ss@secure:1/")),
            (&[("HTTPS_PROXY", "socks5://socks")], SERVER, Some("socks5://socks:1080/")),
            (&[("HTTPS_PROXY", "socks5h://[::2]:9")], SERVER, Some("socks5://[::2]:9/")),
            (&[("HTTPS_PROXY", "http://no url at all")], SERVER, None),
        ] {
            assert_eq!(proxy_of(variables, server).as_deref(), expected, "{variables:?} {server}");
        }
        assert!(
            decided(None, &[("HTTPS_PROXY", "ftp://cache")], SERVER).unwrap_err().starts_with("HTTPS_PROXY is not")
        );
        let proxy_named = |url: &str| decided(Some(url), &[all[0], ("NO_PROXY", "*")], SERVER);
        assert_eq!(
            proxy_named("http://own:4").unwrap().as_deref(),
            Some("http://own:4/"),
            "NO_PROXY is for the variables"
        );
        assert_eq!(proxy_named("").unwrap(), None, "an empty one is none");
        for odd in ["own:4", "ftp://own", "http://"] {
            assert!(proxy_named(odd).unwrap_err().contains("proxy-url"), "{odd}");
        }
        assert!(proxy_named("socks5://user:hunter2@own").is_err_and(|error| !error.contains("hunter2")));
    }

    #[test]
    fn no_proxy_is_read_as_kubectl_reads_it() {
        let list = "corp.example, .below.example, *.wild.example, 192.0.2.1, 192.0.2.2:81, 192.0.2.3:80, 10.0.0.0/30, \
                    2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64, named:80, ,:1, a/b, 1.2.3.4/40";
        for (host, direct) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.0.0.2", true),
            ("[::1]", true),
            ("[::2]", false),
            ("192.0.2.1", true),
            ("[::ffff:192.0.2.1]", true),
            ("192.0.2.2", false),
            ("192.0.2.3", true),
            ("192.0.2.4", false),
            ("10.0.0.2", true),
            ("10.0.0.4", false),
            ("[2001:db8::52:0:1]", true),
            ("[2001:db8::52:0:2]", false),
            ("[2001:db8::52:0:3]", true),
            ("[2002:db8:a::123]", true),
            ("[2002:db8:a:1::123]", false),
            ("corp.example", true),
            ("API.corp.example", true),
            ("acorp.example", false),
            ("below.example", false),
            ("api.below.example", true),
            ("wild.example", false),
            ("api.wild.example", true),
            ("awild.example", false),
            ("named", true),
            ("api.named", true),
            ("localhost.example", false),
            ("api.localhost", false),
        ] {
            assert_eq!(is_direct(list, host, 80), direct, "{host}");
        }
        assert!(is_direct(list, "192.0.2.2", 81) && !is_direct(list, "named", 81));
        for all in ["*", " * ", "other, *"] {
            assert!(is_direct(all, "api.example.com", 443), "{all}");
        }
        for none in ["", ",", ":1", "exa mple.com", "*.", "[", "/8"] {
            assert!(!is_direct(none, "api.example.com", 443), "{none}");
        }
        assert!(is_direct("0.0.0.0/0", "198.51.100.7", 443) && !is_direct("0.0.0.0/0", "[2001:db8::1]", 443));
        assert!(is_direct("::/0", "[2001:db8::1]", 443) && !is_direct("198.51.100.8/32", "198.51.100.7", 443));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(list in "[a.*/:,0-9\\[\\] ]{0,30}", host in "[a.:0-9]{0,12}", port: u16) {
            let _ = is_direct(&list, &host, port);
        }
    }
}
