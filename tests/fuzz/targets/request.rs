//! A request line, `GET /config?format=env`, is routed without a panic, to exactly the requested resource.
#![cfg_attr(fuzzing, no_main)]

use hyper::Method;
use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_agent::serve::{Call, route};

const PUBLIC: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(line) = std::str::from_utf8(bytes) else { return Corpus::Reject };
    let Some((method, target)) = line.split_once(' ') else { return Corpus::Reject };
    let Ok(method) = method.parse::<Method>() else { return Corpus::Reject };
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    check(&method, path, query);
    Corpus::Keep
});

fn check(method: &Method, path: &str, query: Option<&str>) {
    let call = match route(method, path, query) {
        Ok(call) => call,
        Err(refusal) => {
            assert!([400, 404, 405].contains(&refusal.status().as_u16()));
            assert!(refusal.body().message.len() < 200, "a refusal does not repeat what was asked");
            return;
        }
    };
    let reads = *method == Method::GET || *method == Method::HEAD;
    assert_eq!(call.is_public(), PUBLIC.contains(&path), "only the health paths are public");
    let empty = query.is_none_or(str::is_empty);
    match call {
        Call::Config { wait, candidate, .. } => {
            assert!(reads && path == "/config" && (wait.is_none() || candidate.is_none()));
            assert!(candidate.is_none() || query.is_some_and(|query| query.contains("candidate=")));
            assert!(wait.is_none() || query.is_some_and(|query| query.contains("wait=")));
        }
        Call::Value(key) => {
            assert!(reads && empty);
            assert_eq!(key.into_bytes(), decoded(path.strip_prefix("/config/").unwrap()), "decoded exactly once");
        }
        Call::RemoveHook(id) => {
            assert!(*method == Method::DELETE && empty);
            assert_eq!(id.into_bytes(), decoded(path.strip_prefix("/hooks/").unwrap()), "decoded exactly once");
        }
        Call::AddHook => assert!(*method == Method::POST && path == "/hooks" && empty),
        Call::ListHooks => assert!(reads && path == "/hooks" && empty),
        Call::Status => assert!(reads && path == "/status" && empty),
        Call::Healthz | Call::Readyz | Call::Metrics => assert!(reads && empty),
    }
}

/// Percent decoding as in RFC 3986, section 2.1; what is no escape stands for itself.
fn decoded(mut text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((before, after)) = text.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        if let Some(digits) = digits {
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            text = &after[2..];
        } else {
            bytes.push(b'%');
            text = after;
        }
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
