//! Nothing but the token authorizes, alone or behind `Bearer`, however near it comes.
#![cfg_attr(fuzzing, no_main)]

use libfuzzer_sys::fuzz_target;
use nudge_agent::identity::Token;

const TEXT: &str = "bnVkZ2UgZnV6eiB0b2tlbiBvZiAzMiBieXRlcyEhISE=";

fuzz_target!(|bytes: &[u8]| {
    let token = Token::parse(TEXT).unwrap();
    given(&token, bytes);
    for near in near(bytes) {
        given(&token, &near);
        given(&token, &[b"Bearer ", &near[..]].concat());
    }
    stored(bytes);
});

fn given(token: &Token, authorization: &[u8]) {
    assert_eq!(token.authorizes(authorization), is_right(authorization), "{}", authorization.escape_ascii());
}

/// Whether there is the token with white space behind it, and before it nothing or `Bearer` and white space.
fn is_right(authorization: &[u8]) -> bool {
    let found = authorization.windows(TEXT.len()).position(|window| window == TEXT.as_bytes());
    let Some(at) = found else { return false };
    let (before, after) = (&authorization[..at], &authorization[at + TEXT.len()..]);
    let bearer = |scheme: &[u8]| scheme.eq_ignore_ascii_case(b"bearer ");
    let scheme = before.is_empty() || before.split_at_checked(7).is_some_and(|(one, two)| bearer(one) && is_blank(two));
    scheme && is_blank(after)
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// The token with one byte changed, cut short, and with the input put in: what blind mutation would hardly hit upon.
fn near(bytes: &[u8]) -> Vec<Vec<u8>> {
    let [at, byte, rest @ ..] = bytes else { return Vec::new() };
    let at = usize::from(*at) % TEXT.len();
    let (before, after) = TEXT.as_bytes().split_at(at);
    let changed = [before, &[*byte], &after[1..]].concat();
    vec![before.to_vec(), after.to_vec(), [before, rest, after].concat(), changed]
}

fn stored(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = Token::parse(text) {
        assert_eq!(token.expose(), text.trim());
        assert_eq!(token.secret().len(), 32);
        assert!(token.authorizes(token.expose().as_bytes()));
        let same = *token.secret() == *Token::parse(TEXT).unwrap().secret();
        assert_eq!(same, token.expose() == TEXT, "no secret has two texts");
    }
}
