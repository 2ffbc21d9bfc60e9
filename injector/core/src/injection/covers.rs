//! Whether what is there has all that is wanted: the API server adds defaults to it, and other injectors what they need.

use serde_json::Value;

/// Fields by which the elements of Kubernetes' lists are told apart.
const KEYS: [&str; 3] = ["mountPath", "containerPort", "name"];

/// Whether `present` has every field of `request`. Elements of lists that have a key are looked up by it, and must be there once;
/// other lists must be as long and in the same order.
pub(super) fn covers(present: &Value, request: &Value) -> bool {
    match (present, request) {
        (Value::Object(present), Value::Object(request)) => {
            request.iter().all(|(key, request)| present.get(key).is_some_and(|present| covers(present, request)))
        }
        (Value::Array(present), Value::Array(request)) => match request.iter().find_map(key_of) {
            Some(key) => request.iter().all(|request| {
                let mut same = present.iter().filter(|present| present[key] == request[key]);
                same.next().is_some_and(|present| covers(present, request)) && same.next().is_none()
            }),
            None => {
                present.len() == request.len()
                    && present.iter().zip(request).all(|(present, request)| covers(present, request))
            }
        },
        (present, request) => present == request,
    }
}

fn key_of(element: &Value) -> Option<&'static str> {
    KEYS.into_iter().find(|key| element.get(key).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_added_does_not_matter_and_what_is_missing_or_changed_does() {
        let request = json!({"a": 1, "env": [{"name": "X", "value": "1"}], "args": ["run"]});
        for (present, covered) in [
            (request.clone(), true),
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
            assert_eq!(covers(&present, &request), covered, "{present}");
        }
    }
}
