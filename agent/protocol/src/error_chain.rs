//! Errors as one line, for the log or for people.

/// The error with its causes, for the log.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The error and its causes for people, without causes that the text before them has already.
pub fn message(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    plain(&text)
}

/// Without the number behind an error of the operating system.
pub fn plain(error: &str) -> String {
    let cut = error.rfind(" (os error ").filter(|_| error.ends_with(')'));
    cut.map_or(error, |at| &error[..at]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] std::io::Error);
        let of = |text| message(&Outer(text, std::io::Error::other("it is closed")));
        assert_eq!(of("reading: it is closed"), "reading: it is closed");
        assert_eq!(of("reading"), "reading: it is closed");
    }
}
