//! The values that annotations may have: each is parsed once into a type.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use nudge_protocol::limits::{MAX_CONFIGS, MAX_KEY_PATTERNS, MAX_VARIABLES};
use nudge_protocol::settings::{self, parse_duration};
use nudge_protocol::{ConfigName, KeyPattern, VariableName};

use super::mount_paths::system_path;
use crate::injection::quantity::Quantity;

/// The minimum memory of the agent: with less, the agent can't hold its connections and one dictionary.
pub(in crate::injection) const MIN_MEMORY: Quantity = Quantity::mebi(16);
/// The maximum number of webhook targets outside of a pod.
const MAX_TARGETS: usize = 64;

/// The rule for a value, for the message of a refusal.
type Rule = String;

pub(super) fn flag(text: &str) -> Result<bool, Rule> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("write \"true\" or \"false\"".to_owned()),
    }
}

pub(in crate::injection) fn port(text: &str) -> Result<u16, Rule> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| *port >= 1024 && is_number);
    port.ok_or_else(|| "it must be a port from 1024 to 65535".to_owned())
}

pub(super) fn uid(text: &str) -> Result<i64, Rule> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<i32>() {
        Ok(0) if is_number => {
            Err("the agent never runs as root; it signals root's processes by the capability KILL, so remove this"
                .to_owned())
        }
        Ok(uid) if is_number => Ok(uid.into()),
        _ => Err("it must be a user id from 1 to 2147483647".to_owned()),
    }
}

/// Reads a time from 1 s to 10 min, as the agent reads it.
pub(in crate::injection) fn start_timeout(text: &str) -> Result<String, Rule> {
    let range = Duration::from_secs(1)..=Duration::from_mins(10);
    match parse_duration(text) {
        Ok(time) if range.contains(&time) => Ok(text.to_owned()),
        _ => Err("it must be a time from 1s to 10m, such as 30s or 2m".to_owned()),
    }
}

pub(in crate::injection) fn cpu(text: &str) -> Result<Quantity, Rule> {
    let range = Quantity::millis(1)..=Quantity::units(4);
    let cpu = text.parse().ok().filter(|cpu: &Quantity| range.contains(cpu) && cpu.is_whole(Quantity::millis(1)));
    cpu.ok_or_else(|| "it must be a CPU quantity from 1m to 4, such as 5m or 0.1".to_owned())
}

pub(in crate::injection) fn memory(text: &str) -> Result<Quantity, Rule> {
    let range = MIN_MEMORY..=Quantity::mebi(1024);
    let memory = text.parse().ok().filter(|size: &Quantity| range.contains(size) && size.is_whole(Quantity::units(1)));
    memory.ok_or_else(|| "it must be a memory quantity from 16Mi to 1Gi, such as 32Mi".to_owned())
}

/// Returns the names of a list with commas, without the blanks around them.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Parses a list of at most `max` names without duplicates. `once` is the rule against duplicates, and `items` is the
/// noun for the named things, both for messages.
fn unique_names<T: PartialEq + Display>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, Rule>,
    duplicate_fault: &str,
    max: usize,
    items: &str,
) -> Result<Vec<T>, Rule> {
    let mut names = Vec::new();
    for name in list(text) {
        let name = parse(name)?;
        if names.contains(&name) {
            return Err(format!("{duplicate_fault}; {name} is named twice"));
        }
        names.push(name);
        if names.len() > max {
            return Err(format!("a pod can have at most {max} {items}"));
        }
    }
    Ok(names)
}

pub(super) fn configs(text: &str) -> Result<Vec<ConfigName>, Rule> {
    let parse = |name: &str| {
        ConfigName::new(name).map_err(|error| format!("it must be a list of names separated by commas; {error}"))
    };
    unique_names(text, parse, "name each config once, in the order of merging", MAX_CONFIGS, "configs")
}

pub(super) fn variables(text: &str) -> Result<Vec<VariableName>, Rule> {
    let rule = "it must be a list of keys separated by commas, each of which becomes a variable of its name";
    let parse = |name: &str| VariableName::new(name).map_err(|error| format!("{rule}; {error}"));
    unique_names(text, parse, "name each key once", MAX_VARIABLES, "variables from configs")
}

pub(super) fn key_patterns(text: &str) -> Result<Vec<KeyPattern>, Rule> {
    let rule = "it must be a list of keys separated by commas, such as \"db.*, tls.crt\"";
    let parse = |pattern: &str| KeyPattern::new(pattern).map_err(|error| format!("{rule}; {error}"));
    unique_names(text, parse, "name each key once", MAX_KEY_PATTERNS, "patterns of keys")
}

