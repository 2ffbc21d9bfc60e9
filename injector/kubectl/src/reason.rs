//! The reasons that users give, in flags.

/// The maximum length of a reason, as in the fields of the API.
pub(crate) const MAX_CHARACTERS: usize = 256;

/// Parses a reason, without the space around it.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why".to_owned()),
        text if text.chars().count() > MAX_CHARACTERS => Err(format!("use at most {MAX_CHARACTERS} characters")),
        text => Ok(text.to_owned()),
    }
}
