//! JSON whose objects have no name twice.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use super::FormatRefusal;
use crate::dictionary::Parsed;
use crate::finding::Place;
use crate::meter::{charge, is_exhausted};

/// The beginning of the error about a name that occurs twice.
const DUPLICATE_NAME: &str = "a name occurs twice";
/// The steps of each value.
const VALUE_STEPS: u64 = 4;

pub(super) fn read(text: &str) -> Result<Parsed, FormatRefusal> {
    serde_json::from_str::<Document>(text).map(|Document(parsed)| parsed).map_err(|error| {
        let place = (error.line() > 0).then(|| Place::Line { line: error.line(), column: error.column().max(1) });
        let text = error.to_string();
        let rule = match error.classify() {
            // The caller reports that the steps are used up.
            Category::Data if is_exhausted() => "must be JSON",
            Category::Data if text.starts_with(DUPLICATE_NAME) => "must be JSON in which no object has a name twice",
            Category::Eof => "must be JSON, and ends too early",
            _ if text.starts_with("recursion limit") => "must be JSON that is nested at most 127 deep",
            _ if text.starts_with("trailing characters") => "must be one JSON value, and more follows it",
            _ if text.starts_with("trailing comma") => "must be JSON, which has no comma before a closing bracket",
            _ if text.starts_with("expected `,`") => "must be JSON; a comma or a closing bracket is missing",
            _ if text.starts_with("expected `:`") => "must be JSON; a colon is missing",
            _ if text.starts_with("key must be a string") => "must be JSON, where names have double quotes",
            _ if text.starts_with("control character") => "must be JSON, where text holds no line breaks",
            _ => "must be JSON",
        };
        (place, rule)
    })
}

struct Document(Parsed);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(|value| Self(Parsed(value)))
    }
}

struct InnerValue(Value);

impl<'de> Deserialize<'de> for InnerValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A value takes many times the memory of its text.
        charge(VALUE_STEPS).map_err(|_| D::Error::custom("too much"))?;
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(InnerValue(item)) = items.next_element()? {
            values.push(item);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(DUPLICATE_NAME));
            }
            let InnerValue(value) = entries.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}
