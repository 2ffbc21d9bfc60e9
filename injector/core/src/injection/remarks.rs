//! The warnings of an injection as they stand on the pod: whoever made it was told by the API server, which for most pods is a controller
//! that tells nobody. Pure.

use json_patch::PatchError;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::labels::WARNINGS;
use serde_json::json;

use super::edit::{Edit, place};

/// Longest text, in bytes: as much as an Event takes.
const MOST: usize = 1024;
/// Room for the line that says how many more there are.
const MORE: usize = 16;

/// A line for each, as far as there is room.
pub(super) fn text(warnings: &[String]) -> Option<String> {
    let mut text = String::new();
    for (at, warning) in warnings.iter().enumerate() {
        let gap = usize::from(at > 0);
        if at > 0 && text.len() + gap + warning.len() > MOST - MORE {
            text.extend(["\n".to_owned(), (warnings.len() - at).to_string(), " more".to_owned()]);
            break;
        }
        text.extend((at > 0).then_some('\n'));
        text += &warning.replace('\n', " ");
        clip(&mut text, MOST - MORE);
    }
    (!text.is_empty()).then_some(text)
}

/// Makes the annotation what it should be. It may have come with a copy of another pod; but of a pod that was injected before it says
/// what the user's own was like, which can't be seen any more where what they wrote is just what is added.
pub(super) fn write(edit: &mut Edit, warnings: &[String], injected_before: bool) -> Result<(), PatchError> {
    let request = text(warnings);
    let present = edit.object()["metadata"]["annotations"].get(WARNINGS).cloned();
    match (present, request) {
        (None, None) => Ok(()),
        (Some(_), _) if injected_before => Ok(()),
        (Some(_), None) => edit.remove(place!["metadata", "annotations", WARNINGS]),
        (Some(present), Some(text)) if present == text => Ok(()),
        (_, Some(text)) => {
            edit.map(place!["metadata"])?;
            edit.map(place!["metadata", "annotations"])?;
            edit.add(place!["metadata", "annotations", WARNINGS], json!(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn many_or_long_ones_are_cut() {
        let of = |count: usize, length: usize| text(&vec!["é".repeat(length); count]).unwrap_or_default();
        assert_eq!((of(0, 1), of(1, 1), of(2, 1)), (String::new(), "é".to_owned(), "é\né".to_owned()));
        assert!(of(1, 5000).len() <= MOST && of(16, 5000).ends_with("\n15 more"), "{}", of(16, 5000).len());
        let many = of(100_000, 50);
        assert!(many.len() <= MOST && many.lines().count() == 10 && many.ends_with("\n99991 more"), "{many}");
        assert_eq!(text(&["a\nb".to_owned(), "c".to_owned()]).as_deref(), Some("a b\nc"));
    }

    #[test]
    fn the_annotation_follows_the_warnings() {
        let run = |pod: &Value, warnings: &[&str], before| {
            let mut edit = Edit::new(pod);
            write(&mut edit, &warnings.iter().map(|&it| it.to_owned()).collect::<Vec<_>>(), before).unwrap();
            let object = edit.object().clone();
            (object, edit.patch().0.len())
        };
        let after = |pod: &Value, warnings: &[&str]| run(pod, warnings, false);
        let bare = json!({"metadata": {"name": "web"}});
        assert_eq!(after(&bare, &[]), (bare.clone(), 0));
        let (told, _) = after(&bare, &["a", "b"]);
        assert_eq!(told["metadata"]["annotations"], json!({"nudge.dev/warnings": "a\nb"}));
        assert_eq!(after(&told, &["a", "b"]), (told.clone(), 0));
        assert_eq!(after(&told, &["c"]).0["metadata"]["annotations"], json!({"nudge.dev/warnings": "c"}));
        assert_eq!(after(&told, &[]).0["metadata"]["annotations"], json!({}));
        assert_eq!((run(&told, &[], true), run(&told, &["c"], true)), ((told.clone(), 0), (told.clone(), 0)));
        assert_eq!(run(&bare, &["a", "b"], true).0, told);
        assert_eq!(
            after(&json!({"metadata": {"annotations": null}}), &["a"]).0["metadata"]["annotations"],
            json!({"nudge.dev/warnings": "a"})
        );
    }
}
