//! Mounts of the user's in which the kubelet and the runtime can't make the folders for Nudge's.

use super::*;

/// What becomes of a pod with these volumes, where container `app` has these mounts and `setup`, an init container, has others.
fn outcome(files: Option<&str>, volumes: &Value, setup: &Value, app: &Value) -> Result<(), String> {
    let annotations = files.map_or(json!({}), |path| json!({"mount-path": path}));
    let spec = json!({
        "volumes": volumes,
        "initContainers": [{"name": "setup", "image": "app", "volumeMounts": setup}],
        "containers": [{"name": "app", "image": "app", "volumeMounts": app}],
    });
    try_with(&with_spec(&annotations, &spec), &facts()).map(drop)
}

#[test]
fn a_mount_above_in_which_no_folder_can_be_made_is_refused() {
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
    for (name, files, volume, setup, app, refused) in [
        ("a writable volume", None, empty(), none(), at("/run"), false),
        ("a read-only mount", None, empty(), none(), read_only("/run"), true),
        ("where /run is a link's target", None, empty(), none(), read_only("/var/run"), true),
        ("with a slash", None, empty(), none(), read_only("/run/"), true),
        ("beside", None, empty(), none(), read_only("/run/web"), false),
        ("the root's parent folder", srv, empty(), none(), read_only("/srv"), true),
        ("the parent folder", srv, empty(), none(), read_only("/srv/web"), true),
        ("a neighbour", srv, empty(), none(), read_only("/srv/webs"), false),
        ("an image", None, image(), none(), at("/run"), true),
        ("a claim", None, claim(false), none(), at("/run"), false),
        ("a claim that is read-only itself", None, claim(true), none(), at("/run"), true),
        ("a driver's", None, csi(false), none(), at("/run"), false),
        ("a driver's that is read-only itself", None, csi(true), none(), at("/run"), true),
        ("a node's folder", None, json!({"hostPath": {"path": "/x"}}), none(), read_only("/run"), true),
        // For these the kubelet makes the folders itself, in the volume.
        ("a ConfigMap", srv, map(), none(), at("/srv/web"), false),
        ("a ConfigMap, read-only", srv, map(), none(), read_only("/srv/web"), false),
        ("a Secret", srv, json!({"secret": {"secretName": "s"}}), none(), read_only("/srv/web"), false),
        ("projected", srv, json!({"projected": {"sources": []}}), none(), read_only("/srv/web"), false),
        ("of the pod's fields", srv, json!({"downwardAPI": {"items": []}}), none(), read_only("/srv/web"), false),
        // But not in a folder of the volume.
        ("a folder of a ConfigMap", srv, map(), none(), sub("/srv/web"), true),
        ("a folder of a ConfigMap by a variable", srv, map(), none(), sub_expr("/srv/web"), true),
        ("a folder of a writable volume", srv, empty(), none(), sub("/srv/web"), false),
        // The runtime has made the folder for the container that may write.
        ("written before", srv, empty(), at("/srv/web"), read_only("/srv/web"), false),
        ("written elsewhere before", srv, empty(), at("/data"), read_only("/srv/web"), true),
        ("read before", srv, empty(), read_only("/srv/web"), read_only("/srv/web"), true),
        ("another folder written before", srv, empty(), sub("/srv/web"), read_only("/srv/web"), true),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        match outcome(files, &json!([volume]), &setup, &app) {
            Ok(()) => assert!(!refused, "{name} is admitted"),
            Err(message) => {
                assert!(refused, "{name}: {message}");
                let way_out = if files.is_some() { "nudge.dev/mount-path" } else { "mount it elsewhere" };
                assert!(message.contains("volume v") && message.contains(way_out), "{message}");
                assert!(message.contains("nudge.dev/containers"), "{message}");
            }
        }
    }
}

#[test]
fn the_mount_nearest_to_nudges_decides() {
    let volumes = json!([{"name": "image", "image": {"reference": "r"}}, {"name": "data", "emptyDir": {}}]);
    let (image, data) = (
        |path: &str| json!({"name": "image", "mountPath": path}),
        |path: &str| json!({"name": "data", "mountPath": path}),
    );
    let of = |mounts: Value| outcome(Some("/srv/web/live"), &volumes, &json!([]), &mounts).is_ok();
    assert!(of(json!([image("/srv"), data("/srv/web")])) && of(json!([data("/srv/web"), image("/srv")])));
    assert!(!of(json!([data("/srv"), image("/srv/web")])) && !of(json!([image("/srv/web"), data("/srv")])));
    // Of two at the same place the later one is on top.
    assert!(of(json!([image("/srv/web/"), data("/srv/web")])) && !of(json!([data("/srv/web"), image("/srv/web/")])));
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
