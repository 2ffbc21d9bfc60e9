//! How much work it is at most to check a value against a schema, found out without doing it.
//!
//! Schemas can multiply: `anyOf` of two references to one that is `anyOf` of two references needs 2^n steps. This walk counts every pair
//! of a schema and a value once, and multiplies.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::meter::{Exhausted, charge};

/// Deepest that schemas and values may go into each other.
const MAX_DEPTH: u32 = 1500;
/// Most pairs of a schema and a value.
const MAX_PAIRS: usize = 300_000;

/// Keywords whose schema, or list of schemas, is about the same value. The factor: whether it holds is found out, and again with the
/// errors.
const SAME: [(&str, u64); 7] =
    [("allOf", 1), ("anyOf", 3), ("oneOf", 3), ("not", 2), ("if", 2), ("then", 2), ("else", 2)];
/// Keywords whose schema is about each item of a list.
const ITEMS: [&str; 4] = ["additionalItems", "contains", "items", "unevaluatedItems"];
/// Keywords whose schema is about each property.
const PROPERTIES: [&str; 3] = ["additionalProperties", "propertyNames", "unevaluatedProperties"];

/// The steps.
pub(super) fn steps(schema: &Value, instance: &Value) -> Result<u64, Exhausted> {
    let mut anchors = HashMap::new();
    find_anchors(schema, &mut anchors);
    let mut walk = Walk { root: schema, anchors, known: HashMap::new(), sizes: HashMap::new() };
    walk.pair(schema, instance, 0).map(|(steps, _)| steps)
}

fn find_anchors<'a>(schema: &'a Value, anchors: &mut HashMap<&'a str, &'a Value>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| find_anchors(item, anchors)),
        Value::Object(entries) => {
            if let Some(Value::String(name)) = entries.get("$anchor") {
                anchors.insert(name, schema);
            }
            entries.values().for_each(|value| find_anchors(value, anchors));
        }
        _ => {}
    }
}

struct Walk<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
    /// Steps and depth of each pair. A pair within itself is where the library stops.
    known: HashMap<(*const Value, *const Value), (u64, u32)>,
    /// Sizes of what is compared as a whole.
    sizes: HashMap<*const Value, u64>,
}

