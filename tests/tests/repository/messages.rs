//! The texts that users see: one list, and the rules that hold for all of them.
//!
//! `NUDGE_MESSAGES=1 cargo test -p nudge-tests --test repository messages -- --nocapture` prints the list, to be read.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The maximum length of an error.
const MAX_CHARACTERS: usize = 240;
/// The maximum number of words in a message: the fault, and what to do next.
const MAX_MESSAGE_WORDS: usize = 30;
/// Texts with fewer words are names, keys and the like.
const MIN_WORDS: usize = 3;
/// The files whose doc comments are the help of a command, or the description of a field of a CRD.
const SHOWN_DOCS: [&str; 4] =
    ["agent/src/cli", "injector/api/src", "injector/kubectl/src/commands", "injector/src/cli"];
const PAGE: &str = "injector/kubectl/src/page/assets";

struct Message {
    file: PathBuf,
    line: usize,
    text: String,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A doc comment that is shown, or the help of a command.
    Page,
    Message,
    Error,
}

/// Words in a row that no text has, and why; `.` is the end of a clause.
const FORBIDDEN: [(&[&str], &str); 7] = [
    (&["please", "sorry", "oops"], "a message says what to do, and not how sorry it is"),
    (&["within none", "of before"], "this is not English: say what the thing is not in"),
    (&["anew"], "write \"again\""),
    (&["has to", "have to"], "write \"must\", as the conventions of the Kubernetes API do"),
    (&["the most"], "write \"at most\", or \"the maximum\""),
    (&["at most ."], "write \"at most\" in front of its number"),
    (
        &["stand in", "stands in", "stands once", "stands twice", "stands still"],
        "a thing is in a place, or occurs there",
    ),
];
/// Nouns behind a number that is filled in. Their plural is wrong for one, unless the text says a bound.
const COUNTED_NOUNS: [&str; 10] =
    ["pods", "keys", "configs", "objects", "parts", "workloads", "users", "approvals", "rules", "namespaces"];
const COUNT: &str = "write the number with nudge_protocol::plural::counted, so that it is right for one";
const IS_NO: &str = "write \"is not a\", or \"there is no\" where a thing is missing";

/// Returns the words of a text in lower case, with a space around each, and `x` for what is filled in. The end of a
/// clause is a word of its own.
fn words(text: &str) -> String {
    let mut words = String::from(" ");
    for (number, part) in text.to_lowercase().split(['{', '}']).enumerate() {
        words.push_str(if number % 2 == 0 { part } else { " x " });
    }
    let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '\'' | '-');
    let words = words.replace([';', ',', ':'], " . ").replace(|letter| !is_word(letter), " ");
    format!(" {} . ", words.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn count_words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count()
}

fn fault(text: &str, form: Form) -> Option<String> {
    let words = words(text);
    let has = |phrase: &&str| words.contains(&format!(" {phrase} "));
    if let Some((_, because)) = FORBIDDEN.iter().find(|(phrases, _)| phrases.iter().any(has)) {
        return Some((*because).to_owned());
    }
    if words.replace(" there is no ", " ").replace(" is no longer ", " ").contains(" is no ") {
        return Some(IS_NO.to_owned());
    }
    let is_bounded = [" at most ", " more than ", " the limit "].iter().any(|bound| words.contains(bound));
    // Braces that are doubled are braces, and nothing is filled in.
    let filled_in = self::words(&text.replace("{{", " ").replace("}}", " "));
    if !is_bounded && COUNTED_NOUNS.iter().any(|noun| filled_in.contains(&format!(" x {noun} "))) {
        return Some(COUNT.to_owned());
    }
    let count = count_words(text);
    if form != Form::Page && count > MAX_MESSAGE_WORDS {
        return Some(format!(
            "{count} words; a message has at most {MAX_MESSAGE_WORDS}: the fault, and what to do next"
        ));
    }
    if form != Form::Error {
        return None;
    }
    if text.ends_with(['.', '!', ' ', ';']) || text.contains("  ") {
        return Some("an error ends without a period, and has no two spaces in a row".to_owned());
    }
    let characters = text.chars().count();
    (characters > MAX_CHARACTERS).then(|| format!("{characters} characters; an error has at most {MAX_CHARACTERS}"))
}

/// Adds the product's files below a folder.
fn add_sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !matches!(&*name, "tests" | "benches" | "examples" | "target") {
                add_sources(&path, files)?;
            }
        } else if name.ends_with(".js")
            || name.ends_with(".html")
            || name.ends_with(".rs") && !name.ends_with("tests.rs")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the source without its module of tests, which is at the end of a file.
