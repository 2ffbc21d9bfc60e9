//! The check that a present value covers the required value. The API server adds defaults to a value, and other
//! injectors add their own fields.

use serde_json::Value;

/// The fields that identify elements of Kubernetes' lists.
const KEYS: [&str; 3] = ["mountPath", "containerPort", "name"];

/// Returns whether `present` has every field of `required`. Elements of lists are found by their key, if they have one,
/// and must occur once. Other lists must have the same length and order.
pub(super) fn covers(present: &Value, required: &Value) -> bool {
    let key_of = |element: &Value| KEYS.into_iter().find(|key| element.get(key).is_some());
    match (present, required) {
        (Value::Object(present), Value::Object(required)) => {
            required.iter().all(|(key, required)| present.get(key).is_some_and(|present| covers(present, required)))
        }
        (Value::Array(present), Value::Array(required)) => match required.iter().find_map(key_of) {
            Some(key) => required.iter().all(|required| {
                let mut candidates = present.iter().filter(|present| present[key] == required[key]);
                candidates.next().is_some_and(|present| covers(present, required)) && candidates.next().is_none()
            }),
            None => {
                present.len() == required.len()
                    && present.iter().zip(required).all(|(present, required)| covers(present, required))
            }
        },
        (present, required) => present == required,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn additions_do_not_matter_and_missing_or_changed_fields_do() {
        let required = json!({"a": 1, "env": [{"name": "X", "value": "1"}], "args": ["run"]});
        for (present, covered) in [
            (required.clone(), true),
            (
                json!({"a": 1, "b": 2, "env": [{"name": "Y"}, {"name": "X", "value": "1", "z": 0}], "args": ["run"]}),
                true,
            ),
            (json!({"env": [{"name": "X", "value": "1"}], "args": ["run"]}), false),
            (json!({"a": 1, "env": [{"name": "X", "value": "2"}], "args": ["run"]}), false),
            (
                json!({"a": 1, "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}], "args": ["run"]}),
                false,
            ),
            (json!({"a": 1, "env": [], "args": ["run"]}), false),
            (json!({"a": 1, "env": null, "args": ["run"]}), false),
            (json!({"a": 1, "env": [{"name": "X", "value": "1"}], "args": ["run", "--port=1"]}), false),
        ] {
            assert_eq!(covers(&present, &required), covered, "{present}");
        }
    }
}
