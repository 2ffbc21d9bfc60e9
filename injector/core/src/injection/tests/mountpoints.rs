//! Mounts of the user where the kubelet and the runtime can't create the folders for Nudge's mounts.

use super::*;

/// The outcome of a mount.
#[derive(Debug, PartialEq)]
enum Outcome {
    Admitted,
    Warned,
    Refused,
}

use Outcome::{Admitted, Refused, Warned};

/// Returns the outcome of a pod with these volumes: warnings about mounts, or the refusal. The container `app` and the
/// init container `setup` have different mounts.
fn outcome(files: Option<&str>, volumes: &Value, setup: &Value, app: &Value) -> Result<String, String> {
    let annotations = files.map_or(json!({}), |path| json!({"mount-path": path}));
    let spec = json!({
        "volumes": volumes,
        "initContainers": [{"name": "setup", "image": "app", "volumeMounts": setup}],
        "containers": [{"name": "app", "image": "app", "volumeMounts": app}],
    });
    let (_, warnings) = try_with(&with_spec(&annotations, &spec), &facts())?;
    Ok(warnings.into_iter().filter(|warning| warning.contains("mounts volume")).collect())
}

#[test]
fn a_mount_above_in_which_no_folder_can_be_made_is_refused_or_warned_of() {
    let empty = || json!({"emptyDir": {}});
    let image = || json!({"image": {"reference": "r"}});
    let claim = |read_only: bool| json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}});
    let csi = |read_only: bool| json!({"csi": {"driver": "d", "readOnly": read_only}});
    let map = || json!({"configMap": {"name": "static"}});
    let at = |path: &str| json!([{"name": "v", "mountPath": path}]);
    let read_only = |path: &str| json!([{"name": "v", "mountPath": path, "readOnly": true}]);
    let sub = |path: &str| json!([{"name": "v", "mountPath": path, "subPath": "s"}]);
    let sub_expr = |path: &str| json!([{"name": "v", "mountPath": path, "subPathExpr": "$(X)"}]);
    let none = || json!([]);
    let srv = Some("/srv/web/live");
    for (name, files, volume, setup, app, expected) in [
        ("a writable volume", None, empty(), none(), at("/run"), Admitted),
        ("a read-only mount", None, empty(), none(), read_only("/run"), Refused),
        ("where /run is a link's target", None, empty(), none(), read_only("/var/run"), Refused),
        ("with a slash", None, empty(), none(), read_only("/run/"), Refused),
        ("beside", None, empty(), none(), read_only("/run/web"), Admitted),
        ("the root's parent folder", srv, empty(), none(), read_only("/srv"), Refused),
        ("the parent folder", srv, empty(), none(), read_only("/srv/web"), Refused),
        ("a neighbour", srv, empty(), none(), read_only("/srv/webs"), Admitted),
        ("an image", None, image(), none(), at("/run"), Warned),
        ("a claim", None, claim(false), none(), at("/run"), Admitted),
        ("a claim that is read-only itself", None, claim(true), none(), at("/run"), Warned),
        ("a driver's", None, csi(false), none(), at("/run"), Admitted),
        ("a driver's that is read-only itself", None, csi(true), none(), at("/run"), Warned),
        ("a node's folder", None, json!({"hostPath": {"path": "/x"}}), none(), read_only("/run"), Warned),
        // For these the kubelet makes the folders itself, in the volume.
        ("a ConfigMap", srv, map(), none(), at("/srv/web"), Admitted),
        ("a ConfigMap, read-only", srv, map(), none(), read_only("/srv/web"), Admitted),
        ("a Secret", srv, json!({"secret": {"secretName": "s"}}), none(), read_only("/srv/web"), Admitted),
        ("projected", srv, json!({"projected": {"sources": []}}), none(), read_only("/srv/web"), Admitted),
        ("of the pod's fields", srv, json!({"downwardAPI": {"items": []}}), none(), read_only("/srv/web"), Admitted),
        // But not in a folder of the volume.
        ("a folder of a ConfigMap", srv, map(), none(), sub("/srv/web"), Refused),
        ("a folder of a ConfigMap by a variable", srv, map(), none(), sub_expr("/srv/web"), Refused),
        ("a folder of a writable volume", srv, empty(), none(), sub("/srv/web"), Admitted),
        // The runtime has made the folder for the container that may write.
        ("written before", srv, empty(), at("/srv/web"), read_only("/srv/web"), Admitted),
        ("written elsewhere before", srv, empty(), at("/data"), read_only("/srv/web"), Refused),
        ("read before", srv, empty(), read_only("/srv/web"), read_only("/srv/web"), Refused),
        ("another folder written before", srv, empty(), sub("/srv/web"), read_only("/srv/web"), Refused),
        ("a part of a claim that is read-only itself", srv, claim(true), none(), sub("/srv/web"), Warned),
        ("a claim that was written before", srv, claim(false), at("/srv/web"), read_only("/srv/web"), Admitted),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        let (outcome, message) = match outcome(files, &json!([volume]), &setup, &app) {
            Ok(warning) if warning.is_empty() => (Admitted, warning),
            Ok(warning) => (Warned, warning),
            Err(refusal) => (Refused, refusal),
        };
        assert_eq!(outcome, expected, "{name}: {message}");
        if outcome != Admitted {
            let remedy = if files.is_some() { "nudge.dev/mount-path" } else { "mount it elsewhere" };
            assert!(message.contains("volume v") && message.contains(remedy), "{message}");
            assert!(outcome == Warned || message.contains("nudge.dev/containers"), "{message}");
            assert!(outcome == Refused || message.len() < 256, "the API server cuts longer ones: {message}");
        }
    }
}

#[test]
fn the_mount_nearest_to_nudges_decides() {
    let volumes = json!([{"name": "fixed", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]);
    let (fixed, data) = (
        |path: &str| json!({"name": "fixed", "mountPath": path, "readOnly": true}),
        |path: &str| json!({"name": "data", "mountPath": path}),
    );
    let of = |mounts: Value| outcome(Some("/srv/web/live"), &volumes, &json!([]), &mounts).is_ok();
    assert!(of(json!([fixed("/srv"), data("/srv/web")])) && of(json!([data("/srv/web"), fixed("/srv")])));
    assert!(!of(json!([data("/srv"), fixed("/srv/web")])) && !of(json!([fixed("/srv/web"), data("/srv")])));
    // Of two at the same place the later one is on top.
    assert!(of(json!([fixed("/srv/web/"), data("/srv/web")])) && !of(json!([data("/srv/web"), fixed("/srv/web/")])));
}

#[test]
fn a_mount_by_way_of_the_usual_link_hides_nudges_files_too() {
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    for path in ["/var/run/nudge", "/var/run/nudge/x", "/run/nudge"] {
        let mounts = json!([{"name": "v", "mountPath": path}]);
        assert!(outcome(None, &volumes, &json!([]), &mounts).unwrap_err().contains("where Nudge's files would be"));
    }
    let mounts = json!([{"name": "v", "mountPath": "/var/run"}]);
    assert!(outcome(None, &volumes, &json!([]), &mounts).is_ok());
}
