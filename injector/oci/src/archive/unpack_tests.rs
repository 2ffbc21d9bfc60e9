//! Archives that attack.

use std::io::Write as _;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tar::{EntryType, Header};

use super::*;

/// An archive of entries with these names, which no library would write.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn header(kind: EntryType, name: &[u8], size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size);
        header.set_cksum();
        header
    }

    fn with(mut self, kind: EntryType, name: &str, content: &[u8]) -> Self {
        self.0.extend(Self::header(kind, name.as_bytes(), content.len() as u64).as_bytes());
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.with(EntryType::Regular, name, content.as_bytes())
    }

    /// One whose size is a lie.
    fn lying(mut self, name: &str, size: u64, content: &str) -> Self {
        self.0.extend(Self::header(EntryType::Regular, name.as_bytes(), size).as_bytes());
        self.0.extend(content.as_bytes());
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

const LIMITS: Limits = Limits { entries: 10, unpacked: 64 * 1024, header: 4096, content: 1000 };

fn all(archive: &[u8], root: &str) -> Result<Layer, ArchiveError> {
    unpack(archive, &LIMITS, Whiteouts::Ignore, root, &mut |_| true)
}

fn only(archive: &[u8], wanted: &str) -> Result<Layer, ArchiveError> {
    unpack(archive, &LIMITS, Whiteouts::Ignore, "", &mut |path| path == wanted)
}

#[test]
fn files_below_the_folder_are_unpacked_and_others_are_not_asked_about() {
    let archive = Archive::default()
        .with(EntryType::Directory, "./config/", b"")
        .file("./config/prod/a.yaml", "1")
        .file("config/prod/sub//b", "2")
        .file("config/production/c", "3")
        .file("config/prod/skip", "4")
        .end();
    let mut asked = Vec::new();
    let mut wanted = |path: &str| {
        asked.push(path.to_owned());
        path != "skip"
    };
    let layer = unpack(archive.as_slice(), &LIMITS, Whiteouts::Ignore, "config/prod", &mut wanted).unwrap();
    assert_eq!(layer.nodes.keys().collect::<Vec<_>>(), ["config/prod/a.yaml", "config/prod/sub/b"]);
    assert_eq!(asked, ["a.yaml", "sub/b", "skip"]);
    let file = all(&archive, "config/prod/a.yaml").unwrap();
    assert!(file.files().count() == 1 && file.nodes["config/prod/a.yaml"] == Node::File(b"1".to_vec().into()));
}

#[test]
fn no_path_leaves_the_root_even_of_a_file_that_is_not_wanted() {
    for bad in ["../x", "a/../../x", "..", "/etc/passwd", "//x", "./../x", "a/.."] {
        let archive = Archive::default().file(bad, "evil").end();
        assert_eq!(only(&archive, "y").err(), Some(ArchiveError::Outside(bad.to_owned())), "{bad}");
        // By a longer name in front of a harmless one, in both of the ways that there are.
        let gnu = Archive::default().with(EntryType::GNULongName, "././@LongLink", bad.as_bytes()).file("a", "evil");
        assert_eq!(all(&gnu.end(), "").err(), Some(ArchiveError::Outside(bad.to_owned())), "{bad}");
        let record = format!(" path={bad}\n");
        let record = format!("{}{record}", record.len() + if record.len() < 9 { 1 } else { 2 });
        let pax = Archive::default().with(EntryType::XHeader, "x", record.as_bytes()).file("a", "evil").end();
        assert_eq!(all(&pax, "").err(), Some(ArchiveError::Outside(bad.to_owned())), "{bad}");
    }
    let control = Archive::default().file("a\u{1b}[2J", "evil").end();
    let error = all(&control, "").err().unwrap();
    assert!(!error.to_string().contains('\u{1b}') && matches!(error, ArchiveError::Name(_)), "{error}");
}

#[test]
fn a_link_is_never_followed_and_named_if_it_is_wanted() {
    for kind in [EntryType::Symlink, EntryType::Link] {
        let archive = Archive::default().file("a/b", "1").with(kind, "a/link", b"").file("c", "2").end();
        assert!(only(&archive, "c").unwrap().files().count() == 1);
        let layer = only(&archive, "a/link").unwrap();
        assert!(layer.nodes["a/link"] == Node::Link && layer.files().count() == 0);
        // Links on the way to a wanted file count, too.
        let layer = all(&archive, "a/link/prod").unwrap();
        assert!(layer.nodes["a/link"] == Node::Link && layer.nodes.len() == 1);
    }
}

#[test]
fn devices_are_no_files() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let archive = Archive::default().with(kind, "dev", b"").file("c", "2").end();
        assert!(only(&archive, "c").unwrap().nodes.len() == 1);
        assert!(only(&archive, "dev").unwrap().nodes["dev"] == Node::Other);
    }
    // The 11 digits of how long it really is.
    let mut header = Archive::header(EntryType::GNUSparse, b"sparse", 0);
    header.as_gnu_mut().unwrap().realsize[..11].fill(b'0');
    header.set_cksum();
    let sparse = header.as_bytes().to_vec();
    assert_eq!(only(&sparse, "c").err(), Some(ArchiveError::NoFile("sparse".to_owned())));
    // As `tar --format=posix --sparse` writes it: under a name that nobody gave it, with a map in front of the content.
    let records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n21 GNU.sparse.name=c\n27 GNU.sparse.realsize=999\n";
    let posix = Archive::default().with(EntryType::XHeader, "x", records).file("GNUSparseFile.1/c", "1\n0\n1\n").end();
    assert!(matches!(all(&posix, "").err(), Some(ArchiveError::NoFile(_))));
}

