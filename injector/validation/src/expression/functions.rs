//! The functions that expressions may use, and those that count.

use cel::common::types::{CelBool, CelBytes, CelInt, CelList, CelMap, CelString, DYN_TYPE, INT_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use regex::RegexBuilder;

use crate::meter::{charge, is_exhausted};

/// Functions that are called with all their arguments.
pub(super) const NAMES: [&str; 10] =
    ["bool", "bytes", "double", "dyn", "int", "matches", "size", "string", "type", "uint"];
/// Functions that are called on a value.
pub(super) const MEMBERS: [&str; 5] = ["contains", "endsWith", "matches", "size", "startsWith"];

// No expression can name these.
/// Counts all of a value.
pub(super) const DEEP: &str = "@deep";
/// Counts what it costs to find something in a value, or its size.
pub(super) const MEMBER: &str = "@member";
/// Counts the turns of a loop, each with what it costs.
pub(super) const RANGE: &str = "@range";
/// In place of the library's own, which compiles expressions of any size.
pub(super) const MATCHES: &str = "@matches";

/// Bytes that are copied or compared in one step.
const BYTES_PER_STEP: u64 = 32;
/// Steps of one value.
const VALUE: u64 = 2;
/// Steps to compile a regular expression.
const COMPILE: u64 = 5000;
/// The maximum of bytes of a compiled one.
const MAX_REGEX_BYTES: usize = 32 * 1024;

/// For messages.
pub(super) fn listed() -> String {
    let mut all = [&NAMES[..], &MEMBERS[..]].concat();
    all.sort_unstable();
    all.dedup();
    format!("{}, and the macros all, exists, exists_one, filter, has and map", all.join(", "))
}

/// The standard library with what counts.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib().with_optional_support(false);
    // None of the names is declared already. If one were, expressions would fail, and none would run uncounted.
    let _ = env.add_overload(DEEP, DEEP, vec![DYN_TYPE], |mut arguments| {
        let value = take(&mut arguments)?;
        spend(|| deep(&*value))?;
        Ok(value)
    });
    let _ = env.add_overload(MEMBER, MEMBER, vec![DYN_TYPE], |mut arguments| {
        let value = take(&mut arguments)?;
        spend(|| if value.downcast_ref::<CelMap<'_>>().is_some() { VALUE } else { deep(&*value) })?;
        Ok(value)
    });
    let _ = env.add_overload(RANGE, RANGE, vec![DYN_TYPE, INT_TYPE], |mut arguments| {
        let turn = arguments.pop().and_then(|turn| turn.downcast_ref::<CelInt>().map(|turn| *turn.inner()));
        let value = take(&mut arguments)?;
        let turn = turn.and_then(|turn| u64::try_from(turn).ok()).ok_or_else(exhausted)?;
        spend(|| {
            let turns = value.as_sizer().map_or(1, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(u64::MAX));
            turns.saturating_mul(turn * VALUE).saturating_add(deep(&*value))
        })?;
        Ok(value)
    });
    let _ = env.add_overload(MATCHES, MATCHES, vec![STRING_TYPE, STRING_TYPE], |arguments| {
        let [text, pattern] = &arguments[..] else { return Err(exhausted()) };
        let (text, pattern) = (text.downcast_ref::<CelString<'_>>(), pattern.downcast_ref::<CelString<'_>>());
        let (Some(text), Some(pattern)) = (text, pattern) else { return Err(exhausted()) };
        spend(|| COMPILE + 4 * text.inner().len() as u64)?;
        let regex = RegexBuilder::new(pattern.inner()).size_limit(MAX_REGEX_BYTES).build();
        let regex = regex.map_err(|_| ExecutionError::function_error("matches", "not a regular expression"))?;
        Ok(CowVal::owned(CelBool::from(regex.is_match(text.inner()))))
    });
    env
}

fn take<'b, 'v>(arguments: &mut Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    arguments.pop().ok_or_else(exhausted)
}

fn exhausted() -> ExecutionError {
    ExecutionError::function_error("meter", "exhausted")
}

/// Finding out what it costs costs as much.
fn spend(steps: impl FnOnce() -> u64) -> Result<(), ExecutionError> {
    if is_exhausted() { Err(exhausted()) } else { charge(steps()).map_err(|_| exhausted()) }
}

/// Steps to copy a value or to compare it.
fn deep(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return VALUE + text.inner().len() as u64 / BYTES_PER_STEP;
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return VALUE + bytes.inner().len() as u64 / BYTES_PER_STEP;
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return VALUE + list.inner().iter().map(|item| deep(&**item)).sum::<u64>();
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        return VALUE + map.inner().iter().map(|(key, value)| deep(key.inner()) + deep(&**value)).sum::<u64>();
    }
    VALUE
}
