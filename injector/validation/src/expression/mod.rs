//! CEL expressions over a content: `data` has the values by key, `parsed` has those with a format.
//!
//! The library evaluates without any limit. Every expression is therefore rewritten first: each loop counts its
//! iterations, and each function counts the size of its arguments, before the work is done ([`metering`]). Only
//! functions of known cost are allowed.

mod functions;
mod metering;

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::ast::IdedExpr;
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use cel::{Context, Env, ExecutionError, Value as CelValue};
use serde_json::Value;

use crate::dictionary::Dictionary;
use crate::finding::clip;
use crate::meter::{self, Exhausted, charge};

/// The maximum length of an expression.
const MAX_SOURCE_BYTES: usize = 2048;
/// The maximum number of nodes of an expression.
const MAX_NODES: u64 = 500;
/// The maximum length of an error of the parser in a message.
const MAX_ERROR_BYTES: usize = 120;

/// An expression that is allowed, ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Expression {
    tree: IdedExpr,
    nodes: u64,
    uses_parsed: bool,
}

impl Expression {
    /// Parses an expression, and checks that it can be evaluated: for any content it yields true or false, or an error.
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!("it has {} bytes, and at most {MAX_SOURCE_BYTES} are allowed", source.len()));
        }
        let parser = Env::stdlib().with_optional_support(false).parser();
        let tree = parser.parse(source).map_err(|errors| {
            let first = errors.errors.first();
            let position = first.map(|error| error.pos).unwrap_or_default();
            // The rest of the message lists everything that could stand there.
            let expectation = first.and_then(|error| error.msg.split(" expecting ").next()).unwrap_or_default();
            let expectation = clip(expectation, MAX_ERROR_BYTES);
            format!("it is not CEL: line {}, column {}: {expectation}", position.0, position.1)
        })?;
        let metered = metering::meter_expression(tree)?;
        if metered.nodes > MAX_NODES {
            return Err(format!(
                "it has {} operations, and at most {MAX_NODES} are allowed; make several rules",
                metered.nodes
            ));
        }
        let expression = Self { tree: metered.tree, nodes: metered.nodes, uses_parsed: metered.uses_parsed };
        meter::begin(meter::MAX_STEPS);
        match expression.evaluate(&Dictionary::new(), std::iter::empty()) {
            Ok(Err(cause)) if cause == NOT_BOOL => Err("it must yield true or false".to_owned()),
            Err(Exhausted) => Err("it takes more time than a rule may take".to_owned()),
            // An error is normal here, because the content has no keys.
            Ok(_) => Ok(expression),
        }
    }

    /// Returns whether the expression is true, or the reason why it can't be evaluated, without any value.
    pub(crate) fn evaluate<'v>(
        &self,
        dictionary: &Dictionary<'v>,
        parsed: impl Iterator<Item = (&'v str, &'v Value)>,
    ) -> Result<Result<bool, &'static str>, Exhausted> {
        charge(self.nodes + dictionary.len() as u64 * 4)?;
        let data = dictionary.iter().map(|(&key, entry)| {
            let value: Box<dyn Val + 'v> = match str::from_utf8(entry.value) {
                Ok(text) => Box::new(CelString::from(text)),
                Err(_) => Box::new(CelBytes::from(entry.value.to_vec())),
            };
            (CelMapKey::from(key), value)
        });
        let data: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = data.collect();
        let mut parsed_values: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
        if self.uses_parsed {
            for (key, value) in parsed {
                parsed_values.insert(CelMapKey::from(key), to_cel(value)?);
            }
        }
        let mut context = Context::with_env(Arc::new(functions::environment()));
        context.add_variable_as_val("data", Box::new(CelMap::from(data)));
        context.add_variable_as_val("parsed", Box::new(CelMap::from(parsed_values)));
        let result = CelValue::resolve_val(&self.tree, &context);
        let answer = hide_values(&result.map(|value| value.downcast_ref::<CelBool>().map(|value| *value.inner())));
        if meter::is_exhausted() { Err(Exhausted) } else { Ok(answer) }
    }
}

/// The error of an expression that yields neither true nor false.
const NOT_BOOL: &str = "it yields neither true nor false";

/// Returns the result. Errors of the library quote values, so they are replaced by our own.
fn hide_values(result: &Result<Option<bool>, ExecutionError>) -> Result<bool, &'static str> {
    match result {
        Ok(Some(is_true)) => Ok(*is_true),
        Ok(None) => Err(NOT_BOOL),
        Err(ExecutionError::NoSuchKey(_)) => Err("a key that it reads is missing"),
        Err(ExecutionError::NoSuchOverload(_) | ExecutionError::UnexpectedType { .. }) => {
            Err("it uses a value of another type")
        }
        Err(ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_)) => Err("it divides by zero"),
        Err(ExecutionError::Overflow(..)) => Err("a number is too large"),
        Err(ExecutionError::IndexOutOfBounds(_)) => Err("a list is too short"),
        Err(ExecutionError::FunctionError { .. }) => Err("a function can't use its argument"),
        Err(_) => Err("it can't be evaluated with this content"),
    }
}

/// Converts a value to CEL. The result borrows all text.
fn to_cel<'v>(value: &'v Value) -> Result<Box<dyn Val + 'v>, Exhausted> {
    charge(2)?;
    Ok(match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Box::new(CelInt::from(int)),
            (None, Some(uint)) => Box::new(CelUInt::from(uint)),
            _ => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(items) => {
            let items = items.iter().map(to_cel).collect::<Result<Vec<_>, _>>()?;
            Box::new(CelList::from(items))
        }
        Value::Object(entries) => {
            let entries = entries.iter().map(|(name, value)| Ok((CelMapKey::from(name.as_str()), to_cel(value)?)));
            Box::new(CelMap::from(entries.collect::<Result<HashMap<_, _>, Exhausted>>()?))
        }
    })
}

#[cfg(test)]
#[path = "expression_tests.rs"]
mod tests;
