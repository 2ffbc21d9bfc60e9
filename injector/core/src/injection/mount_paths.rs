//! The paths that values are never mounted at, even if a pod requests it.

use nudge_protocol::pod;

/// The folders and files that decide how a container works, or who it is. Nothing is mounted there, below or above.
const GUARDED_TREES: [&str; 23] = [
    // In most images, /var/run is a link to /run.
    pod::CONTAINER_PATH,
    "/var/run/nudge",
    // Tokens of service accounts.
    "/run/secrets",
    "/var/run/secrets",
    "/proc",
    "/sys",
    "/dev",
    "/boot",
    // The meaning of names and users, and the trusted authorities.
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/sudoers.d",
    "/etc/pam.d",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/crypto-policies",
];
/// The folders of programs and libraries in each of [`PROGRAM_PREFIXES`]. Nothing is mounted there or below.
const PROGRAMS: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec"];
/// The prefixes of the folders of [`PROGRAMS`].
const PROGRAM_PREFIXES: [&str; 3] = ["/", "/usr/", "/usr/local/"];
/// The folders with files of more than one application, which a mount would hide. Values may be mounted below them.
const WHOLE_FOLDERS: [&str; 12] =
    ["/", "/etc", "/usr", "/usr/local", "/usr/share", "/var", "/var/run", "/var/lib", "/run", "/tmp", "/home", "/root"];

/// Returns why values can't be mounted at this path, which is absolute and normalized.
pub(super) fn system_path(path: &str) -> Option<String> {
    if is_within(path, pod::CONTAINER_PATH) {
        return Some(format!("{} belongs to the agent", pod::CONTAINER_PATH));
    }
    if let Some(tree) = GUARDED_TREES.iter().find(|tree| is_within(path, tree) || is_within(tree, path)) {
        return Some(format!("a mount there would hide or change {tree}"));
    }
    let folder = |prefix: &str| path.strip_prefix(prefix)?.split('/').next();
    if PROGRAM_PREFIXES.iter().any(|prefix| folder(prefix).is_some_and(|folder| PROGRAMS.contains(&folder))) {
        return Some("it is a folder of programs or libraries".to_owned());
    }
    WHOLE_FOLDERS.contains(&path).then(|| format!("a mount there would hide all of {path}"))
}

/// Returns whether `path` is `folder` or below it. Both are normalized.
pub(in crate::injection) fn is_within(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the path without `//`, `.` and a slash at its end, with `..` resolved as the runtime resolves it.
pub(in crate::injection) fn normalized(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns the normalized path behind the link that most images have: `/var/run` to `/run`.
pub(in crate::injection) fn real(path: &str) -> String {
    let path = normalized(path);
    match path.strip_prefix("/var/run") {
        Some(path_below) if is_within(&path, "/var/run") => format!("/run{path_below}"),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    #[test]
    fn the_systems_folders_are_kept_and_those_of_applications_are_not() {
        for path in [
            "/", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32/x", "/libx32", "/usr/lib", "/proc",
            "/sys/fs", "/dev/shm",
        ]
        .into_iter()
        .chain([
            "/run",
            "/run/secrets",
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "/run/nudge/a",
            "/var",
            "/usr/local/lib/x",
        ]) {
            assert!(system_path(path).is_some(), "{path}");
        }
        for path in [
            "/etc/shop",
            "/srv",
            "/app/config",
            "/opt/lib",
            "/usr/share/shop",
            "/var/lib/shop",
            "/run/shop",
            "/home/shop/.config",
        ] {
            assert_eq!(system_path(path), None, "{path}");
        }
    }

    fn path() -> impl Strategy<Value = String> {
        let part = select(vec![
            "etc", "usr", "var", "run", "lib", "lib64", "bin", "secrets", "nudge", "ssl", "proc", "shop", "local", "a",
        ]);
        proptest::collection::vec(part, 1..5).prop_map(|parts| format!("/{}", parts.join("/")))
    }

    proptest! {
        #[test]
        fn no_path_that_is_allowed_hides_or_reaches_a_tree(path in path()) {
            if system_path(&path).is_none() {
                for tree in GUARDED_TREES {
                    prop_assert!(!is_within(&path, tree) && !is_within(tree, &path), "{}", tree);
                }
                for whole in WHOLE_FOLDERS {
                    prop_assert!(!is_within(whole, &path), "{} hides {}", path, whole);
                }
                for (prefix, folder) in PROGRAM_PREFIXES.iter().flat_map(|prefix| PROGRAMS.map(|folder| (prefix, folder))) {
                    let folder = format!("{prefix}{folder}");
                    prop_assert!(!is_within(&path, &folder) && !is_within(&folder, &path), "{}", folder);
                }
            }
        }

        #[test]
        fn what_is_below_a_tree_is_refused_at_every_depth(tree in select(GUARDED_TREES.to_vec()), below in "(/[a-z]{1,4}){0,4}") {
            let path = format!("{tree}{below}");
            prop_assert!(system_path(&path).is_some());
        }

        #[test]
        fn normalizing_twice_changes_nothing(path in "(/|\\.|a|b){0,12}") {
            let once = normalized(&path);
            prop_assert_eq!(&normalized(&once), &once);
            prop_assert!(once.starts_with('/') && !once.contains("//") && !once.split('/').any(|part| part == ".."));
        }
    }
}
