//! Input of an analysis from users and from their servers: answers, queries, addresses, and the hosts that a Secret is
//! for.
//!
//! The first line is an address, the second one a list of hosts, and the rest a query and an answer.
#![cfg_attr(fuzzing, no_main)]

use hyper::{Request, header};
use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_core::analysis::{MAX_REACH, fill_query, parse_number, reach};
use nudge_core::outbound::Address;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let [Some(url), Some(hosts), Some(rest)] = [lines.next(), lines.next(), lines.next()] else {
        return Corpus::Reject;
    };
    assert_number(rest);
    let (Ok(url), Ok(hosts), Ok(query)) = (str::from_utf8(url), str::from_utf8(hosts), str::from_utf8(rest)) else {
        return Corpus::Keep;
    };
    assert_reach(query);
    match Address::parse(url) {
        Ok(address) => {
            assert_as_written(url, &address);
            assert_can_be_asked(&address);
            assert_is_for_it(hosts, &address);
        }
        Err(error) => assert!(error.to_string().len() < 100),
    }
    Corpus::Keep
});

/// A number is finite and short, and an error repeats nothing of what came.
fn assert_number(answer: &[u8]) {
    match parse_number(answer) {
        Ok(text) => assert!(text.len() <= 32 && text.parse::<f64>().unwrap().is_finite(), "{text}"),
        Err(error) => assert!(error.to_string().len() < 120, "{error}"),
    }
}

/// No range is missed, whatever stands before it; what is filled in changes none.
fn assert_reach(query: &str) {
    let Ok(found) = reach(query) else { return };
    assert!(found <= MAX_REACH);
    if let Ok(more) = reach(&format!("{query}\n+ rate(a[59m])")) {
        assert!(more.as_secs() >= 59 * 60, "{query:?}");
    }
    let filled = fill_query(query, "team", &["web-1".to_owned(), "b\"}[2h]".to_owned()]);
    assert!(!filled.contains("b\"}[2h]") || query.contains("b\"}[2h]"));
}

/// Another reading of the same text: two readings of one URL are how such checks are got around.
fn assert_as_written(url: &str, address: &Address) {
    let (scheme, rest) = url.split_once("://").unwrap();
    assert_eq!(address.tls, scheme == "https");
    let authority = rest.split(['/', '?', '#', '\\', '@']).next().unwrap();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap()),
        _ => (authority, if address.tls { 443 } else { 80 }),
    };
    assert_eq!(address.host, host.trim_matches(['[', ']']).to_ascii_lowercase());
    assert!(address.port == port && port != 0);
}

/// A request can be formed, and nothing of the address gets into another part of it.
fn assert_can_be_asked(address: &Address) {
    let (authority, path) = (address.authority(), format!("{}/api/v1/query", address.prefix));
    assert!(authority.bytes().chain(path.bytes()).all(|byte| byte.is_ascii_graphic()), "{authority} {path}");
    let scheme = if address.tls { "https" } else { "http" };
    assert_eq!(Address::parse(&format!("{scheme}://{authority}{}", address.prefix)).as_ref(), Ok(address));
    // What hyper does not take is an error there.
    if let Ok(request) = Request::post(path).header(header::HOST, authority).body(()) {
        assert!(request.headers().len() == 1 && request.uri().query().is_none());
    }
}

/// A Secret is for a host only if the list has its whole name.
fn assert_is_for_it(hosts: &str, address: &Address) {
    let list = hosts.to_ascii_lowercase();
    let bare = if address.host.contains(':') { format!("[{}]", address.host) } else { address.host.clone() };
    let with_port = format!("{bare}:{}", address.port);
    let listed = list.split([',']).flat_map(str::split_whitespace).any(|one| one == bare || one == with_port);
    assert_eq!(address.is_listed_in(hosts), listed, "{hosts:?} {address:?}");
}
