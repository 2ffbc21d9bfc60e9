//! Whether a mount shows all of its volume.

use k8s_openapi::api::core::v1::VolumeMount;

/// Returns whether a mount shows a part of its volume: a file or a folder, which `subPath` names. `.` is the whole
/// volume.
pub fn is_part(mount: &VolumeMount) -> bool {
    let names_part = |path: &String| path.split('/').any(|name| !matches!(name, "" | "."));
    [&mount.sub_path, &mount.sub_path_expr].into_iter().flatten().any(names_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_name_is_the_whole_volume() {
        let is_part = |sub_path: &str| {
            let sub_path = Some(sub_path.to_owned());
            is_part(&VolumeMount { sub_path, ..VolumeMount::default() })
        };
        assert!(["", ".", "./", "./."].into_iter().all(|path| !is_part(path)));
        assert!(["a", "./a", "a/.", ".a", "..a"].into_iter().all(is_part));
        let sub_path_expr = Some("$(POD)".to_owned());
        assert!(super::is_part(&VolumeMount { sub_path_expr, ..VolumeMount::default() }));
    }
}
