//! Errors as one line, for the log or for people.

use std::error::Error;
use std::iter::successors;

/// Returns the error with its causes, for the log.
pub fn chain(error: &dyn Error) -> String {
    let causes = successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns the error and its causes for people, without causes that the text before them has already.
pub fn message(error: &dyn Error) -> String {
    let causes = successors(error.source(), |&cause| cause.source()).map(ToString::to_string);
    let add = |text: String, cause| if text.contains(&cause) { text } else { format!("{text}: {cause}") };
    without_os_code(&causes.fold(error.to_string(), add))
}

/// Returns the text of an error of the operating system without the number at its end.
pub fn without_os_code(error: &str) -> String {
    let cut = error.rfind(" (os error ").filter(|_| error.ends_with(')'));
    cut.map_or(error, |end| &error[..end]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] std::io::Error);
        let message = |text| message(&Outer(text, std::io::Error::other("it is closed")));
        assert_eq!(message("reading: it is closed"), "reading: it is closed");
        assert_eq!(message("reading"), "reading: it is closed");
    }
}
