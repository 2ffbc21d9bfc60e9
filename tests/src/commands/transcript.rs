//! Pages with transcripts: blocks of shell commands with their output, run again and compared, or rewritten.
//!
//! A block begins with a line "```console". A line in it that begins with `$ ` is a command. Below it is the command's
//! output, and `[exit code N]` if that is not 0. Further acts are named between the blocks in comments, which the
//! rendered page does not show: `<!-- test: NAME -->`, done before the next block, and `<!-- meanwhile: NAME -->`, done
//! while it runs.

use std::mem;

use similar::TextDiff;

/// What a page consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Lines that are kept as they are.
    Text(String),
    /// Something to do before the next block.
    Before(String),
    /// Something to do while the next block runs.
    Meanwhile(String),
    /// Commands.
    Block(Vec<Entry>),
}

/// A command and what it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is typed.
    pub command: String,
    /// All that it prints, line by line, with the exit code if that is not 0.
    pub output: String,
}

const BEGIN: &str = "```console";
const END: &str = "```";

/// Takes a page apart.
pub fn parse(page: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut lines = page.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let bare = line.trim_end();
        let of = |name: &str| bare.strip_prefix(&format!("<!-- {name}: "))?.strip_suffix(" -->").map(str::to_owned);
        let special = if bare == BEGIN {
            let block = lines.by_ref().take_while(|line| line.trim_end() != END);
            Some(Piece::Block(entries(block)))
        } else {
            of("test").map(Piece::Before).or_else(|| of("meanwhile").map(Piece::Meanwhile))
        };
        match special {
            Some(piece) => pieces.extend([Piece::Text(mem::take(&mut text)), piece]),
            None => text += line,
        }
    }
    pieces.push(Piece::Text(text));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    pieces
}

fn entries<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in lines {
        let typed = entries.last().is_some_and(|entry| entry.command.ends_with('\\') && entry.output.is_empty());
        match (line.strip_prefix("$ "), entries.last_mut()) {
            (Some(command), _) => {
                entries.push(Entry { command: command.trim_end().to_owned(), output: String::new() });
            }
            (None, Some(entry)) if typed => {
                entry.command.push('\n');
                entry.command += line.trim_end();
            }
            (None, Some(entry)) => entry.output += line,
            (None, None) => entries.push(Entry { command: String::new(), output: line.to_owned() }),
        }
    }
    entries
}

/// Puts a page together.
pub fn render(pieces: &[Piece]) -> String {
    let entry = |entry: &Entry| format!("$ {}\n{}", entry.command, entry.output);
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Before(name) => format!("<!-- test: {name} -->\n"),
        Piece::Meanwhile(name) => format!("<!-- meanwhile: {name} -->\n"),
        Piece::Block(entries) => format!("{BEGIN}\n{}{END}\n", entries.iter().map(entry).collect::<String>()),
    };
    pieces.iter().map(piece).collect()
}

/// Returns the difference between the page and the present output; `None` if there is none.
pub fn difference(page: &str, now: &str) -> Option<String> {
    let diff = TextDiff::from_lines(page, now);
    (page != now).then(|| diff.unified_diff().context_radius(3).header("the page", "now").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n<!-- test: pods -->\n```console\n$ ls \\\n    -l\nfile\n$ false\n[exit code 1]\n```\n\ntext\n```sh\n$ no\n```\n";

    #[test]
    fn a_page_is_taken_apart_and_put_together() {
        let pieces = parse(PAGE);
        let Piece::Block(entries) = &pieces[2] else { panic!("{pieces:?}") };
        assert_eq!(pieces[1], Piece::Before("pods".to_owned()));
        assert_eq!((entries[0].command.as_str(), entries[0].output.as_str()), ("ls \\\n    -l", "file\n"));
        assert_eq!((entries[1].command.as_str(), entries[1].output.as_str()), ("false", "[exit code 1]\n"));
        assert_eq!(pieces.len(), 4, "{pieces:?}");
        assert_eq!(render(&pieces), PAGE);
    }

    #[test]
    fn a_difference_is_shown() {
        assert_eq!(difference("a\n", "a\n"), None);
        assert!(difference("a\nb\n", "a\nc\n").unwrap().contains("-b\n+c\n"));
    }
}
