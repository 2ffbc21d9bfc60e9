//! Parsers for files below `/proc/<pid>` (proc(5)). Other processes choose the names in them, so nothing is trusted.

use std::str::FromStr;

/// The beginning of the name of runc's process before it executes a container's program, such as `runc:[2:INIT]`. The
/// signal handlers of that process are not the program's.
const RUNTIME_PREFIX: &str = "runc:[";
/// The part that the names of monitors' groups have.
const MONITOR_MARK: &[u8] = b"-conmon-";

/// The error of a file of `/proc` that is not as proc(5) specifies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no valid field {field}, which proc(5) specifies")]
pub struct ParseError {
    field: &'static str,
}

/// The fields of `/proc/<pid>/status` that the agent needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The ID of the parent.
    pub parent: i32,
    /// The ID of the real user.
    pub uid: u32,
    /// Whether the process has ended, and its parent has not reaped it.
    pub zombie: bool,
    /// The signals with a handler, bit n-1 for signal n.
    pub caught: u64,
    /// The ignored signals, bit n-1 for signal n.
    pub ignored: u64,
}

impl ProcessStatus {
    /// Returns whether the process has a handler for the signal.
    pub fn catches(&self, signal: i32) -> bool {
        has_bit(self.caught, signal)
    }

    /// Returns whether the signal is ignored.
    pub fn ignores(&self, signal: i32) -> bool {
        has_bit(self.ignored, signal)
    }
}

fn has_bit(mask: u64, signal: i32) -> bool {
    u32::try_from(signal - 1).is_ok_and(|shift| mask.checked_shr(shift).unwrap_or(0) & 1 == 1)
}

/// Reads `/proc/<pid>/status`. A process's name can hold anything but a newline, which the kernel escapes. So only the
/// start of a line counts, and the first of two equal fields.
pub fn parse_status(content: &[u8]) -> Result<ProcessStatus, ParseError> {
    let field = |name: &'static str| {
        let of_line = |line: &'_ [u8]| -> Option<String> {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            std::str::from_utf8(value).ok().map(|text| text.trim().to_owned())
        };
        content.split(|&byte| byte == b'\n').find_map(of_line).ok_or(ParseError { field: name })
    };
    let mask = |name| u64::from_str_radix(&field(name)?, 16).map_err(|_| ParseError { field: name });
    let is_runtime = field("Name").is_ok_and(|name| name.starts_with(RUNTIME_PREFIX));
    Ok(ProcessStatus {
        parent: parse_first(&field("PPid")?, "PPid")?,
        uid: parse_first(&field("Uid")?, "Uid")?,
        zombie: matches!(field("State")?.as_bytes().first(), Some(b'Z' | b'X')),
        caught: if is_runtime { 0 } else { mask("SigCgt")? },
        ignored: mask("SigIgn")?,
    })
}

fn parse_first<T: FromStr>(text: &str, field: &'static str) -> Result<T, ParseError> {
    text.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).ok_or(ParseError { field })
}

/// Reads field 22 of `/proc/<pid>/stat`: the start of the process, in clock ticks after boot. With the process ID it
/// identifies one process: IDs are used again, but not within one tick. The name in field 2 may hold spaces and
/// brackets, so counting begins after the last bracket.
pub fn parse_start_time(content: &[u8]) -> Result<u64, ParseError> {
    let error = ParseError { field: "starttime" };
    let bracket = content.iter().rposition(|&byte| byte == b')').ok_or_else(|| error.clone())?;
    let fields = std::str::from_utf8(&content[bracket + 1..]).map_err(|_| error.clone())?;
    fields.split_ascii_whitespace().nth(19).and_then(|ticks| ticks.parse().ok()).ok_or(error)
}

/// Reads `/proc/<pid>/task/<tid>/children`: process IDs separated by spaces.
pub fn parse_children(content: &[u8]) -> Vec<i32> {
    let ids = content.split(u8::is_ascii_whitespace);
    ids.filter_map(|id| std::str::from_utf8(id).ok()?.parse().ok()).filter(|&pid| pid > 0).collect()
}

/// Returns whether `/proc/<pid>/cgroup` shows that the process belongs to the container with this ID (64 hex digits).
/// The ID can be in any element of any path: alone (cgroupfs), as `cri-containerd-<id>.scope` or `crio-<id>.scope`
/// (systemd), or above sub-groups (crun). Groups of a container's monitor (`crio-conmon-<id>.scope`) are not the
/// container's. Lines are `hierarchy:controllers:path`, and a path may hold colons (cgroups(7)).
pub fn cgroup_names_container(content: &[u8], id: &str) -> bool {
    if id.len() != 64 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return false;
    }
    content.split(|&byte| byte == b'\n').any(|line| {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let path = parts.nth(2).unwrap_or_default();
        let is_monitor = |element: &[u8]| element.windows(MONITOR_MARK.len()).any(|window| window == MONITOR_MARK);
        path.split(|&byte| byte == b'/').any(|element| has_id(element, id.as_bytes()) && !is_monitor(element))
    })
}

