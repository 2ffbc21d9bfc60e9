//! The forms of layers that programs write, in each compression: the whole layer is read, or an error reports that it
//! was not.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::archive::{ArchiveError, Limits, Whiteouts, unpack};
use crate::frames::MAX_WINDOW_BYTES;
use crate::layers::decompress;

const FILES: [(&str, &str); 3] = [("a", "first"), ("b/c", "second"), ("d", "third")];
/// The offset of the second file: a header and a block after the first file.
const SECOND_FILE_OFFSET: usize = 1024;

fn tar_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn plain(content: &[u8]) -> Vec<u8> {
    content.to_vec()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    compress_to_vec(content, CompressionLevel::Fastest)
}

/// A frame that decoders skip (RFC 8878, 3.1.2), as zstd:chunked ends with and pzstd begins with.
fn skippable(number: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    [&(0x184D_2A50 + number).to_le_bytes()[..], &length.to_le_bytes(), content].concat()
}

/// A frame of one block without compression, with a window of `1 << log` bytes.
fn windowed(log: u8, content: &[u8]) -> Vec<u8> {
    let block = u32::try_from(content.len()).unwrap() << 3 | 1;
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3];
    [&head[..], &block.to_le_bytes()[..3], content].concat()
}

fn read(blob: &[u8]) -> Result<Vec<(String, String)>, ArchiveError> {
    let head = &blob[..blob.len().min(4)];
    let layer = unpack(decompress(head, blob), &Limits::default(), Whiteouts::Ignore, "", &mut |_| true)?;
    let text = |content: &[u8]| String::from_utf8(content.to_vec()).unwrap();
    Ok(layer.files().map(|(path, content)| (path.to_owned(), text(content))).collect())
}

/// All layers that were read wrongly, so that one table shows the forms that a change affects.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn whole(&mut self, shape: &str, blob: &[u8]) {
        let whole: Vec<_> = FILES.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect();
        let found = read(blob);
        if found.as_ref() != Ok(&whole) {
            self.0.push(format!("{shape}: {found:?}"));
        }
    }

    fn refused(&mut self, shape: &str, blob: &[u8]) {
        if let Ok(files) = read(blob) {
            self.0.push(format!("{shape}: {files:?}"));
        }
    }

    fn none(&self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
    }
}

#[test]
fn every_shape_is_read_whole_or_refused() {
    let (archive, mut faults) = (tar_of(&FILES), Faults::default());
    for (name, compressed) in [("plain", plain as fn(&[u8]) -> Vec<u8>), ("gzip", gzip), ("zstd", zstd)] {
        let pieces = |cuts: &[usize]| -> Vec<u8> {
            let ends = cuts.iter().copied().chain([archive.len()]);
            let begins = [0].into_iter().chain(cuts.iter().copied());
            begins.zip(ends).flat_map(|(begin, end)| compressed(&archive[begin..end])).collect()
        };
        faults.whole(&format!("{name}: one piece"), &pieces(&[]));
        faults.whole(&format!("{name}: cut within a header"), &pieces(&[100]));
        faults.whole(&format!("{name}: cut within a file"), &pieces(&[514]));
        faults.whole(&format!("{name}: cut between two files"), &pieces(&[SECOND_FILE_OFFSET]));
        faults.whole(&format!("{name}: many pieces"), &pieces(&(1..archive.len()).step_by(97).collect::<Vec<_>>()));
        faults.whole(&format!("{name}: an empty piece"), &pieces(&[SECOND_FILE_OFFSET, SECOND_FILE_OFFSET]));
        faults.whole(&format!("{name}: an empty piece at the end"), &pieces(&[archive.len()]));
        // The whole end of an archive may be missing; zeros follow it.
        faults.whole(&format!("{name}: no end"), &compressed(&archive[..archive.len() - 1024]));
        faults.whole(&format!("{name}: a record of zeros"), &compressed(&[&archive[..], &[0; 8192]].concat()));
        let other = tar_of(&[("e", "fourth")]);
        faults.refused(&format!("{name}: another archive behind it"), &compressed(&[&archive[..], &other].concat()));
        faults.refused(
            &format!("{name}: another archive as a piece"),
            &[compressed(&archive), compressed(&other)].concat(),
        );
        let one_block = [&archive[..archive.len() - 512], &other].concat();
        faults.refused(&format!("{name}: another archive after one block of zeros"), &compressed(&one_block));
        faults.refused(
            &format!("{name}: text behind it"),
            &[pieces(&[SECOND_FILE_OFFSET]), b"garbage".to_vec()].concat(),
        );
        if name != "plain" {
            let blob = pieces(&[514]);
            faults.refused(&format!("{name}: an end within a piece"), &blob[..blob.len() - 1]);
            faults.refused(&format!("{name}: part of a magic number behind it"), &[&blob[..], &blob[..2]].concat());
        }
    }
    faults.none();
}

#[test]
fn frames_of_zstandard_may_be_skippable_anywhere() {
    let (archive, mut faults) = (tar_of(&FILES), Faults::default());
    let (first, second) = (zstd(&archive[..SECOND_FILE_OFFSET]), zstd(&archive[SECOND_FILE_OFFSET..]));
    for number in [0, 7, 15] {
        let skip = skippable(number, b"table of contents");
        let shapes = [
            ("first", [&skip, &first, &second].map(Vec::as_slice).concat()),
            ("twice", [&skip, &skip, &first, &second].map(Vec::as_slice).concat()),
            ("between", [&first, &skip, &second].map(Vec::as_slice).concat()),
            ("last", [&first, &second, &skip].map(Vec::as_slice).concat()),
        ];
        for (shape, blob) in &shapes {
            faults.whole(&format!("skippable frame {number} {shape}"), blob);
        }
        faults.refused("an end within a skippable frame", &[&first[..], &second, &skip[..skip.len() - 1]].concat());
        faults.refused("an end within its length", &[&first[..], &second, &skip[..6]].concat());
    }
    faults.whole("an empty skippable frame", &[&skippable(0, b"")[..], &first, &second].concat());
    faults.refused(
        "a skippable frame that is longer than all",
        &[&first[..], &second, &[0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255]].concat(),
    );
    faults.none();
}

#[test]
fn the_window_of_zstandard_is_bounded() {
    let (archive, mut faults) = (tar_of(&FILES), Faults::default());
    faults.whole("the largest window", &windowed(25, &archive));
    assert_eq!(read(&windowed(26, &archive)), Err(ArchiveError::Window(MAX_WINDOW_BYTES)));
    faults.refused(
        "a larger window of a later frame",
        &[windowed(20, &archive[..SECOND_FILE_OFFSET]), windowed(27, &archive[SECOND_FILE_OFFSET..])].concat(),
    );
    faults.none();
}
