//! Archives of artifacts, which come from anybody: no bound is crossed, no path leaves the root, and nothing is
//! unpacked that is not wanted.
//!
//! The first byte selects the wanted path.
#![cfg_attr(fuzzing, no_main)]

use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_oci::{Limits, Whiteouts, unpack};

const LIMITS: Limits = Limits { entries: 16, unpacked: 16 * 1024, header: 2048, content: 600 };

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let [flags, archive @ ..] = bytes else { return Corpus::Reject };
    let whiteouts = if flags & 1 == 0 { Whiteouts::Ignore } else { Whiteouts::Apply };
    let root = ["", "a", "a/b", "a.yaml"][usize::from(flags >> 1) % 4];
    let mut asked = Vec::new();
    let mut is_wanted = |path: &str| {
        assert_is_path(path);
        asked.push(path.to_owned());
        !path.ends_with('x')
    };
    match unpack(archive, &LIMITS, whiteouts, root, &mut is_wanted) {
        Ok(layer) => {
            let files: Vec<_> = layer.files().collect();
            assert!(files.len() <= LIMITS.entries && asked.len() <= LIMITS.entries);
            assert!(files.iter().map(|(_, content)| content.len()).sum::<usize>() <= LIMITS.content);
            for (path, content) in files {
                assert_is_path(path);
                assert!(path.starts_with(root) && !path.ends_with('x'), "{path:?} below {root:?}");
                // What is in a file stands in the archive, and nothing was made of it.
                assert!(content.is_empty() || archive.windows(content.len()).any(|it| it == content));
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 1200 && !text.contains(|it: char| it.is_control()), "{text:?}");
        }
    }
    Corpus::Keep
});

fn assert_is_path(path: &str) {
    assert!(path.split('/').all(|name| !matches!(name, "" | "." | "..")), "{path:?}");
    assert!(!path.contains(|it: char| it.is_control()), "{path:?}");
}
