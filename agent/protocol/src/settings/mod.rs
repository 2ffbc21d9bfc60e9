//! The format of the settings that the injector writes into the agent's environment and the agent reads. There is one
//! reader for both, so that the agent starts with every setting that is admitted. A variable with an empty list is left
//! out.

pub mod expectation;
pub mod notify;
pub mod pod;
pub mod volumes;
pub mod webhook_url;

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use self::webhook_url::{WebhookUrl, WebhookUrlError};

/// The separator of the items of every list.
pub const SEPARATOR: char = ',';

/// The longest duration of [`parse_duration`].
const MAX_DURATION: Duration = Duration::from_hours(1);

/// Reads `NAME=VALUE`.
pub fn parse_pair<N, V>(text: &str) -> Result<(N, V), String>
where
    N: FromStr<Err: Display>,
    V: FromStr<Err: Display>,
{
    let (name, value) = text.split_once('=').ok_or("write it like NAME=VALUE")?;
    let name = name.trim().parse().map_err(|error: N::Err| error.to_string())?;
    Ok((name, value.trim().parse().map_err(|error: V::Err| error.to_string())?))
}

/// Writes one item of a list in the format of [`parse_pair`].
pub fn write_pair(name: impl Display, value: impl Display) -> String {
    format!("{name}={value}")
}

/// Writes items as a list.
pub fn write_list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(&SEPARATOR.to_string())
}

/// Reads a time such as `30s`, `2m` or `500ms`.
pub fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return None,
    };
    Some(Duration::from_millis(u64::from(number.parse::<u32>().ok()?) * millis))
}

/// Reads a time such as `30s`, longer than nothing and at most an hour.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_time(text).filter(|duration| !duration.is_zero() && *duration <= MAX_DURATION);
    duration.ok_or_else(|| "write a number with ms, s or m, such as 30s, and at most 60m".to_owned())
}

/// Reads the list of allowed webhook targets outside of the pod: `10.0.0.9:8080, [fd00::9]:8080`.
pub fn parse_targets(text: &str) -> Result<Vec<SocketAddr>, String> {
    let read = |item: &str| {
        let refuse = || {
            let item: String = item.chars().take(80).collect();
            format!(
                "{item:?} is not an IP address with a port, such as 10.0.0.9:8080 or [fd00::9]:8080; names are not looked up"
            )
        };
        item.trim().parse().ok().filter(|target: &SocketAddr| target.port() != 0).ok_or_else(refuse)
    };
    text.split(SEPARATOR).map(read).collect()
}

/// Reads the URL of a webhook that is an item of a list.
pub fn parse_listed_webhook(text: &str) -> Result<WebhookUrl, WebhookUrlError> {
    if text.contains(SEPARATOR) { Err(WebhookUrlError::Listed) } else { text.parse() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ContainerName, Notify};

    #[test]
    fn pairs_are_taken_apart_and_both_halves_checked() {
        let (name, notify) = parse_pair::<ContainerName, Notify>("app=SIGUSR1").unwrap();
        assert_eq!((name.as_str(), notify.as_str()), ("app", "SIGUSR1"));
        assert_eq!(write_pair(&name, notify), "app=SIGUSR1");
        assert!(parse_pair::<ContainerName, Notify>("app").unwrap_err().contains("NAME=VALUE"));
        assert!(parse_pair::<ContainerName, Notify>("app=KILL").unwrap_err().contains("SIGUSR1"));
        assert!(parse_pair::<ContainerName, Notify>("App=none").unwrap_err().contains("container"));
    }

    #[test]
    fn times_have_a_unit() {
        for (text, millis) in [("30s", 30_000), ("2m", 120_000), ("500ms", 500), ("60m", 3_600_000)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "30", "s", "1h", "61m", "0s", "-1s", "99999999999999999999s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_targets_are_addresses_with_a_port() {
        assert_eq!(write_list(parse_targets("10.0.0.9:8080, [fd00::9]:81").unwrap()), "10.0.0.9:8080,[fd00::9]:81");
        for bad in ["", "10.0.0.9", "example.com:80", "10.0.0.9:0", "10.0.0.9:80,", "10.0.0.9:80 10.0.0.8:80"] {
            assert!(parse_targets(bad).unwrap_err().contains("10.0.0.9:8080"), "{bad}");
        }
    }

    #[test]
    fn a_url_in_a_list_has_no_comma() {
        assert_eq!(parse_listed_webhook("http://127.0.0.1/a?b=c,d"), Err(WebhookUrlError::Listed));
        assert_eq!(parse_listed_webhook("http://127.0.0.1/a?b=c%2Cd").unwrap().as_str(), "http://127.0.0.1/a?b=c%2Cd");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ports in proptest::collection::vec(1..=u16::MAX, 1..5)) {
            let targets: Vec<SocketAddr> = ports.into_iter().map(|port| SocketAddr::from(([10, 0, 0, 9], port))).collect();
            prop_assert_eq!(parse_targets(&write_list(&targets)).unwrap(), targets);
        }

        #[test]
        fn nothing_makes_a_reader_panic(text in "\\PC{0,40}") {
            let _ = (parse_duration(&text), parse_targets(&text), parse_listed_webhook(&text), parse_pair::<ContainerName, Notify>(&text));
        }
    }
}
