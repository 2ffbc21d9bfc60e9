//! Parses URLs from a registry into the server's address, and the path with the query.

use hyper::Uri;
use nudge_core::outbound::Address;

/// Parses an absolute URL.
pub(crate) fn parse_absolute(url: &str) -> Option<(Address, String)> {
    let (base, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let mut address = Address::parse(base).ok()?;
    let prefix = std::mem::take(&mut address.prefix);
    // `Address` drops the slash at the end, which is part of the path.
    let slash = if base.ends_with('/') || prefix.is_empty() { "/" } else { "" };
    let path = format!("{prefix}{slash}{query}");
    let uri: Uri = path.parse().ok()?;
    (uri.authority().is_none() && uri.path_and_query().is_some()).then_some((address, path))
}

/// Parses a `Location` header, which may be relative to `base`.
pub(crate) fn parse_location(location: &str, base: &Address) -> Option<(Address, String)> {
    if location.starts_with('/') && !location.starts_with("//") {
        let uri: Uri = location.parse().ok()?;
        return Some((base.clone(), uri.path_and_query()?.as_str().to_owned()));
    }
    parse_absolute(location)
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_a_server_and_a_path() {
        let base = Address::parse("https://r.example.com:5000").unwrap();
        let read = |location: &str| {
            parse_location(location, &base).map(|(address, path)| (address.tls, address.authority(), path))
        };
        let parts = |tls, authority: &str, path: &str| Some((tls, authority.to_owned(), path.to_owned()));
        assert_eq!(read("/v2/a?b=/c"), parts(true, "r.example.com:5000", "/v2/a?b=/c"));
        assert_eq!(read("https://s/a/?b=c%20"), parts(true, "s", "/a/?b=c%20"));
        assert_eq!(read("http://s:80"), parts(false, "s", "/"));
        assert_eq!(read("https://s?x"), parts(true, "s", "/?x"));
        for bad in [
            "",
            "a",
            "//s/a",
            "ftp://s",
            "https://user@s/a",
            "https://s/a b",
            "https://s/a?b c",
            "/a b",
            "https://s/#a",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_location_can_be_requested(location in "(https?://|/)\\PC{0,30}") {
            let base = Address::parse("https://r").unwrap();
            if let Some((_, path)) = parse_location(&location, &base) {
                prop_assert!(path.starts_with('/') && Request::get(&path).body(()).is_ok());
            }
        }
    }
}
