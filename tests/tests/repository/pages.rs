//! The pages of the repository: links lead somewhere, the book has every page, and what is to be typed was typed by a
//! test.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nudge_tests::Finished;

/// Blocks of commands that tests run as they stand: the page, the heading above them, and the file of the test with a
/// part of it. All others have `not-run` behind the language, which says so to the reader of the source.
const RUN: [(&str, &str, &str, &str); 8] = [
    ("README.md", "Quick start", "tests/tests/node/scenarios/quick_start.rs", "readme::commands(\"Quick start\")"),
    ("README.md", "Try it", ".ci/run", "tests/run"),
    ("README.md", "Install", "tests/tests/node/install.rs", "readme::command(\"Install\""),
    ("README.md", "Enable a namespace", "tests/tests/node/install.rs", "readme::command(\"Enable a namespace\""),
    ("README.md", "First pod", "tests/tests/node/scenarios/quick_start.rs", "readme::commands(\"First pod\")"),
    ("README.md", "Remove", "tests/tests/node/install.rs", "readme::commands(\"Remove\")"),
    ("examples/TOUR.md", "*", "tests/tests/node/scenarios/tour.rs", "examples/TOUR.md"),
    ("injector/KUBECTL.md", "*", "tests/tests/webhooks/transcripts.rs", "../injector/KUBECTL.md"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A page without its blocks of code, and the blocks.
#[derive(Default)]
struct Page {
    lines: Vec<String>,
    /// The heading above, what stands behind the fence, and the first line.
    blocks: Vec<(String, String, String)>,
    anchors: BTreeSet<String>,
}

/// Returns all pages that are tracked, by their path in the repository.
fn pages() -> Result<BTreeMap<String, Page>> {
    let mut git = std::process::Command::new("git");
    let listed = Finished::of(git.current_dir(repository()).args(["ls-files", "*.md"]))?;
    ensure!(listed.code == Some(0), "{}", listed.stderr);
    let page_texts = listed.stdout.lines().map(|path| {
        let text = fs::read_to_string(repository().join(path)).with_context(|| path.to_owned())?;
        Ok((path.to_owned(), page(&text)))
    });
    page_texts.collect()
}

fn page(text: &str) -> Page {
    let mut page = Page::default();
    let (mut heading, mut inside) = (String::new(), false);
    let mut anchor_counts = HashMap::<String, u32>::new();
    for line in text.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            if inside {
                page.blocks.push((heading.clone(), info.trim().to_owned(), String::new()));
            }
        } else if inside {
            if let Some((_, _, first)) = page.blocks.last_mut().filter(|(_, _, first)| first.is_empty()) {
                line.clone_into(first);
            }
        } else {
            let title = line.trim_start_matches('#');
            if title.len() < line.len() && title.starts_with(' ') {
                title.trim().clone_into(&mut heading);
                let anchor = anchor(&heading);
                let count = anchor_counts.entry(anchor.clone()).or_default();
                page.anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                *count += 1;
            }
            page.lines.push(line.to_owned());
        }
    }
    page
}

/// Returns the anchor that GitHub and mdBook make of a heading.
fn anchor(heading: &str) -> String {
    let mut text = heading.to_owned();
    // Of a link its text.
    for (_, target) in links(heading) {
        text = text.replace(&format!("]({target})"), "").replace('[', "");
    }
    let kept = text.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Text and target of each link of a text without blocks; what stands in backticks is no link.
fn links(text: &str) -> Vec<(String, String)> {
    let plain: String = text.split('`').enumerate().filter(|(part, _)| part % 2 == 0).map(|(_, part)| part).collect();
    let targets = plain.match_indices("](").filter_map(|(at, _)| {
        let target = plain[at + 2..].split(')').next()?;
        let message = plain[..at].rsplit('[').next()?;
        Some((message.to_owned(), target.trim().to_owned()))
    });
    targets.collect()
}

/// `a/./b/../c` without a look at the disk.
fn straight(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
        whole
    })
}

#[test]
fn anchors_are_those_of_the_web() {
    let cases = [
        ("What it is, and what it is not", "what-it-is-and-what-it-is-not"),
        ("`ETag`s are HMACs under the token", "etags-are-hmacs-under-the-token"),
        ("[python](python/app.py)", "python"),
        ("What kubectl-nudge does", "what-kubectl-nudge-does"),
        ("The namespace nudge_system", "the-namespace-nudge_system"),
    ];
    for (heading, expected) in cases {
        assert_eq!(anchor(heading), expected);
    }
    assert_eq!(page("# A\n## A\n```sh\n# b\n```\n").anchors, BTreeSet::from(["a".to_owned(), "a-1".to_owned()]));
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let (pages, root) = (pages()?, repository());
    let (mut broken, mut seen) = (Vec::new(), 0);
    for (path, page) in &pages {
        let folder = Path::new(path).parent().context("no folder")?;
        for (_, target) in links(&page.lines.join("\n")) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { PathBuf::from(path) } else { straight(&folder.join(file)) };
            let name = file.display().to_string();
            let anchored = anchor.is_empty() || pages.get(&name).is_some_and(|page| page.anchors.contains(anchor));
            // Lines of a file of code are no anchors of ours.
            if !root.join(&file).exists() || !(anchored || anchor.starts_with('L')) {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    ensure!(seen > 200, "{seen}: the pages have more links than that");
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

#[test]
fn the_book_has_every_page() -> Result<()> {
    let book = "deploy/book/SUMMARY.md";
    let summary = fs::read_to_string(repository().join(book))?;
    let listed: BTreeSet<_> =
        links(&summary).into_iter().map(|(_, target)| target.trim_start_matches("../").to_owned()).collect();
    let pages: BTreeSet<_> = pages()?.into_keys().filter(|path| path != book).collect();
    assert_eq!(listed, pages);
    Ok(())
}

#[test]
fn what_is_to_be_typed_was_typed_by_a_test() -> Result<()> {
    let mut unmarked = Vec::new();
    let mut used = BTreeSet::new();
    for (path, page) in &pages()? {
        for (heading, info, first) in &page.blocks {
            let mut words = info.split_whitespace();
            if !matches!(words.next(), Some("sh" | "console" | "shell" | "bash")) || words.next() == Some("not-run") {
                continue;
            }
            let is_about = |row: &(&str, &str, &str, &str)| row.0 == path && (row.1 == "*" || row.1 == heading);
            match RUN.iter().position(is_about) {
                Some(row) => drop(used.insert(row)),
                None => unmarked.push(format!("{path}, {heading}: {first}")),
            }
        }
    }
    ensure!(unmarked.is_empty(), "no test runs these, and they are not marked with not-run:\n{}", unmarked.join("\n"));
    for (row, (page, heading, file, part)) in RUN.iter().enumerate() {
        ensure!(used.contains(&row), "{page} has no such block below {heading:?}");
        let text = fs::read_to_string(repository().join(file)).with_context(|| (*file).to_owned())?;
        ensure!(text.contains(part), "{file} has no {part:?}");
    }
    Ok(())
}
