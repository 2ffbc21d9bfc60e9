//! Pointers. In a repository, they stand in place of the files that Git LFS keeps.

/// The maximum bytes of a pointer.
const MAX_POINTER_BYTES: usize = 1024;
/// The version of pointers, and its names in the first releases of Git LFS.
const VERSIONS: [&str; 3] =
    ["https://git-lfs.github.com/spec/v1", "https://hawser.github.com/spec/v1", "http://git-media.io/v/2"];

/// A pointer, which names a file that Git LFS keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// The SHA-256 of the content, in hexadecimal digits.
    pub id: String,
    /// The size of the content in bytes.
    pub size: usize,
    /// Whether a program changed the content before it reached Git LFS. Only that program can restore the file.
    pub(crate) is_extended: bool,
}

impl Pointer {
    /// Parses the content of a file, if it is a pointer.
    pub fn parse(content: &[u8]) -> Option<Self> {
        if content.len() > MAX_POINTER_BYTES {
            return None;
        }
        let text = std::str::from_utf8(content).ok()?;
        let (version, text) = text.strip_prefix("version ")?.split_once('\n')?;
        if !VERSIONS.contains(&version.trim_end_matches('\r')) {
            return None;
        }
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let id = value("oid sha256:")?;
        if id.len() != 64 || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let is_extended = value("ext-").is_some();
        Some(Self { id: id.to_owned(), size: value("size ")?.parse().ok()?, is_extended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_and_nothing_else() {
        let id = "0a".repeat(32);
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize 12\n");
        assert_eq!(Pointer::parse(text.as_bytes()), Some(Pointer { id: id.clone(), size: 12, is_extended: false }));
        assert_eq!(Pointer::parse(text.replace('\n', "\r\n").as_bytes()), Pointer::parse(text.as_bytes()));
        let extension = text.replace("oid", &format!("ext-0-case sha256:{id}\noid"));
        assert!(Pointer::parse(extension.as_bytes()).unwrap().is_extended);
        for bad in [
            text.replace("spec/v1", "spec/v9"),
            text.replace(&id, "../../etc/passwd"),
            text.replace("12", "-1"),
            text.clone() + &"x".repeat(MAX_POINTER_BYTES),
            format!("\n{text}"),
        ] {
            assert_eq!(Pointer::parse(bad.as_bytes()), None, "{bad}");
        }
        // Git LFS reads the pointers of its first releases.
        for old in ["http://git-media.io/v/2", "https://hawser.github.com/spec/v1"] {
            let text = text.replace("https://git-lfs.github.com/spec/v1", old);
            assert!(Pointer::parse(text.as_bytes()).is_some(), "{old}");
        }
    }
}
