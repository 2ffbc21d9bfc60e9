//! The warnings of the API server and of the webhooks that it asks: headers of its answers, as kubectl shows them.

use hyper::HeaderMap;

/// The maximum number of warnings of one answer that are shown.
const MAX_WARNINGS: usize = 16;

/// Returns the texts of the headers `Warning`. Each header is a code, an agent and a text in quotes: `299 - "text"`.
pub(crate) fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all("warning").iter().filter_map(|value| text(std::str::from_utf8(value.as_bytes()).ok()?));
    texts.take(MAX_WARNINGS).collect()
}

fn text(header: &str) -> Option<String> {
    let quoted = header.splitn(3, ' ').nth(2)?.strip_prefix('"')?;
    let (mut text, mut is_escaped) = (String::new(), false);
    for character in quoted.chars() {
        match character {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return Some(text),
            character => {
                text.push(character);
                is_escaped = false;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_as_the_api_server_writes_them() {
        let warnings_of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("warning", value.parse().unwrap());
            }
            warnings(&headers)
        };
        assert_eq!(warnings_of(&[r#"299 - "version \"2\" waits: a\\b""#]), [r#"version "2" waits: a\b"#]);
        assert_eq!(warnings_of(&[r#"299 - "one""#, r#"299 - "two" "Sat, 25 Aug 2012 23:34:45 GMT""#]), ["one", "two"]);
        assert!(warnings_of(&["", "299 -", r#"299 - "open"#, "299 - bare"]).is_empty());
        assert_eq!(warnings_of(&[r#"299 - "x""#; 20]).len(), MAX_WARNINGS);
    }
}
