//! The known name that a mistyped one is nearest to.

/// The nearest of `known`, where it is near enough to be meant: at most a third of the name differs, and not all of it after the slash.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let own = tail(name);
    // A name is bounded by Kubernetes, but not the time before that is checked.
    if own.len() > 63 {
        return None;
    }
    let near = known.iter().map(|known| (distance(own, tail(known)), *known)).min()?;
    (near.0 <= 1 + tail(near.1).len() / 4).then_some(near.1)
}

fn tail(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Levenshtein's distance, in bytes.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, left) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, right) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::super::annotations::KNOWN;
    use super::*;

    #[test]
    fn what_is_mistyped_finds_its_name_and_what_is_strange_finds_none() {
        for (name, known) in [
            ("nudge.dev/notfy", Some("nudge.dev/notify")),
            ("nudge.dev/config", Some("nudge.dev/configs")),
            ("nudge.dev/runasuser", Some("nudge.dev/run-as-user")),
            ("nudge.dev/Port", Some("nudge.dev/port")),
            ("nudge.dev/something-else", None),
            (&format!("nudge.dev/{}", "a".repeat(64)), None),
        ] {
            assert_eq!(nearest(name, &KNOWN), known, "{name}");
        }
    }

    #[test]
    fn distances_count_changes() {
        for (one, other, request) in
            [("", "", 0), ("", "ab", 2), ("abc", "abd", 1), ("kitten", "sitting", 3), ("a", "", 1)]
        {
            assert_eq!(distance(one, other), request);
        }
    }
}
