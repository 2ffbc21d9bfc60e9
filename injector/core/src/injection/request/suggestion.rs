//! The known name that the user probably meant.

/// Longest name that is compared. Kubernetes bounds names, but checks them later than this.
const MAX_BYTES: usize = 63;

/// The most similar name of `known`, unless even that differs too much. Only the parts after the slash are compared.
pub(super) fn suggestion<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let own = tail(name);
    if own.len() > MAX_BYTES {
        return None;
    }
    let (distance, known) = known.iter().map(|known| (strsim::levenshtein(own, tail(known)), *known)).min()?;
    (distance <= 1 + tail(known).len() / 4).then_some(known)
}

fn tail(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::super::annotations::KNOWN;
    use super::*;

    #[test]
    fn a_mistyped_name_finds_the_known_one() {
        for (name, known) in [
            ("nudge.dev/notfy", Some("nudge.dev/notify")),
            ("nudge.dev/config", Some("nudge.dev/configs")),
            ("nudge.dev/runasuser", Some("nudge.dev/run-as-user")),
            ("nudge.dev/Port", Some("nudge.dev/port")),
            ("nudge.dev/something-else", None),
            (&format!("nudge.dev/{}", "a".repeat(64)), None),
        ] {
            assert_eq!(suggestion(name, &KNOWN), known, "{name}");
        }
    }
}