#[test]
fn sizes_are_looked_at_before_anything_is_read() {
    let limit = LIMITS.content;
    let too_large = |path: &str| Some(ArchiveError::TooLarge { path: path.to_owned(), limit });
    for size in [limit as u64 + 1, 1 << 32, (1 << 62) - 1] {
        assert_eq!(all(&Archive::default().lying("big", size, "x").0, "").err(), too_large("big"));
    }
    // Files together.
    let half = "x".repeat(limit / 2);
    let archive = Archive::default().file("a", &half).file("b", &half).file("c", "1");
    assert_eq!(all(&archive.0, "").err(), too_large("c"));
    assert!(all(&Archive::default().file("a", &half).file("b", &half).end(), "").is_ok());
    // Less than it says.
    for wanted in ["short", "other"] {
        let short = Archive::default().lying("short", 600, "x").0;
        assert_eq!(only(&short, wanted).err(), Some(ArchiveError::Malformed), "{wanted}");
    }
    let pax = Archive::default().with(EntryType::XHeader, "x", b"23 size=99999999999999\n").file("a", "1").end();
    assert!(all(&pax, "").is_err());
}

#[test]
fn every_bound_is_kept() {
    let many = |count: usize| {
        (0..count).fold(Archive::default(), |it, n| it.with(EntryType::Symlink, &n.to_string(), b"")).end()
    };
    assert!(only(&many(LIMITS.entries), "x").is_ok());
    assert_eq!(only(&many(LIMITS.entries + 1), "x").err(), Some(ArchiveError::TooMany(LIMITS.entries)));
    let named = |name: &str| Archive::default().with(EntryType::GNULongName, "L", name.as_bytes()).file("a", "1").end();
    assert!(only(&named(&"a/".repeat(64)), "x").is_ok());
    assert!(matches!(only(&named(&"a/".repeat(65)), "x"), Err(ArchiveError::Deep(_))));
    let long = "x".repeat(8192);
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let named = Archive::default().with(kind, "././@LongLink", long.as_bytes()).file("a", "1").end();
        assert_eq!(only(&named, "x").err(), Some(ArchiveError::Header(LIMITS.header)), "{kind:?}");
    }
}

#[test]
fn a_bomb_is_cut_off() {
    // 100 MiB in 100 KiB: only as much is decompressed as is allowed.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(Archive::header(EntryType::Regular, b"bomb", 100 << 20).as_bytes()).unwrap();
    for _ in 0..100 {
        bomb.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let mut read = 0;
    let counted = Counted { inner: bomb.as_slice(), read: &mut read };
    let found = unpack(GzDecoder::new(counted), &LIMITS, Whiteouts::Ignore, "", &mut |path| path == "other");
    assert_eq!(found.err(), Some(ArchiveError::TooLong(LIMITS.unpacked)));
    assert!(bomb.len() > 64 * 1024 && read <= 64 * 1024, "{read} of {}", bomb.len());
}

struct Counted<'a> {
    inner: &'a [u8],
    read: &'a mut usize,
}

impl std::io::Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(into)?;
        *self.read += read;
        Ok(read)
    }
}

#[test]
fn what_is_no_archive_is_none() {
    assert_eq!(all(b"", "").unwrap().files().count(), 0);
    // The end may be missing, but no part of a file or of its header.
    let archive = Archive::default().file("a", "1").file("b", "22").0;
    for end in 0..=archive.len() {
        let found = all(&archive[..end], "").map(|layer| layer.files().count());
        let expected = match end {
            0 => Some(0),
            513..=1024 => Some(1),
            1538.. => Some(2),
            _ => None,
        };
        assert_eq!(found.ok(), expected, "{end}");
    }
    for bad in [b"no archive".to_vec(), vec![b'x'; 2048]] {
        assert_eq!(all(&bad, "").err(), Some(ArchiveError::Malformed));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_cross_a_bound(
        bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        at in 0_usize..1536,
        name in "[a-c./]{0,8}",
        root in "(a(/b)?)?",
    ) {
        // Noise in the middle of something that is nearly right.
        let mut archive = Archive::default().file(&name, "1").file("a/b", "22").end();
        let end = archive.len().min(at + bytes.len() % 64);
        archive[at..end].copy_from_slice(&bytes[..end - at]);
        for archive in [&archive, &bytes] {
            if let Ok(layer) = all(archive, &root) {
                let content: usize = layer.nodes.values().map(|node| if let Node::File(it) = node { it.len() } else { 0 }).sum();
                prop_assert!(content <= LIMITS.content);
                for (path, node) in &layer.nodes {
                    prop_assert!(matches!(node, Node::Link) || is_below(path, &root));
                    prop_assert!(path.split('/').all(|name| !matches!(name, "" | "." | "..")));
                }
            }
        }
    }
}
