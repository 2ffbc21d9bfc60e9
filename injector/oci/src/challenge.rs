//! What a registry that answers 401 wants: the header `WWW-Authenticate`.

use http_auth::ChallengeRef;

/// How it wants to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// With a name and a password.
    Basic,
    /// With a token of this realm.
    Bearer {
        /// Where tokens are made.
        realm: String,
        /// For whom.
        service: Option<String>,
    },
}

/// The most bytes of a header that are read.
const MAX_BYTES: usize = 8 * 1024;

/// What is understood of the values of the header.
pub fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<Challenge> {
    let values = values.into_iter().filter(|value| value.len() <= MAX_BYTES);
    let parsed = values.filter_map(|value| http_auth::parse_challenges(value).ok());
    parsed.flatten().filter_map(|challenge| understood(&challenge)).collect()
}

fn understood(challenge: &ChallengeRef<'_>) -> Option<Challenge> {
    if challenge.scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !challenge.scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let parameter = |name: &str| {
        let mut found = challenge.params.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name));
        // Of two realms nobody knows which one is meant.
        found.next().filter(|_| found.next().is_none()).map(|(_, value)| value.to_unescaped())
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
        assert_eq!(read([hub]), [bearer("https://auth.docker.io/token", Some("registry.docker.io"))]);
        assert_eq!(read([r#"basic realm="R""#]), [Challenge::Basic]);
        let both = [r#"Basic realm="R", Bearer realm="https://a/b""#, "Negotiate"];
        assert_eq!(read(both), [Challenge::Basic, bearer("https://a/b", None)]);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let long = format!(r#"Bearer realm="https://{}""#, "a".repeat(MAX_BYTES));
        for bad in
            ["", "Bearer", "Bearer realm", r#"Bearer realm="a",realm="b""#, r#"Bearer realm="a"#, "\u{7f}", &long]
        {
            assert_eq!(read([bad]), [], "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(value in "(Bearer|Basic)?[ a-z=\",\\\\]{0,40}\\PC{0,20}") {
            read([value.as_str()]);
        }
    }
}
