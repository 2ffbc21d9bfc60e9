//! How a container is notified of a change, and how it acknowledges the change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The text of a setting that matches none of the allowed values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not allowed here: choose one of {allowed}")]
pub struct UnknownSetting {
    /// The text, cut to 80 characters.
    pub text: String,
    /// The allowed values.
    pub allowed: &'static str,
}

impl UnknownSetting {
    fn new(text: &str, allowed: &'static str) -> Self {
        Self { text: text.chars().take(80).collect(), allowed }
    }
}

/// The signals that can notify a process of a new version. There is no default: on `SIGUSR1` Node.js starts its
/// debugger and nginx reopens its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NotifySignal {
    /// The user-defined signal 1.
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// The user-defined signal 2.
    #[serde(rename = "SIGUSR2")]
    Usr2,
    /// The hang-up signal, by convention "read your files again".
    #[serde(rename = "SIGHUP")]
    Hup,
}

impl NotifySignal {
    /// Returns the POSIX name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Hup => "SIGHUP",
        }
    }
}

impl fmt::Display for NotifySignal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The way to notify a container of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Notify {
    /// Not at all: the container polls, or holds a request with `?wait=`.
    #[default]
    None,
    /// By a signal to the processes of the container.
    Signal(NotifySignal),
    /// By an HTTP POST to a URL of its own.
    Webhook,
    /// By a restart of all containers of the pod, in place: for programs that read their configuration at their start
    /// alone.
    InPlace,
}

impl Notify {
    /// The texts that users may write.
    pub const ALLOWED: &'static str = "SIGUSR1, SIGUSR2, SIGHUP, webhook, in-place, none";

    /// Returns the signal, if the container is notified by signal.
    pub fn signal(self) -> Option<NotifySignal> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::None | Self::Webhook | Self::InPlace => None,
        }
    }

    /// Returns the text that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Signal(signal) => signal.as_str(),
            Self::Webhook => "webhook",
            Self::InPlace => "in-place",
        }
    }
}

impl FromStr for Notify {
    type Err = UnknownSetting;
    fn from_str(text: &str) -> Result<Self, UnknownSetting> {
        let signals = [NotifySignal::Usr1, NotifySignal::Usr2, NotifySignal::Hup].map(Self::Signal);
        let mut ways = [Self::None, Self::Webhook, Self::InPlace].into_iter().chain(signals);
        ways.find(|way| way.as_str() == text).ok_or_else(|| UnknownSetting::new(text, Self::ALLOWED))
    }
}

impl TryFrom<String> for Notify {
    type Error = UnknownSetting;
    fn try_from(text: String) -> Result<Self, UnknownSetting> {
        text.parse()
    }
}

impl From<Notify> for &'static str {
    fn from(notify: Notify) -> Self {
        notify.as_str()
    }
}

impl fmt::Display for Notify {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The event that counts as a container's acknowledgement of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// The signal was sent to a process that catches it, or the webhook answered 2xx.
    #[default]
    Delivered,
    /// The container has asked the endpoint for that version.
    Fetched,
}

impl FromStr for Ack {
    type Err = UnknownSetting;
    fn from_str(text: &str) -> Result<Self, UnknownSetting> {
        match text {
            "delivered" => Ok(Self::Delivered),
            "fetched" => Ok(Self::Fetched),
            _ => Err(UnknownSetting::new(text, "delivered, fetched")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reads_back_as_written_and_others_are_refused_with_the_list() {
        for text in ["none", "webhook", "in-place", "SIGUSR1", "SIGUSR2", "SIGHUP"] {
            assert_eq!(text.parse::<Notify>().unwrap().to_string(), text);
        }
        for bad in ["", "sigusr1", "SIGKILL", "SIGTERM", "10", "rollout"] {
            let refusal = bad.parse::<Notify>().unwrap_err().to_string();
            assert!(refusal.contains("SIGUSR1, SIGUSR2, SIGHUP, webhook, in-place, none"), "{refusal}");
        }
    }
}
