//! The objects of a file: those with a template of pods get the change, and the others stay as they are.

use serde_json::Value;

use super::template::TemplateChange;
use crate::manifest::documents;

/// The kinds that are a list of objects.
const LIST: &str = "List";

/// Returns the objects of the file with the change. No fault quotes the file.
pub(super) fn inject_documents(text: &str, change: &TemplateChange) -> Result<Vec<Value>, String> {
    let mut objects = documents(text)?;
    let mut count = 0;
    for object in &mut objects {
        count += inject_object(object, change)?;
    }
    if count == 0 {
        return Err("no object in it has pods; it needs a Pod, or a workload such as a Deployment".to_owned());
    }
    Ok(objects)
}

/// Changes the templates of the object. Returns how many it has.
fn inject_object(object: &mut Value, change: &TemplateChange) -> Result<usize, String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if kind == "Secret" {
        return Err(format!(
            "it has Secret {name}, whose values are never printed; keep the Secret in a file of its own"
        ));
    }
    if kind.ends_with(LIST) {
        let items = object.get_mut("items").and_then(Value::as_array_mut);
        return items.into_iter().flatten().map(|item| inject_object(item, change)).sum();
    }
    let template = match kind.as_str() {
        "Pod" => "",
        "CronJob" => "/spec/jobTemplate/spec/template",
        _ => "/spec/template",
    };
    let has_pods = |template: &&mut Value| template["spec"]["containers"].is_array();
    match object.pointer_mut(template).filter(has_pods) {
        Some(template) => change.apply(template).map(|()| 1).map_err(|fault| format!("{kind} {name}: {fault}")),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inject(text: &str) -> Result<Vec<Value>, String> {
        inject_documents(text, &TemplateChange { notify: Some("SIGHUP".to_owned()), container: None })
    }

    #[test]
    fn objects_with_pods_are_changed_and_others_stay() {
        let text = "kind: ConfigMap\ndata: {on: 'yes'}\n---\n---\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers: [{name: app}]\n      \
                    volumes: [{configMap: {defaultMode: 0644}}]\n---\nkind: List\nitems:\n- kind: CronJob\n  spec: {jobTemplate: {spec: {template: \
                    {spec: {containers: []}}}}}\n- kind: Pod\n  spec: {containers: []}\n- kind: Service\n  spec: {}\n";
        let objects = inject(text).unwrap();
        let label = |pod: &Value| pod["metadata"]["labels"]["nudge.dev/inject"] == "true";
        assert_eq!(objects[0], serde_json::json!({"kind": "ConfigMap", "data": {"on": "yes"}}));
        let template = &objects[1]["spec"]["template"];
        assert!(label(template) && template["metadata"]["annotations"]["nudge.dev/notify"] == "SIGHUP");
        assert_eq!(template["spec"]["volumes"][0]["configMap"]["defaultMode"], 0o644);
        let items = &objects[2]["items"];
        assert!(label(&items[0]["spec"]["jobTemplate"]["spec"]["template"]) && label(&items[1]) && !label(&items[2]));
    }

    #[test]
    fn a_file_that_can_not_be_used_is_refused_without_its_values() {
        for (text, part) in [
            ("kind: Service", "no object in it has pods"),
            ("", "no object in it has pods"),
            ("kind: Secret\nmetadata: {name: keys}\ndata: {pin: hidden}", "it has Secret keys"),
            ("kind: SecretList\nitems: [{kind: Secret, metadata: {name: keys}}]", "it has Secret keys"),
            ("kind: Pod\npin: hidden\nspec: [", "line "),
        ] {
            let fault = inject(text).unwrap_err();
            assert!(fault.contains(part) && !fault.contains("hidden"), "{fault}");
        }
    }
}
