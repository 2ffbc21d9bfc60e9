//! The change of a template of pods: the label and the annotation that request the agent.

use nudge_core::injection::annotations::{INJECT, NOTIFY};
use serde_json::{Value, json};
use similar::TextDiff;

use crate::failure::Failure;
use crate::output::{Format, document};

pub(super) struct TemplateChange {
    /// The value of the annotation about notification.
    pub(super) notify: Option<String>,
    /// The container that is notified; all of them without it.
    pub(super) container: Option<String>,
}

impl TemplateChange {
    /// Returns the merge patch of the template.
    pub(super) fn patch(&self) -> Value {
        let mut metadata = json!({"labels": {INJECT: "true"}});
        if let Some(notify) = &self.notify {
            let name = self.container.as_ref().map_or_else(|| NOTIFY.to_owned(), |name| format!("{NOTIFY}.{name}"));
            metadata["annotations"] = json!({name: notify});
        }
        json!({"metadata": metadata})
    }

    /// Changes the template, which must have the container.
    pub(super) fn apply(&self, template: &mut Value) -> Result<(), String> {
        let names: Vec<&str> = ["containers", "initContainers"]
            .into_iter()
            .filter_map(|list| template["spec"][list].as_array())
            .flatten()
            .filter_map(|container| container["name"].as_str())
            .collect();
        if let Some(name) = self.container.as_deref().filter(|name| !names.contains(name)) {
            return Err(format!("there is no container {name}; it has: {}", names.join(", ")));
        }
        let metadata = &template["metadata"];
        if [metadata, &metadata["labels"], &metadata["annotations"]]
            .iter()
            .any(|map| !map.is_null() && !map.is_object())
        {
            return Err("its metadata are not a map".to_owned());
        }
        let patch = self.patch();
        for map in ["labels", "annotations"] {
            for (name, value) in patch["metadata"][map].as_object().into_iter().flatten() {
                template["metadata"][map][name] = value.clone();
            }
        }
        Ok(())
    }
}

/// Returns the change of the template as a unified diff, which is empty if there is none.
pub(super) fn diff(before: &Value, after: &Value, title: &str) -> Result<String, Failure> {
    let (old, new) = (document(before, Format::Yaml)?, document(after, Format::Yaml)?);
    let diff = TextDiff::from_lines(&old, &new);
    let header = |state: &str| format!("template of {title} ({state})");
    Ok(diff.unified_diff().context_radius(3).header(&header("now"), &header("new")).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(notify: Option<&str>, container: Option<&str>) -> TemplateChange {
        TemplateChange { notify: notify.map(str::to_owned), container: container.map(str::to_owned) }
    }

    #[test]
    fn a_template_gets_a_label_and_an_annotation() {
        let bare = json!({"spec": {"containers": [{"name": "app"}]}});
        let mut template = bare.clone();
        change(None, None).apply(&mut template).unwrap();
        assert_eq!(template["metadata"], json!({"labels": {"nudge.dev/inject": "true"}}));
        let mut template = json!({"metadata": {"annotations": null, "labels": {"app": "web"}}, "spec": bare["spec"]});
        change(Some("SIGHUP"), Some("app")).apply(&mut template).unwrap();
        let expected = json!({"labels": {"app": "web", "nudge.dev/inject": "true"}, "annotations": {"nudge.dev/notify.app": "SIGHUP"}});
        assert_eq!(template["metadata"], expected);
        let fault = change(Some("SIGHUP"), Some("web")).apply(&mut template).unwrap_err();
        assert_eq!(fault, "there is no container web; it has: app");
        assert!(change(None, None).apply(&mut json!({"metadata": {"labels": "x"}})).is_err());
        assert_eq!(
            change(Some("SIGHUP"), None).patch(),
            json!({"metadata": {"labels": {"nudge.dev/inject": "true"}, "annotations": {"nudge.dev/notify": "SIGHUP"}}})
        );
    }

    #[test]
    fn the_diff_shows_what_is_added() {
        let before = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
        let mut after = before.clone();
        change(None, None).apply(&mut after).unwrap();
        let diff_text = diff(&before, &after, "deployment.apps/web").unwrap();
        assert!(diff_text.starts_with("--- template of deployment.apps/web (now)\n"), "{diff_text}");
        assert!(diff_text.contains("\n+    nudge.dev/inject: \"true\"\n"), "{diff_text}");
        assert_eq!(diff(&after, &after, "x").unwrap(), "");
    }
}
