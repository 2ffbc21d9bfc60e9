//! What a container must show after its notification, before it counts as having taken a version: for software that
//! does not say that it failed. The injector checks the setting, and the agent reads it.
//!
//! Only forms that distinguish new from old are allowed. A page that answers, or a number that is 1, is as true before
//! the notification as after it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::names::Key;
use crate::settings::webhook_url::{WebhookUrl, WebhookUrlError};
use crate::settings::{SEPARATOR, parse_duration};

/// The time for an expectation that does not name one.
pub const DEFAULT_WITHIN: Duration = Duration::from_secs(30);
/// The longest time for an expectation.
pub const MAX_WITHIN: Duration = Duration::from_mins(5);
/// The maximum length of a metric's name and of a pointer, in bytes.
const MAX_WORD_BYTES: usize = 256;

/// What a container must show after its notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What distinguishes new from old.
    pub sign: Sign,
    /// How long after the notification it must show.
    pub within: Duration,
}

/// What distinguishes a container with the new version from one with the old version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A page of the container.
    Page {
        /// The URL of the page.
        url: WebhookUrl,
        /// What the page shows.
        proof: Proof,
    },
    /// The children of the container's main process: new ones have come, and those from before are gone.
    Workers,
}

/// What a page shows of a version that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A metric in the text format of Prometheus that grows when a version is taken.
    Newer {
        /// The metric that grows.
        metric: MetricName,
        /// The metric that is 0 if the container could not take the version, and 1 if it could.
        ok: Option<MetricName>,
    },
    /// The value of a key.
    Is {
        /// The place of the value in an answer of JSON; `None` if the value is the whole answer.
        pointer: Option<JsonPointer>,
        /// The key whose value the answer must be.
        key: Key,
    },
}

/// The name of a metric in the text format of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName(Box<str>);

impl MetricName {
    /// Returns the name as it stands in the annotation.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A place in a document of JSON (RFC 6901), such as `/data/mark`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(Box<str>);

impl JsonPointer {
    /// Returns the pointer as it stands in the annotation.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The reason why a text is no expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpectationError {
    /// The text has none of the forms.
    #[error(
        "write URL newer METRIC, URL newer METRIC ok METRIC, URL is KEY, URL#/pointer is KEY, or workers, and after it \
         within TIME if 30s do not suffice"
    )]
    Form,
    /// The form says nothing about the version.
    #[error(
        "it can be true before the notification, so it shows nothing; write URL newer METRIC, URL is KEY (a key of \
         the configuration), or workers"
    )]
    TrueBefore,
    /// The URL can't be used.
    #[error("{0}")]
    Url(#[from] WebhookUrlError),
    /// The text after the number sign is no pointer.
    #[error(
        "# must be followed by the place of the value in an answer of JSON, such as #/data/mark; a metric has none"
    )]
    Pointer,
    /// The name is not a metric's.
    #[error("a metric's name has letters, digits, _ and :, begins with no digit, and is given without labels")]
    Metric,
    /// The name is not a key's.
    #[error("'is' must be followed by the name of a key of the configuration")]
    Key,
    /// The time can't be used.
    #[error("'within' must be followed by a time from 1s to 5m, such as 60s")]
    Within,
}

