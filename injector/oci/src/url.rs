//! URLs that a registry names: the server, and what it is asked for.

use hyper::Uri;
use nudge_core::outbound::Address;

/// The server of a URL, and path and query.
pub(crate) fn absolute(url: &str) -> Option<(Address, String)> {
    let (before, query) = url.split_once('?').map_or((url, None), |(before, query)| (before, Some(query)));
    let Address { prefix, .. } = Address::parse(before).ok()?;
    let address = Address { prefix: String::new(), ..Address::parse(before).ok()? };
    // The slash at the end is part of the path.
    let slash = if before.ends_with('/') || prefix.is_empty() { "/" } else { "" };
    let path = query.map_or_else(|| format!("{prefix}{slash}"), |query| format!("{prefix}{slash}?{query}"));
    let uri: Uri = path.parse().ok()?;
    (uri.authority().is_none() && uri.path_and_query().is_some()).then_some((address, path))
}

/// Parses a `Location` header, which may be relative to `base`.
pub(crate) fn located(location: &str, base: &Address) -> Option<(Address, String)> {
    if location.starts_with('/') && !location.starts_with("//") {
        let uri: Uri = location.parse().ok()?;
        return Some((base.clone(), uri.path_and_query()?.as_str().to_owned()));
    }
    absolute(location)
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_a_server_and_a_path() {
        let base = Address::parse("https://r.example.com:5000").unwrap();
        let read =
            |location: &str| located(location, &base).map(|(address, path)| (address.tls, address.authority(), path));
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
        fn what_is_located_can_be_asked(location in "(https?://|/)\\PC{0,30}") {
            let base = Address::parse("https://r").unwrap();
            if let Some((_, path)) = located(&location, &base) {
                prop_assert!(path.starts_with('/') && Request::get(&path).body(()).is_ok());
            }
        }
    }
}
