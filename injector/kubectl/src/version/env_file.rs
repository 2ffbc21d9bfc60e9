//! Files of `KEY=VALUE` lines, by the rules of `kubectl create configmap --from-env-file`.

/// Parses the pairs of `text`. A key without `=` takes its value from `variable`; the value is empty if there is no
/// such variable.
pub(crate) fn parse(text: &[u8], variable: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>, String> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let mut pairs = Vec::new();
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Errors omit the line, which may be a secret.
        let line = std::str::from_utf8(line).map_err(|_| format!("line {number} is not UTF-8"))?.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value.to_owned())));
        if !is_variable(key) {
            return Err(format!(
                "line {number}: the text before '=' is not a key; use letters, digits, '_', '-' and '.', and don't begin with a digit"
            ));
        }
        pairs.push((key.to_owned(), value.or_else(|| variable(key)).unwrap_or_default()));
    }
    Ok(pairs)
}

/// Returns whether Kubernetes takes the key as the name of a variable (`IsEnvVarName`).
fn is_variable(key: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b'.');
    key.bytes().next().is_some_and(is_inner)
        && key.bytes().all(|byte| is_inner(byte) || byte.is_ascii_digit())
        && key != "."
        && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        parse(text.as_bytes(), |key| (key == "HOME").then(|| "/root".to_owned()))
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn the_rules_of_kubectl_apply() {
        let text = "\u{feff}# comment\n\n  LIVES=3\nURL=http://a?b=c # stays\r\nQUOTED=\"a b\"\n\tEMPTY=\nHOME\nABSENT\nlast= x ";
        let expected = [
            ("LIVES", "3"),
            ("URL", "http://a?b=c # stays"),
            ("QUOTED", "\"a b\""),
            ("EMPTY", ""),
            ("HOME", "/root"),
            ("ABSENT", ""),
            ("last", " x "),
        ];
        assert_eq!(read(text).unwrap(), pairs(&expected));
    }

    #[test]
    fn an_error_names_the_line_without_its_text() {
        for bad in ["A=1\nmy secret", "A=1\n1A=secret", "A=1\n=secret", "A=1\nexport secret=1", "A=1\n..secret=x"] {
            let refusal = read(bad).unwrap_err();
            assert!(refusal.starts_with("line 2") && !refusal.contains("secret"), "{bad}: {refusal}");
        }
        assert_eq!(parse(b"A=1\nB=\xff", |_| None).unwrap_err(), "line 2 is not UTF-8");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            expected in proptest::collection::vec(("[A-Za-z_][A-Za-z0-9_.-]{0,8}", "[^\\r\\n]{0,12}"), 0..6)
        ) {
            let text: Vec<String> = expected.iter().map(|(key, value)| format!("{key}={value}")).collect();
            prop_assert_eq!(read(&text.join("\n")).unwrap(), expected);
        }

        #[test]
        fn nothing_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&text, |_| None);
        }
    }
}
