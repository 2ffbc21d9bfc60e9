//! The formats of single values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use nudge_api::ValueFormat;
use serde_json::{Number, Value};
use zeroize::Zeroizing;

use crate::dictionary::Parsed;

/// Reads a value, or returns the broken rule.
pub(super) fn read(format: ValueFormat, text: &str) -> Result<Parsed, &'static str> {
    let has_outer_space = text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace);
    if has_outer_space && format != ValueFormat::Pem {
        return Err("must have no white space or line break around it");
    }
    let text_if =
        |is_valid: bool, rule: &'static str| if is_valid { Ok(Value::String(text.to_owned())) } else { Err(rule) };
    let value = match format {
        ValueFormat::Int => int(text).ok_or("must be a decimal number without fraction (int)"),
        ValueFormat::Port => {
            let port = int(text).filter(|port| port.as_u64().is_some_and(|port| (1..=65535).contains(&port)));
            port.ok_or("must be a number from 1 to 65535 (port)")
        }
        ValueFormat::Float => float(text).ok_or("must be a decimal number (float)"),
        ValueFormat::Bool => text.parse().map(Value::Bool).map_err(|_| "must be true or false (bool)"),
        ValueFormat::Duration => text_if(is_duration(text), "must be a time such as 1h30m or 500ms (duration)"),
        ValueFormat::Timestamp => {
            text_if(is_timestamp(text), "must be a date and time such as 2026-11-23T12:00:00Z (timestamp)")
        }
        ValueFormat::Url => {
            text_if(is_url(text), "must be a URL with scheme and host, such as https://example.com/ (url)")
        }
        ValueFormat::Ip => text_if(text.parse::<IpAddr>().is_ok(), "must be an IP address (ip)"),
        ValueFormat::Cidr => text_if(is_cidr(text), "must be a network such as 10.0.0.0/8 (cidr)"),
        ValueFormat::Hostname => text_if(is_hostname(text), "must be a name in DNS (hostname)"),
        ValueFormat::Pem => text_if(is_pem(text), "must be one PEM block or several (pem)"),
        ValueFormat::Base64 => {
            text_if(STANDARD.decode(text).map(Zeroizing::new).is_ok(), "must be standard base64 with padding (base64)")
        }
        // The caller reads these formats.
        ValueFormat::Json | ValueFormat::Yaml | ValueFormat::Toml | ValueFormat::Properties | ValueFormat::Text => {
            Ok(Value::String(text.to_owned()))
        }
    };
    value.map(Parsed)
}

/// Reads an integer by the rules of most programs: without a plus sign, and without leading zeros, which some programs
/// take for octal.
fn int(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    let number = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    number.ok().filter(|_| is_plain).map(Value::Number)
}

fn float(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.starts_with(|first: char| first.is_ascii_digit());
    text.parse::<f64>().ok().filter(|_| is_plain).and_then(Number::from_f64).map(Value::Number)
}

/// Returns whether Go's `time.ParseDuration` takes the text, which must have no sign.
fn is_duration(text: &str) -> bool {
    let mut remainder = text;
    while !remainder.is_empty() && remainder != "0" {
        let digits = remainder.len()
            - remainder.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.').len();
        let (number, after) = remainder.split_at(digits);
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        // The longest unit counts: `ms` begins with `m`.
        let unit = units.into_iter().filter(|unit| after.starts_with(unit)).max_by_key(|unit| unit.len());
        let Some(unit) = unit.filter(|_| number.parse::<f64>().is_ok_and(f64::is_finite)) else { return false };
        remainder = &after[unit.len()..];
        if remainder == "0" {
            return false;
        }
    }
    !text.is_empty()
}

/// Returns whether the text is a timestamp of RFC 3339, which has digits at fixed places. The parser checks the
/// calendar.
fn is_timestamp(text: &str) -> bool {
    let shape = text.bytes().take(19).map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    shape.eq(*b"0000-00-00T00:00:00")
        && !text.contains('[')
        && (text.ends_with('Z') || text.as_bytes().iter().rev().nth(2) == Some(&b':'))
        && text.parse::<Timestamp>().is_ok()
}

fn is_url(text: &str) -> bool {
    let Some((scheme, remainder)) = text.split_once("://") else { return false };
    let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let is_scheme =
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) && scheme.bytes().all(is_scheme_byte);
    let authority = remainder.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (is_name, port) = match host.strip_prefix('[').and_then(|remainder| remainder.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port.strip_prefix(':')),
        None => match host.split_once(':') {
            Some((name, port)) => (is_host(name), Some(port)),
            None => (is_host(host), None),
        },
    };
    let is_port = port.is_none_or(|port| port.is_empty() || port.parse::<u16>().is_ok());
    let is_allowed = |byte: u8| {
        byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
    };
    is_scheme && is_name && is_port && text.bytes().all(is_allowed) && is_percent_encoded(remainder)
}

/// Returns whether each percent sign is followed by two hexadecimal digits.
fn is_percent_encoded(text: &str) -> bool {
    let has_digits =
        |remainder: &str| remainder.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    text.split('%').skip(1).all(has_digits)
}

/// Returns whether the text is an address or a name, which may have underscores in clusters.
fn is_host(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok() || is_hostname(&text.replace('_', "a"))
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max_bits = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    int(bits).and_then(|bits| bits.as_u64()).is_some_and(|bits| bits <= max_bits)
}

fn is_pem(text: &str) -> bool {
    let has_all_blocks = pem::parse_many(text).is_ok_and(|blocks| {
        // The contents may be a private key.
        let count = blocks.len();
        for block in blocks {
            drop(Zeroizing::new(block.into_contents()));
        }
        count > 0 && count == text.matches("-----BEGIN ").count()
    });
    has_all_blocks && text.matches("-----BEGIN ").count() == text.matches("-----END ").count()
}