/// Returns whether a path element holds `id` with no hex digit before or after it.
fn has_id(element: &[u8], id: &[u8]) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    element.windows(id.len()).enumerate().any(|(index, window)| {
        let before = index.checked_sub(1).and_then(|before| element.get(before));
        window == id && !is_hex(before) && !is_hex(element.get(index + id.len()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const STATUS: &[u8] = b"Name:\tapp\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t7\nPPid:\t3\nUid:\t1000\t1000\t0\t0\nSigQ:\t0/1\nSigIgn:\t0000000000001000\nSigCgt:\t0000000180000a00\n";

    #[test]
    fn the_runtime_that_becomes_the_program_of_a_container_catches_nothing() {
        // Written in Go, it catches all signals but four until it executes the program.
        let status = |name: &str| {
            format!("Name:\t{name}\nState:\tR (running)\nPPid:\t0\nUid:\t0\nSigIgn:\t0\nSigCgt:\tfffffffd7fc1feff\n")
        };
        for (name, catches) in [("runc:[2:INIT]", false), ("runc:[1:CHILD]", false), ("runc", true), ("server", true)] {
            let status = parse_status(status(name).as_bytes()).unwrap();
            assert_eq!(status.catches(libc::SIGUSR1), catches, "{name}");
        }
    }

    #[test]
    fn a_status_file() {
        let status = parse_status(STATUS).unwrap();
        assert_eq!((status.parent, status.uid, status.zombie), (3, 1000, false));
        assert!(status.catches(libc::SIGUSR1) && status.catches(libc::SIGUSR2) && !status.catches(libc::SIGHUP));
        assert!(status.ignores(libc::SIGPIPE) && !status.ignores(libc::SIGUSR1));
        assert!(!status.catches(0) && !status.catches(-1) && !status.catches(65));
        assert_eq!(
            parse_status(b"Name:\tx\n").unwrap_err().to_string(),
            "it has no valid field PPid, which proc(5) specifies"
        );
    }

    #[test]
    fn this_process_as_the_kernel_shows_it() {
        let status = parse_status(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        assert_eq!(status.parent, nix::unistd::getppid().as_raw());
        assert_eq!(status.uid, nix::unistd::getuid().as_raw());
        assert!(parse_start_time(&std::fs::read("/proc/self/stat").unwrap()).unwrap() > 0);
    }

    #[test]
    fn a_name_full_of_brackets_does_not_shift_the_fields() {
        let stat = b"12 (a) b (c) 1 2) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4711 23";
        assert_eq!(parse_start_time(stat), Ok(4711));
        assert!(parse_start_time(b"12 (a").is_err());
        assert!(parse_start_time(b"12 (a) S 3").is_err());
    }

    #[test]
    fn the_containers_of_every_runtime() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for line in [
            format!("4:memory:/kubepods/besteffort/pod1234/{id}"),
            format!("0::/kubepods.slice/kubepods-pod12.slice/cri-containerd-{id}.scope"),
            format!("0::/kubepods.slice/crio-{id}.scope/container"),
            format!("0::/../{id}"),
            format!("1:name=systemd:/system.slice:odd/docker-{id}.scope"),
            format!("12:cpu,cpuacct:/a:b/{id}"),
        ] {
            assert!(cgroup_names_container(format!("1:x:/other\n{line}\n").as_bytes(), id), "{line}");
        }
        for line in
            ["0::/".to_owned(), format!("0::/{id}0"), format!("0::/a{id}"), format!("{id}:{id}:/x"), String::new()]
        {
            assert!(!cgroup_names_container(line.as_bytes(), id), "{line}");
        }
        for monitor in ["crio-conmon", "libpod-conmon"] {
            let line = format!("0::/system.slice/{monitor}-{id}.scope");
            assert!(!cgroup_names_container(line.as_bytes(), id), "the monitor of a container is not in it: {line}");
        }
        assert!(!cgroup_names_container(b"0::/", ""));
        assert!(!cgroup_names_container(b"0::/..", ".."));
    }

    proptest! {
        #[test]
        fn nothing_makes_the_parsers_panic(content in vec(any::<u8>(), 0..300)) {
            let _ = parse_status(&content);
            let _ = parse_start_time(&content);
            prop_assert!(parse_children(&content).iter().all(|&pid| pid > 0));
            let _ = cgroup_names_container(&content, &"a".repeat(64));
        }

        #[test]
        fn a_name_cannot_pose_as_a_field(name in "[ -~]{0,15}") {
            let mut content = format!("Name:\t{name}\n").into_bytes();
            content.extend_from_slice(&STATUS[b"Name:\tapp\n".len()..]);
            prop_assert_eq!(parse_status(&content), parse_status(STATUS));
        }
    }
}
