//! The file of an export: YAML documents, each of one object. Every document is parsed again before it is written, and
//! everything that is read has bounds.

use nudge_validation::line_after_document;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::output::{Format, document};

/// The maximum size of an export.
pub(crate) const MAX_BYTES: usize = 512 * 1024 * 1024;
/// The maximum number of documents.
const MAX_DOCUMENTS: usize = 200_000;
/// The maximum size of a document: a ConfigMap of 1 MiB in the longest spelling. The encrypted Secrets may have more.
const MAX_DOCUMENT_BYTES: usize = 8 * 1024 * 1024;
/// The line before each document.
const SEPARATOR: &str = "---\n";

/// A writer of documents, one after another.
#[derive(Default)]
pub(crate) struct Writer {
    text: Zeroizing<String>,
}

impl Writer {
    /// Adds a document. Messages call it `what`.
    pub(crate) fn add(&mut self, what: &str, value: &Value) -> Result<(), Failure> {
        let text = encode(value).map_err(|cause| Failure::new(format!("{what}: {cause}")))?;
        self.push(what, &text)
    }

    /// Adds a document that is encoded already.
    pub(crate) fn push(&mut self, what: &str, text: &str) -> Result<(), Failure> {
        if self.text.len() + SEPARATOR.len() + text.len() + 1 > MAX_BYTES {
            return Err(Failure::new(format!(
                "the export would have more than {MAX_BYTES} bytes with {what}; export namespaces one by one with -n"
            )));
        }
        self.text.push_str(SEPARATOR);
        self.text.push_str(text);
        if !text.ends_with('\n') {
            self.text.push('\n');
        }
        Ok(())
    }

    /// Returns the whole text.
    pub(crate) fn text(self) -> Zeroizing<String> {
        self.text
    }
}

/// Returns the text of a document, or the reason why no text of it can be read back.
pub(crate) fn encode(value: &Value) -> Result<Zeroizing<String>, String> {
    let as_text = |format| document(value, format).map(Zeroizing::new).map_err(|failure| failure.message);
    let yaml = as_text(Format::Yaml)?;
    // A value that YAML would change is written as JSON, which is also YAML.
    let text = match parse(&yaml) {
        Ok(parsed) if parsed == *value && !has_separator(&yaml) => yaml,
        _ => as_text(Format::Json)?,
    };
    if parse(&text).ok().as_ref() != Some(value) {
        return Err("it can't be written so that it can be read again".to_owned());
    }
    Ok(text)
}

fn has_separator(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("---"))
}

fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: 400_000,
            max_nodes: 200_000,
            max_depth: 64,
            max_total_scalar_bytes: MAX_BYTES,
            max_documents: 1,
            max_aliases: 0,
            max_anchors: 0,
        },
        // A snippet would show values.
        with_snippet: false,
    };
    let value = serde_saphyr::from_str_with_options(text, options).map_err(|error| error.without_snippet().to_string());
    match line_after_document(text) {
        Some(_) => value.and(Err("something follows its end".to_owned())),
        None => value,
    }
}

/// Reads the documents of a text, each with its first line.
pub(crate) fn read(text: &str) -> Result<Vec<(usize, Value)>, Failure> {
    let mut documents = Vec::new();
    let (mut begin, mut first_line, mut index) = (0, 1, 0);
    let mut take = |part: &str, line: usize| -> Result<(), Failure> {
        if part.trim().is_empty() {
            return Ok(());
        }
        if documents.len() == MAX_DOCUMENTS {
            return Err(Failure::new(format!("the export has more than {MAX_DOCUMENTS} documents")));
        }
        // Parsing takes several times the memory of the text. The Secrets are one text in few lines of 64 characters,
        // which costs little.
        if part.len() > MAX_DOCUMENT_BYTES && !part.contains("\nkind: EncryptedSecrets\n") {
            return Err(Failure::new(format!("the document at line {line} has more than {MAX_DOCUMENT_BYTES} bytes")));
        }
        let value = parse(part).map_err(|cause| {
            let cause: String = cause.chars().take(300).collect();
            Failure::new(format!("the document at line {line} can't be read: {cause}"))
        })?;
        documents.push((line, value));
        Ok(())
    };
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" {
            take(&text[begin..index], first_line)?;
            (begin, first_line) = (index + line.len(), number + 2);
        }
        index += line.len();
    }
    take(&text[begin..], first_line)?;
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn written(values: &[Value]) -> Zeroizing<String> {
        let mut writer = Writer::default();
        for value in values {
            writer.add("it", value).unwrap();
        }
        writer.text()
    }

    fn reread(values: &[Value]) -> Vec<Value> {
        read(&written(values)).unwrap().into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn a_readable_document_for_each_object() {
        let one = json!({"kind": "ConfigMap", "data": {"game.properties": "lives=3\nspeed=1\n"}});
        let text = written(&[one.clone(), one]);
        assert!(text.starts_with("---\n") && text.contains("\n    lives=3\n    speed=1\n"), "{}", *text);
        assert_eq!(read(&text).unwrap()[1].0, 1 + text.lines().count() / 2 + 1);
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_its_line() {
        let refused = |text: &str| read(text).unwrap_err().message;
        assert!(refused("a: 1\n---\nb: [\n").starts_with("the document at line 3 can't be read"));
        assert!(refused("---\na: 1\n...\n}").contains("line 2 can't be read: something follows its end"));
        assert!(refused("a: &x 1\nb: *x\n").contains("can't be read"), "no document needs an alias");
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(refused(&deep).contains("line 1"));
        let long = format!("a: {}\n", "x".repeat(MAX_DOCUMENT_BYTES));
        assert!(refused(&long).contains("more than"), "bounded");
        assert_eq!(read("---\n\n---\n").unwrap(), []);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            text in "(---\n|\\PC|[ \n\t:#'\"|>-]|\u{1b}|\r|no|1e3|~){0,12}",
            key in "[a-zA-Z0-9.~]{1,6}",
            number: i64,
        ) {
            let values = [json!({"kind": "A", "data": {key: text, "n": number}}), json!({"kind": "B", "data": [text, null, true]})];
            prop_assert_eq!(reread(&values), values);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(---\n|[a: &*\\[\\]{}\n'\"|>-]){0,40}") {
            let _ = read(&text);
        }
    }
}