pub(super) fn targets(text: &str) -> Result<Vec<SocketAddr>, Rule> {
    let targets = settings::parse_targets(text)?;
    if targets.len() > MAX_TARGETS {
        return Err(format!("a pod can have at most {MAX_TARGETS} targets"));
    }
    match targets.iter().find(|target| target.ip().is_unspecified()) {
        Some(target) => Err(format!("{target} is not an address of a host; write one")),
        None => Ok(targets),
    }
}

pub(super) fn mount_path(text: &str) -> Result<String, Rule> {
    let path = text
        .strip_prefix('/')
        .filter(|path| !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | "..")));
    let is_odd = |letter: char| letter.is_control() || matches!(letter, ':' | ',' | '$');
    if path.is_none() || text.len() > 1024 || text.contains("..") || text.contains(is_odd) {
        return Err(
            "it must be an absolute path such as /etc/shop, not '/', without '.', '..', '//', a slash at the end, \
                    ':', ',' or '$'"
                .to_owned(),
        );
    }
    if let Some(reason) = system_path(text) {
        return Err(format!("{reason}; choose a path such as /etc/shop or /srv/shop"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: PartialEq + std::fmt::Debug>(read: fn(&str) -> Result<T, Rule>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(read(text).is_ok(), "{text}: {:?}", read(text));
        }
        for text in bad {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_within_the_range_are_accepted() {
        check(flag, &["true", "false"], &["", "True", "yes", "1"]);
        check(port, &["1024", "9002", "65535"], &["", "0", "80", "1023", "65536", "+9002", "http", "-1"]);
        check(uid, &["1", "65532", "2147483647"], &["0", "-1", "2147483648", "+1", "app", ""]);
        check(
            start_timeout,
            &["1s", "30s", "10m", "1000ms"],
            &["", "0s", "999ms", "11m", "601s", "1h", "30", "99999999999999999999s", "18446744073709551615m"],
        );
        check(cpu, &["1m", "5m", "0.1", "4"], &["0", "0.5m", "4001m", "5", "-1", "x", "1.5m"]);
        check(
            memory,
            &["16Mi", "32Mi", "1Gi", "20M"],
            &["15Mi", "16777215", "1025Mi", "2Gi", "32", "x", "20000000500m"],
        );
        check(
            targets,
            &["10.0.0.9:8080", "10.0.0.9:1, [::2]:2"],
            &["", "10.0.0.9", "host:1", "10.0.0.9:0", "0.0.0.0:1", "10.0.0.9:1,"],
        );
    }

    #[test]
    fn paths_are_normalized_and_not_the_agents() {
        let good = ["/etc/shop", "/a", "/run/nudges", "/run/other", "/etc/nudge/x y"];
        let bad = [
            "",
            "/",
            "a",
            "/a/",
            "//a",
            "/a//b",
            "/./a",
            "/a/..",
            "/a/..b",
            "/a:b",
            "/a,b",
            "/a$b",
            "/a\nb",
            "/run",
            "/run/nudge",
            "/run/nudge/x",
            "/var/run/nudge",
            "/var/run",
            "/var",
            "/etc",
            "/etc/ssl/certs",
            "/usr",
            "/usr/lib/x",
            "/lib64",
            "/proc/1",
            "/run/secrets/kubernetes.io",
            "/var/run/secrets/kubernetes.io/serviceaccount/x",
        ];
        check(mount_path, &good, &bad);
    }

    #[test]
    fn variables_are_listed_once_and_have_a_bound() {
        check(variables, &["LIVES", "LIVES, greeting"], &["", "LIVES,", "a.b", "1", "A,A", "NUDGE_PORT", "A=b"]);
        let names = |n: usize| (0..n).map(|n| format!("V{n}")).collect::<Vec<_>>().join(",");
        assert!(variables(&names(MAX_VARIABLES)).is_ok() && variables(&names(MAX_VARIABLES + 1)).is_err());
    }

    #[test]
    fn patterns_of_keys_are_listed_once_and_have_a_bound() {
        check(key_patterns, &["*", "db.*, tls.crt"], &["", "db.*,", "a b", "db/*", "a,a", "a=b"]);
        let patterns = |n: usize| (0..n).map(|n| format!("k{n}.*")).collect::<Vec<_>>().join(",");
        assert!(
            key_patterns(&patterns(MAX_KEY_PATTERNS)).is_ok() && key_patterns(&patterns(MAX_KEY_PATTERNS + 1)).is_err()
        );
    }

    #[test]
    fn configs_are_listed_once() {
        check(configs, &["shop", "shop,shop-keys", " shop , keys "], &["", ",", "shop,", "Shop", "a,b,a", "a b"]);
        let names = |n: usize| (0..n).map(|n| format!("c{n}")).collect::<Vec<_>>().join(",");
        assert!(configs(&names(MAX_CONFIGS)).is_ok() && configs(&names(MAX_CONFIGS + 1)).is_err());
    }
}
