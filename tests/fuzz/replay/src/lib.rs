//! Compiles the fuzz targets without a fuzzer, and runs each on its seeds: `tests/fuzz/run` alone finds new inputs.
#![cfg(test)]

// What the targets take from libFuzzer's crate.
extern crate self as libfuzzer_sys;

/// Whether the fuzzer builds upon an input.
enum Corpus {
    Keep,
    Reject,
}

impl From<()> for Corpus {
    fn from((): ()) -> Self {
        Self::Keep
    }
}

macro_rules! targets {
    ($($name:ident $path:literal;)*) => {
        $(
            #[path = $path]
            mod $name;
        )*

        const TARGETS: &[(&str, fn(&[u8]) -> Corpus)] =
            &[$((stringify!($name), |bytes| Corpus::from($name::run(bytes)))),*];
    };
}

targets! {
    analysis "../../targets/analysis.rs";
    check_text "../../targets/check_text.rs";
    current "../../targets/current.rs";
    dictionary "../../targets/dictionary.rs";
    exchange "../../targets/exchange.rs";
    folder "../../targets/folder/main.rs";
    git_text "../../targets/git_text.rs";
    hook_url "../../targets/hook_url.rs";
    oci_tar "../../targets/oci_tar.rs";
    oci_text "../../targets/oci_text.rs";
    poll_reply "../../targets/poll_reply.rs";
    proc "../../targets/proc.rs";
    request "../../targets/request.rs";
    sign_page "../../targets/sign_page.rs";
    token "../../targets/token.rs";
    validation "../../targets/validation.rs";
}

#[test]
fn every_target_bears_its_seeds_and_builds_upon_one() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    let folders = std::fs::read_dir(&seeds).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let named = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(named, folders.collect(), "every target has seeds");
    for (name, run) in TARGETS {
        let mut kept = 0;
        for seed in std::fs::read_dir(seeds.join(name)).unwrap() {
            let seed = seed.unwrap().path();
            println!("{}", seed.display()); // the last one is the one that panicked
            kept += u32::from(matches!(run(&std::fs::read(seed).unwrap()), Corpus::Keep));
        }
        assert!(kept > 0, "{name} rejects all of its seeds");
    }
}

// Below the targets, which name it as libFuzzer's.
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:block) => {
        pub(crate) fn run($bytes: &[u8]) $body
    };
    (|$bytes:ident: &[u8]| -> Corpus $body:block) => {
        pub(crate) fn run($bytes: &[u8]) -> Corpus $body
    };
}
use fuzz_target;