impl<'a> Walk<'a> {
    fn pair(&mut self, schema: &'a Value, instance: &'a Value, depth: u32) -> Result<(u64, u32), Exhausted> {
        let Value::Object(keywords) = schema else { return Ok((1, 1)) };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(instance));
        if let Some(&(steps, below)) = self.known.get(&pair) {
            return if depth + below > MAX_DEPTH { Err(out_of_bounds()) } else { Ok((steps, below)) };
        }
        if depth > MAX_DEPTH || self.known.len() >= MAX_PAIRS {
            return Err(out_of_bounds());
        }
        charge(2 + keywords.len() as u64)?;
        self.known.insert(pair, (1, 1));
        let mut sum = Sum { steps: self.own_steps(keywords, instance), below: 0 };
        // Which properties are evaluated is found out once more.
        let again = keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems");
        let factor = if again { 3 } else { 1 };
        if let Some(Value::String(target)) = keywords.get("$ref")
            && let Some(target) = self.target(target)
        {
            sum.add(factor, self.pair(target, instance, depth + 1)?);
        }
        for (keyword, times) in SAME {
            match keywords.get(keyword) {
                Some(Value::Array(all)) => {
                    for one in all {
                        sum.add(factor * times, self.pair(one, instance, depth + 1)?);
                    }
                }
                Some(one) => sum.add(factor * times, self.pair(one, instance, depth + 1)?),
                None => {}
            }
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            for one in keywords.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::values) {
                sum.add(factor, self.pair(one, instance, depth + 1)?);
            }
        }
        match instance {
            Value::Array(items) => self.items(keywords, items, depth, &mut sum)?,
            Value::Object(entries) => self.properties(keywords, entries, depth, &mut sum)?,
            _ => {}
        }
        let found = (sum.steps, sum.below + 1);
        self.known.insert(pair, found);
        Ok(found)
    }

    fn items(
        &mut self,
        keywords: &'a Map<String, Value>,
        items: &'a [Value],
        depth: u32,
        sum: &mut Sum,
    ) -> Result<(), Exhausted> {
        for keyword in ["items", "prefixItems"] {
            let schemas = keywords.get(keyword).and_then(Value::as_array);
            for (schema, item) in schemas.into_iter().flatten().zip(items) {
                sum.add(1, self.pair(schema, item, depth + 1)?);
            }
        }
        for schema in ITEMS.iter().filter_map(|keyword| keywords.get(*keyword)) {
            for item in items {
                sum.add(2, self.pair(schema, item, depth + 1)?);
            }
        }
        Ok(())
    }

    fn properties(
        &mut self,
        keywords: &'a Map<String, Value>,
        entries: &'a Map<String, Value>,
        depth: u32,
        sum: &mut Sum,
    ) -> Result<(), Exhausted> {
        for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(value) = entries.get(name) {
                sum.add(1, self.pair(schema, value, depth + 1)?);
            }
        }
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        let each = PROPERTIES.iter().filter_map(|keyword| keywords.get(*keyword));
        for schema in patterns.into_iter().flat_map(Map::values).chain(each) {
            for value in entries.values() {
                sum.add(2, self.pair(schema, value, depth + 1)?);
            }
        }
        Ok(())
    }

    /// What the keywords that hold no schemas cost.
    fn own_steps(&mut self, keywords: &'a Map<String, Value>, instance: &'a Value) -> u64 {
        let has = |keyword: &str| keywords.contains_key(keyword);
        let count = |keyword: &str| {
            keywords.get(keyword).map_or(0, |value| match value {
                Value::Array(items) => items.len() as u64,
                Value::Object(entries) => entries.len() as u64,
                _ => 1,
            })
        };
        let mut steps = 4 + 2 * keywords.len() as u64 + count("required") + count("properties");
        match instance {
            Value::String(text) => {
                let bytes = text.len() as u64;
                // The regular expression has at most some thousand states.
                steps += if has("pattern") { 200 + 32 * bytes } else { 0 };
                steps += if has("format") { 20 + 2 * bytes } else { 0 };
                steps += bytes / 16;
            }
            Value::Object(entries) => {
                let count = entries.len() as u64;
                let names = entries.keys().map(|name| name.len() as u64).sum::<u64>();
                let patterns = keywords.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len) as u64;
                let others = patterns + u64::from(has("propertyNames"));
                steps += count + patterns * count * 20 + others * names * 32;
                // Names are looked for in these.
                steps += if has("additionalProperties") { patterns * (200 * count + 32 * names) } else { 0 };
            }
            Value::Array(items) => {
                let count = items.len() as u64;
                steps += count;
                steps += if has("uniqueItems") { 8 * self.size(instance) + 20 * count } else { 0 };
            }
            _ => {}
        }
        if let Some(Value::Array(options)) = keywords.get("enum") {
            // Most options differ from the start.
            let compared = if instance.is_array() || instance.is_object() { self.size(instance) } else { 2 };
            steps += options.len() as u64 * compared;
        }
        steps + if has("const") { self.size(instance) } else { 0 }
    }

    fn size(&mut self, value: &Value) -> u64 {
        let place = std::ptr::from_ref(value);
        if let Some(&size) = self.sizes.get(&place) {
            return size;
        }
        let size = match value {
            Value::Array(items) => 1 + items.iter().map(|item| self.size(item)).sum::<u64>(),
            Value::Object(entries) => {
                1 + entries.iter().map(|(name, value)| 1 + name.len() as u64 / 16 + self.size(value)).sum::<u64>()
            }
            Value::String(text) => return 1 + text.len() as u64 / 16,
            _ => return 1,
        };
        self.sizes.insert(place, size);
        size
    }

    /// What a reference within the schema means.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let fragment = reference.strip_prefix('#')?;
        let decoded = decoded(fragment);
        if decoded.is_empty() || decoded.starts_with('/') {
            return self.root.pointer(&decoded);
        }
        self.anchors.get(decoded.as_str()).copied()
    }
}

/// Steps, and how deep they go.
struct Sum {
    steps: u64,
    below: u32,
}

impl Sum {
    fn add(&mut self, times: u64, (steps, below): (u64, u32)) {
        self.steps = self.steps.saturating_add(times.saturating_mul(steps));
        self.below = self.below.max(below);
    }
}

/// From now on there are no steps.
fn out_of_bounds() -> Exhausted {
    charge(u64::MAX).err().unwrap_or(Exhausted)
}

/// Without percent-encoding.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|two| str::from_utf8(two).ok());
        if let Some(byte) = code.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
