//! The authentication that a registry requires by status 401 and the header `WWW-Authenticate`.

use http_auth::ChallengeRef;

/// An authentication that a registry requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A name and a password.
    Basic,
    /// A token of a realm.
    Bearer {
        /// The URL of the token realm.
        realm: String,
        /// The service that the token is for.
        service: Option<String>,
    },
}

/// The maximum bytes of a header that is read.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// Parses the values of the header. Challenges of other schemes are left out.
pub fn parse_challenges<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<Challenge> {
    let values = values.into_iter().filter(|value| value.len() <= MAX_HEADER_BYTES);
    let parsed = values.filter_map(|value| http_auth::parse_challenges(value).ok());
    parsed.flatten().filter_map(|challenge| supported_challenge(&challenge)).collect()
}

fn supported_challenge(challenge: &ChallengeRef<'_>) -> Option<Challenge> {
    if challenge.scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !challenge.scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let parameter = |name: &str| {
        let mut values = challenge.params.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        // With two realms, it is unknown which one is meant.
        values.next().filter(|_| values.next().is_none()).map(|(_, value)| value.to_unescaped())
    };
    Some(Challenge::Bearer { realm: parameter("realm")?, service: parameter("service") })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) }
    }

    #[test]
    fn challenges_are_read() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="a:b:pull",error="invalid_token""#;
        assert_eq!(parse_challenges([hub]), [bearer("https://auth.docker.io/token", Some("registry.docker.io"))]);
        assert_eq!(parse_challenges([r#"basic realm="R""#]), [Challenge::Basic]);
        let both = [r#"Basic realm="R", Bearer realm="https://a/b""#, "Negotiate"];
        assert_eq!(parse_challenges(both), [Challenge::Basic, bearer("https://a/b", None)]);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let long = format!(r#"Bearer realm="https://{}""#, "a".repeat(MAX_HEADER_BYTES));
        for bad in
            ["", "Bearer", "Bearer realm", r#"Bearer realm="a",realm="b""#, r#"Bearer realm="a"#, "\u{7f}", &long]
        {
            assert_eq!(parse_challenges([bad]), [], "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(value in "(Bearer|Basic)?[ a-z=\",\\\\]{0,40}\\PC{0,20}") {
            parse_challenges([value.as_str()]);
        }
    }
}