impl FromStr for Expectation {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Self, ExpectationError> {
        if text.contains(SEPARATOR) {
            return Err(WebhookUrlError::Listed.into());
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (words, within) = match &words[..] {
            [words @ .., "within", time] => (words, parse_within(time)?),
            [.., "within"] => return Err(ExpectationError::Within),
            words => (words, DEFAULT_WITHIN),
        };
        Ok(Self { sign: parse_sign(words)?, within })
    }
}

fn parse_within(text: &str) -> Result<Duration, ExpectationError> {
    let range = Duration::from_secs(1)..=MAX_WITHIN;
    parse_duration(text).ok().filter(|within| range.contains(within)).ok_or(ExpectationError::Within)
}

fn parse_sign(words: &[&str]) -> Result<Sign, ExpectationError> {
    let (url, fragment, rest) = match words {
        ["workers"] => return Ok(Sign::Workers),
        [url, rest @ ..] if url.contains("://") => {
            let (url, fragment) = url.split_once('#').map_or((*url, None), |(url, fragment)| (url, Some(fragment)));
            (url.parse()?, fragment, rest)
        }
        _ => return Err(ExpectationError::Form),
    };
    let proof = match rest {
        ["newer", metric] => Proof::Newer { metric: metric.parse()?, ok: None },
        ["newer", metric, "ok", ok] => Proof::Newer { metric: metric.parse()?, ok: Some(ok.parse()?) },
        ["is", key] if is_constant(key) => return Err(ExpectationError::TrueBefore),
        ["is", key] => {
            let pointer = fragment.map(str::parse).transpose()?;
            return Ok(Sign::Page { url, proof: Proof::Is { pointer, key: parse_key(key)? } });
        }
        [] | ["ok" | "status" | "answers" | "contains", ..] => return Err(ExpectationError::TrueBefore),
        _ => return Err(ExpectationError::Form),
    };
    if fragment.is_some() {
        return Err(ExpectationError::Pointer);
    }
    Ok(Sign::Page { url, proof })
}

/// Returns whether the text is a constant in place of a key: in quotes, or a status of HTTP.
fn is_constant(text: &str) -> bool {
    text.contains(['"', '\'']) || (text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_key(text: &str) -> Result<Key, ExpectationError> {
    Key::new(text).map_err(|_| ExpectationError::Key)
}

impl FromStr for MetricName {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Self, ExpectationError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
        let begins_well = text.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if begins_well && text.len() <= MAX_WORD_BYTES && text.bytes().all(is_allowed) {
            Ok(Self(text.into()))
        } else {
            Err(ExpectationError::Metric)
        }
    }
}

impl FromStr for JsonPointer {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Self, ExpectationError> {
        // A tilde begins one of two escapes (RFC 6901, section 3).
        let has_escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
        if text.starts_with('/') && text.len() <= MAX_WORD_BYTES && has_escapes {
            Ok(Self(text.into()))
        } else {
            Err(ExpectationError::Pointer)
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.sign)?;
        if self.within != DEFAULT_WITHIN {
            write!(out, " within {}ms", self.within.as_millis())?;
        }
        Ok(())
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers => out.write_str("workers"),
            Self::Page { url, proof: Proof::Newer { metric, ok } } => {
                write!(out, "{} newer {}", url.as_str(), metric.as_str())?;
                ok.as_ref().map_or(Ok(()), |ok| write!(out, " ok {}", ok.as_str()))
            }
            Self::Page { url, proof: Proof::Is { pointer, key } } => {
                out.write_str(url.as_str())?;
                pointer.as_ref().map_or(Ok(()), |pointer| write!(out, "#{}", pointer.as_str()))?;
                write!(out, " is {key}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Expectation, ExpectationError> {
        text.parse()
    }

    #[test]
    fn every_form_is_read_and_written() {
        for text in [
            "workers",
            "workers within 90000ms",
            "http://127.0.0.1:9090/metrics newer prometheus_config_last_reload_success_timestamp_seconds",
            "http://localhost/metrics newer a_b:c ok x_successful",
            "http://localhost/metrics newer a ok b within 1000ms",
            "http://127.0.0.1:8080/mark is mark",
            "http://127.0.0.1:8080/a?b=c#/data/~0~1x/0 is app.mark",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let newer = parse("  http://localhost/m   newer  a  within 2m ").unwrap();
        assert_eq!((newer.within, parse("workers").unwrap().within), (Duration::from_mins(2), DEFAULT_WITHIN));
    }

    #[test]
    fn what_can_be_true_before_is_refused_with_the_forms() {
        for text in [
            "http://localhost/healthz",
            "http://localhost/healthz is 200",
            "http://localhost/healthz status 200",
            "http://localhost/metrics ok reload_successful",
            "http://localhost/mark is \"new\"",
            "http://localhost/mark is 'new'",
            "http://localhost/mark contains new",
        ] {
            assert_eq!(parse(text), Err(ExpectationError::TrueBefore), "{text}");
        }
        assert!(ExpectationError::TrueBefore.to_string().contains("newer METRIC"));
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        use ExpectationError::{Form, Key, Metric, Pointer, Within};

        for (text, error) in [
            ("", Form),
            ("worker", Form),
            ("workers newer", Form),
            ("within 30s", Form),
            ("localhost/m newer a", Form),
            ("http://localhost/m newer", Form),
            ("http://localhost/m newer a ok", Form),
            ("http://localhost/m newer a b", Form),
            ("http://localhost/m is", Form),
            ("http://localhost/m newer a{b=\"c\"}", Metric),
            ("http://localhost/m newer 1a", Metric),
            ("http://localhost/m newer a ok 1", Metric),
            ("http://localhost/m#/a newer a", Pointer),
            ("http://localhost/m# is a", Pointer),
            ("http://localhost/m#a is a", Pointer),
            ("http://localhost/m#/~2 is a", Pointer),
            ("http://localhost/m is a/b", Key),
            ("workers within", Within),
            ("workers within 6m", Within),
            ("workers within 10ms", Within),
            ("workers within soon", Within),
            ("http://example.com/ is a", WebhookUrlError::Host.into()),
            ("https://127.0.0.1/ is a", WebhookUrlError::Scheme.into()),
            ("http://127.0.0.1/a,b is a", WebhookUrlError::Listed.into()),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_reads_back_as_written(
            text in "(http://(localhost|127\\.0\\.0\\.1:[0-9]{1,5})/[a-z?=]{0,6}(#[/~a-z01]{0,6})?|workers) ?(newer|is|ok)? ?[a-z_0-9:.]{0,6}( ok [a-z]{1,4})?( within [0-9]{1,3}(ms|s|m))?",
        ) {
            if let Ok(expectation) = parse(&text) {
                prop_assert!(expectation.within >= Duration::from_secs(1) && expectation.within <= MAX_WITHIN);
                prop_assert_eq!(parse(&expectation.to_string()), Ok(expectation));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }
    }
}
