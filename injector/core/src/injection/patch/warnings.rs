//! The warnings of an injection, as an annotation of the pod: the API server returns them to the creator of the pod,
//! usually a controller that shows them to nobody.

use json_patch::PatchError;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::labels::WARNINGS;

use super::patch_builder::PatchBuilder;

/// The maximum length of the annotation, which is that of an Event.
const MAX_BYTES: usize = 1024;
/// The room for the last line, which counts the omitted warnings.
const COUNT_LINE_BYTES: usize = 16;

/// Returns a line for each warning, as far as there is room.
fn annotation_text(warnings: &[String]) -> Option<String> {
    let mut text = String::new();
    for (at, warning) in warnings.iter().enumerate() {
        let gap = usize::from(at > 0);
        if at > 0 && text.len() + gap + warning.len() > MAX_BYTES - COUNT_LINE_BYTES {
            text.extend(["\n".to_owned(), (warnings.len() - at).to_string(), " more".to_owned()]);
            break;
        }
        text.extend((at > 0).then_some('\n'));
        text += &warning.replace('\n', " ");
        text = clip(text, MAX_BYTES - COUNT_LINE_BYTES);
    }
    (!text.is_empty()).then_some(text)
}

/// Sets or removes the annotation. A pod may have it as a copy of another pod. On a pod that was injected before, the
/// annotation stays: it describes the user's original pod, which can no longer be distinguished from the additions.
pub(super) fn write(builder: &mut PatchBuilder, warnings: &[String], injected_before: bool) -> Result<(), PatchError> {
    let is_present = builder.object()["metadata"]["annotations"].get(WARNINGS).is_some();
    if is_present && injected_before { Ok(()) } else { builder.set_annotation(WARNINGS, annotation_text(warnings)) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn many_or_long_warnings_are_cut() {
        let of = |count: usize, length: usize| annotation_text(&vec!["é".repeat(length); count]).unwrap_or_default();
        assert_eq!((of(0, 1), of(1, 1), of(2, 1)), (String::new(), "é".to_owned(), "é\né".to_owned()));
        assert!(of(1, 5000).len() <= MAX_BYTES && of(16, 5000).ends_with("\n15 more"), "{}", of(16, 5000).len());
        let many = of(100_000, 50);
        assert!(many.len() <= MAX_BYTES && many.lines().count() == 10 && many.ends_with("\n99991 more"), "{many}");
        assert_eq!(annotation_text(&["a\nb".to_owned(), "c".to_owned()]).as_deref(), Some("a b\nc"));
    }

    #[test]
    fn the_annotation_follows_the_warnings() {
        let run = |pod: &Value, warnings: &[&str], before| {
            let mut builder = PatchBuilder::new(pod);
            write(&mut builder, &warnings.iter().map(|&warning| warning.to_owned()).collect::<Vec<_>>(), before)
                .unwrap();
            let object = builder.object().clone();
            (object, builder.patch().0.len())
        };
        let after = |pod: &Value, warnings: &[&str]| run(pod, warnings, false);
        let bare = json!({"metadata": {"name": "web"}});
        assert_eq!(after(&bare, &[]), (bare.clone(), 0));
        let (warned, _) = after(&bare, &["a", "b"]);
        assert_eq!(warned["metadata"]["annotations"], json!({"nudge.dev/warnings": "a\nb"}));
        assert_eq!(after(&warned, &["a", "b"]), (warned.clone(), 0));
        assert_eq!(after(&warned, &["c"]).0["metadata"]["annotations"], json!({"nudge.dev/warnings": "c"}));
        assert_eq!(after(&warned, &[]).0["metadata"]["annotations"], json!({}));
        assert_eq!((run(&warned, &[], true), run(&warned, &["c"], true)), ((warned.clone(), 0), (warned.clone(), 0)));
        assert_eq!(run(&bare, &["a", "b"], true).0, warned);
        assert_eq!(
            after(&json!({"metadata": {"annotations": null}}), &["a"]).0["metadata"]["annotations"],
            json!({"nudge.dev/warnings": "a"})
        );
    }
}
