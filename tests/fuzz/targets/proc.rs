//! Files of `/proc`, whole and with the input as a process's name: no parser panics, and no name passes for another
//! field.
#![cfg_attr(fuzzing, no_main)]

use libfuzzer_sys::fuzz_target;
use nudge_agent::proc::{cgroup_names_container, parse_children, parse_start_time, parse_status};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const STATUS: &[u8] = b"State:\tS (sleeping)\nPPid:\t3\nUid:\t1000\t1000\t0\t0\nSigIgn:\t0000000000001000\n\
    SigCgt:\t0000000180000a00\n";

const STAT: &[u8] = b") S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4711 23\n";

fuzz_target!(|bytes: &[u8]| {
    if let Ok(status) = parse_status(bytes) {
        for signal in -70..=130 {
            let there = |mask: u64| (1..=64).contains(&signal) && mask & (1 << (signal - 1)) != 0;
            assert_eq!(status.catches(signal), there(status.caught));
            assert_eq!(status.ignores(signal), there(status.ignored));
        }
    }
    let _ = parse_start_time(bytes);
    children(bytes);
    cgroup(bytes);
    name(bytes);
});

fn children(bytes: &[u8]) {
    let pids = parse_children(bytes);
    let words = bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
    assert!(pids.len() <= words && pids.iter().all(|&pid| pid > 0), "never 0 or less, which would mean a group");
    let words: Vec<String> = pids.iter().map(ToString::to_string).collect();
    assert_eq!(parse_children(words.join(" ").as_bytes()), pids, "what the kernel would write is read");
}

fn cgroup(bytes: &[u8]) {
    if cgroup_names_container(bytes, ID) {
        let in_path = |line: &[u8]| line.splitn(3, |&byte| byte == b':').nth(2).is_some_and(holds_id);
        assert!(bytes.split(|&byte| byte == b'\n').any(in_path));
    }
    // The ID comes from elsewhere, but it must not be taken for a pattern either.
    let id = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]);
    let named = cgroup_names_container(format!("0::/a/x-{id}.scope/b").as_bytes(), &id);
    assert_eq!(named, id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

fn holds_id(path: &[u8]) -> bool {
    path.windows(ID.len()).any(|window| window == ID.as_bytes())
}

/// A name is up to the process; the kernel escapes newlines in `status` and nothing in `stat` (proc(5)).
fn name(name: &[u8]) {
    let line: Vec<u8> = name.iter().copied().filter(|&byte| byte != b'\n').collect();
    let status = [b"Name:\t", &line[..], b"\n", STATUS].concat();
    assert_eq!(parse_status(&status), parse_status(STATUS));
    assert_eq!(parse_start_time(&[b"12 (", name, STAT].concat()), Ok(4711));
}
