//! Files with objects, as `kubectl apply` takes them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use crate::followed_objects::yaml_fault;

/// The maximum size of a file with objects.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads the file; `-` is standard input.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    } else {
        File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Returns the documents of the text. No fault quotes it.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    // Kubernetes reads modes such as 0644 as octal numbers.
    let options = serde_saphyr::options! {with_snippet: false, legacy_octal_numbers: true};
    let documents = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    let mut documents: Vec<Value> = documents.map_err(|error| yaml_fault(&error))?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}
