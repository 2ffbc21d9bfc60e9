//! The check that a browser sends a request to the exact address of the page, from the page itself.
//!
//! A foreign site that finds the port has another origin. A name that points to 127.0.0.1 (DNS rebinding) is another
//! host.

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Request};

/// A reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignRequest {
    /// The `Host` header names another host.
    Host,
    /// The request comes from another site, or does not name its site.
    Origin,
    /// The body is not JSON.
    Type,
}

impl ForeignRequest {
    /// Returns the message of the answer.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Host => "this server answers at 127.0.0.1 and its port only",
            Self::Origin => "this server answers its own page only",
            Self::Type => "the body must be application/json",
        }
    }
}

/// Returns the value of the header, unless there are none or several.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).map(hyper::header::HeaderValue::as_bytes)
}

/// Checks that the request is for this server, and that a request for data comes from the page itself.
pub(crate) fn check<B>(request: &Request<B>, port: u16) -> Result<(), ForeignRequest> {
    let headers = request.headers();
    let host = format!("127.0.0.1:{port}");
    let is_elsewhere = request.uri().authority().is_some();
    if is_elsewhere || only(headers, HOST) != Some(host.as_bytes()) {
        return Err(ForeignRequest::Host);
    }
    let origin = format!("http://{host}");
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // Browsers send no origin with a GET for the same site. A GET reads only files that are the same for everybody.
    let is_own = only(headers, ORIGIN) == Some(origin.as_bytes()) || reads && !headers.contains_key(ORIGIN);
    if !is_own {
        return Err(ForeignRequest::Origin);
    }
    // A form of a foreign site can't send this type without asking first.
    if !reads && only(headers, CONTENT_TYPE) != Some(b"application/json") {
        return Err(ForeignRequest::Type);
    }
    Ok(())
}

/// Returns the token in the header `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> &str {
    let value = only(headers, AUTHORIZATION).and_then(|value| std::str::from_utf8(value).ok());
    value.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 4711;
    const OWN: (&str, &str) = ("host", "127.0.0.1:4711");
    const JSON: (&str, &str) = ("content-type", "application/json");

    fn checked(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(), ForeignRequest> {
        let builder = Request::builder().method(method).uri(uri);
        let builder = headers.iter().fold(builder, |builder, &(name, value)| builder.header(name, value));
        check(&builder.body(()).unwrap(), PORT)
    }

    #[test]
    fn the_host_must_be_exact() {
        assert_eq!(checked("GET", "/", &[OWN]), Ok(()));
        for host in [
            "localhost:4711",
            "127.0.0.1",
            "127.0.0.1:4712",
            "127.0.0.1:4711.evil.example",
            "evil.example:4711",
            "evil.example",
            "[::1]:4711",
            "127.0.0.1:04711",
            "127.1:4711",
            "",
        ] {
            assert_eq!(checked("GET", "/", &[("host", host)]), Err(ForeignRequest::Host), "{host}");
        }
        assert_eq!(checked("GET", "/", &[]), Err(ForeignRequest::Host));
        assert_eq!(checked("GET", "/", &[OWN, OWN]), Err(ForeignRequest::Host), "two of them");
        assert_eq!(checked("GET", "http://127.0.0.1:4711/", &[OWN]), Err(ForeignRequest::Host), "a proxy's request");
    }

    #[test]
    fn the_origin_must_be_exact() {
        let post = |origins: &[&str]| {
            let origins = origins.iter().map(|origin| ("origin", *origin));
            checked("POST", "/api/feed", &[OWN, JSON].into_iter().chain(origins).collect::<Vec<_>>())
        };
        assert_eq!(post(&["http://127.0.0.1:4711"]), Ok(()));
        for origin in [
            "null",
            "https://127.0.0.1:4711",
            "http://127.0.0.1",
            "http://127.0.0.1:4712",
            "http://localhost:4711",
            "http://evil.example",
            "http://127.0.0.1:4711/",
            "http://127.0.0.1:4711.evil.example",
        ] {
            assert_eq!(post(&[origin]), Err(ForeignRequest::Origin), "{origin}");
            assert_eq!(checked("GET", "/", &[OWN, ("origin", origin)]), Err(ForeignRequest::Origin), "{origin}");
        }
        assert_eq!(post(&[]), Err(ForeignRequest::Origin));
        assert_eq!(post(&["http://127.0.0.1:4711", "http://evil.example"]), Err(ForeignRequest::Origin));
        assert_eq!(checked("PUT", "/", &[OWN, JSON]), Err(ForeignRequest::Origin));
        assert_eq!(checked("OPTIONS", "/", &[OWN]), Err(ForeignRequest::Origin), "nobody else is given permission");
    }

    #[test]
    fn a_form_of_a_foreign_site_has_another_type() {
        let own = ("origin", "http://127.0.0.1:4711");
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json, text/plain"] {
            assert_eq!(checked("POST", "/", &[OWN, own, ("content-type", kind)]), Err(ForeignRequest::Type), "{kind}");
        }
        assert_eq!(checked("POST", "/", &[OWN, own]), Err(ForeignRequest::Type));
    }

    #[test]
    fn the_token_is_a_bearer_token() {
        let headers_with = |values: &[&str]| {
            let headers: HeaderMap = values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect();
            bearer(&headers).to_owned()
        };
        assert_eq!(headers_with(&["Bearer abc"]), "abc");
        for other in [&["abc"][..], &["bearer abc"], &["Basic abc"], &[]] {
            assert_eq!(headers_with(other), "", "{other:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(AUTHORIZATION, "Bearer a".parse().unwrap());
        twice.append(AUTHORIZATION, "Bearer b".parse().unwrap());
        assert_eq!(bearer(&twice), "");
    }
}
