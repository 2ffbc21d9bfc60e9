//! The functions that expressions may use, and the functions that count their cost.

use cel::common::types::{CelBool, CelBytes, CelInt, CelList, CelMap, CelString, DYN_TYPE, INT_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use regex::RegexBuilder;

use crate::meter::{charge, is_exhausted};

/// The functions that are called with all their arguments.
pub(super) const FUNCTIONS: [&str; 10] =
    ["bool", "bytes", "double", "dyn", "int", "matches", "size", "string", "type", "uint"];
/// The functions that are called on a value.
pub(super) const MEMBER_FUNCTIONS: [&str; 5] = ["contains", "endsWith", "matches", "size", "startsWith"];

// Expressions can't name functions whose names begin with @.
/// The function that counts a whole value.
pub(super) const COUNT_DEEP: &str = "@deep";
/// The function that counts the cost of a search in a value, or of its size.
pub(super) const COUNT_MEMBER: &str = "@member";
/// The function that counts the iterations of a loop, each with its cost.
pub(super) const COUNT_RANGE: &str = "@range";
/// The function that replaces the library's `matches`, which would compile expressions of any size.
pub(super) const MATCHES: &str = "@matches";

/// The bytes that are copied or compared in one step.
const BYTES_PER_STEP: u64 = 32;
/// The steps of one value.
const VALUE_STEPS: u64 = 2;
/// The steps to compile a regular expression.
const COMPILE_STEPS: u64 = 5000;
/// The maximum size of a compiled regular expression.
const MAX_REGEX_BYTES: usize = 32 * 1024;

/// Returns the names of all functions and macros, for messages.
pub(super) fn list_names() -> String {
    let mut names = [&FUNCTIONS[..], &MEMBER_FUNCTIONS[..]].concat();
    names.sort_unstable();
    names.dedup();
    format!("{}, and the macros all, exists, exists_one, filter, has and map", names.join(", "))
}

/// Returns the standard library with the functions that count.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib().with_optional_support(false);
    // The library declares none of these names. If it did, expressions would fail rather than run uncounted.
    let _ = env.add_overload(COUNT_DEEP, COUNT_DEEP, vec![DYN_TYPE], |mut arguments| {
        let value = take(&mut arguments)?;
        spend(|| deep_steps(&*value))?;
        Ok(value)
    });
    let _ = env.add_overload(COUNT_MEMBER, COUNT_MEMBER, vec![DYN_TYPE], |mut arguments| {
        let value = take(&mut arguments)?;
        spend(|| if value.downcast_ref::<CelMap<'_>>().is_some() { VALUE_STEPS } else { deep_steps(&*value) })?;
        Ok(value)
    });
    let _ = env.add_overload(COUNT_RANGE, COUNT_RANGE, vec![DYN_TYPE, INT_TYPE], |mut arguments| {
        let turn = arguments.pop().and_then(|turn| turn.downcast_ref::<CelInt>().map(|turn| *turn.inner()));
        let value = take(&mut arguments)?;
        let turn = turn.and_then(|turn| u64::try_from(turn).ok()).ok_or_else(exhausted)?;
        spend(|| {
            let turns = value.as_sizer().map_or(1, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(u64::MAX));
            turns.saturating_mul(turn * VALUE_STEPS).saturating_add(deep_steps(&*value))
        })?;
        Ok(value)
    });
    let _ = env.add_overload(MATCHES, MATCHES, vec![STRING_TYPE, STRING_TYPE], |arguments| {
        let [text, pattern] = &arguments[..] else { return Err(exhausted()) };
        let (text, pattern) = (text.downcast_ref::<CelString<'_>>(), pattern.downcast_ref::<CelString<'_>>());
        let (Some(text), Some(pattern)) = (text, pattern) else { return Err(exhausted()) };
        spend(|| COMPILE_STEPS + 4 * text.inner().len() as u64)?;
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

/// Counts steps. They are computed only while some are left, because the computation itself costs as much.
fn spend(steps: impl FnOnce() -> u64) -> Result<(), ExecutionError> {
    if is_exhausted() { Err(exhausted()) } else { charge(steps()).map_err(|_| exhausted()) }
}

/// Returns the steps to copy a value or to compare it.
fn deep_steps(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return VALUE_STEPS + text.inner().len() as u64 / BYTES_PER_STEP;
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return VALUE_STEPS + bytes.inner().len() as u64 / BYTES_PER_STEP;
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return VALUE_STEPS + list.inner().iter().map(|item| deep_steps(&**item)).sum::<u64>();
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        return VALUE_STEPS
            + map.inner().iter().map(|(key, value)| deep_steps(key.inner()) + deep_steps(&**value)).sum::<u64>();
    }
    VALUE_STEPS
}