fn product(source: &str) -> &str {
    let is_module = |rest: &str| {
        let line = rest.lines().find(|line| !line.starts_with("#["));
        line.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    let mut starts = source.match_indices("#[cfg(test)]\n").map(|(at, _)| source.split_at(at));
    starts.find(|(_, rest)| is_module(rest)).map_or(source, |(product, _)| product)
}

/// Returns the length of what is between this quote, which may be escaped in it, and the next one.
fn quoted_length(source: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    source.find(|letter| {
        let ends = letter == quote && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })
}

/// Returns the literals of a source in Rust or JavaScript and its doc comments, with their places; lines of a doc
/// comment that follow each other are one.
fn texts(source: &str, quotes: &[char]) -> Vec<(usize, String)> {
    let (mut texts, mut at) = (Vec::<(usize, String)>::new(), 0);
    let mut doc_ends = None;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or_default();
        let length = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            if let Some(doc) = rest.get(..end).and_then(|line| line.strip_prefix("/// ")) {
                match texts.last_mut().filter(|_| doc_ends == source.get(..at).map(|before| before.trim_end().len())) {
                    Some((_, text)) => *text = format!("{text} {doc}"),
                    None => texts.push((at, format!("/// {doc}"))),
                }
                doc_ends = Some(at + end);
            }
            end
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            let end = raw.find("\"#").unwrap_or(raw.len());
            texts.push((at, raw.get(..end).unwrap_or_default().to_owned()));
            end + 5
        } else if quotes.contains(&first) {
            let end = rest.get(1..).and_then(|rest| quoted_length(rest, first)).unwrap_or(rest.len());
            texts.push((at, rest.get(1..=end).unwrap_or_default().to_owned()));
            end + 2
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            // A character that is a quote, or that is escaped.
            rest.get(2..).and_then(|rest| rest.find('\'')).map_or(1, |end| end.max(1) + 3)
        } else {
            first.len_utf8()
        };
        at += length;
    }
    texts
}

/// Returns the lines of a literal that continues behind a backslash, as one line.
fn join_lines(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

/// Returns the texts of a file that a user can see, and those that only look like it.
fn messages(file: &Path, source: &str) -> Vec<Message> {
    let has_docs = SHOWN_DOCS.iter().any(|folder| file.starts_with(folder));
    let is_page = file.starts_with(PAGE);
    let source = product(source);
    let literals = match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => {
            source.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| (0, text.to_owned())).collect()
        }
        Some("js") => texts(source, &['"', '`']),
        _ => texts(source, &['"']),
    };
    let list = literals.into_iter().filter_map(|(at, text)| {
        let before = source.get(..at)?;
        let text = join_lines(&text);
        let doc = text.strip_prefix("/// ");
        let words = count_words(doc.unwrap_or(&text));
        let is_shown = doc.is_none() || has_docs && !is_page;
        let form = match doc {
            None if before.trim_end().ends_with("#[error(") => Form::Error,
            None if !text.contains(['\n', '\t']) => Form::Message,
            _ => Form::Page,
        };
        let line = before.matches('\n').count() + 1;
        (is_shown && words >= MIN_WORDS).then(|| Message { file: file.to_owned(), line, text, form })
    });
    list.collect()
}

#[test]
fn texts_that_users_see_follow_the_rules() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above")?;
    let mut files = Vec::new();
    for folder in ["agent", "injector"] {
        add_sources(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut list = Vec::new();
    for path in &files {
        list.extend(messages(path.strip_prefix(root)?, &std::fs::read_to_string(path)?));
    }
    let errors = list.iter().filter(|message| message.form == Form::Error).count();
    ensure!(errors > 300 && list.len() > 2000, "only {} texts were collected, {errors} of errors", list.len());
    if std::env::var_os("NUDGE_MESSAGES").is_some() {
        for Message { file, line, text, .. } in &list {
            println!("{}:{line}: {text}", file.display());
        }
    }
    let faults = list.iter().filter_map(|Message { file, line, text, form }| {
        Some(format!("{}:{line}: {text:?}: {}", file.display(), fault(text, *form)?))
    });
    let faults: Vec<String> = faults.collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn each_rule_refuses_what_it_is_for() {
    for (phrases, because) in FORBIDDEN {
        for phrase in phrases {
            let text = format!("the {{thing}} {phrase}; do it");
            assert_eq!(fault(&text, Form::Page).as_deref(), Some(because), "{phrase}");
        }
    }
    assert_eq!(fault("{0} is no range of versions", Form::Page).as_deref(), Some(IS_NO));
    assert_eq!(fault("{} of {total} pods wait", Form::Message).as_deref(), Some(COUNT));
    assert_eq!(fault("it has {0} keys, and at most {MAX_KEYS} are allowed", Form::Error), None);
    for text in ["a thing.", "two  spaces", "a".repeat(241).as_str()] {
        assert!(fault(text, Form::Error).is_some() && fault(text, Form::Message).is_none(), "{text}");
    }
    let long = "a ".repeat(31);
    assert!(fault(&long, Form::Message).is_some() && fault(&long, Form::Page).is_none());
    for text in
        ["config {0} does not exist; create it", "there is no config", "it is no longer kept; use at most {anew}"]
    {
        assert_eq!(fault(text, Form::Error), None);
    }
}

#[test]
fn texts_are_found_wherever_they_are() {
    let source = "/// One\n/// doc.\nlet (a, b) = ('\"', \"one \\\n    two\"); // \"not this\"\nf(r#\"a \"raw\" one\"#, '\\'', \"\\\"x\\\"\")";
    let joined_texts: Vec<String> = texts(source, &['"']).iter().map(|(_, text)| join_lines(text)).collect();
    assert_eq!(joined_texts, ["/// One doc.", "one two", "a \"raw\" one", "\\\"x\\\""]);
    assert_eq!(texts("say(`a ${b}`, \"c\") // `d`", &['"', '`']).len(), 2);
}
