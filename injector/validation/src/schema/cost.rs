//! An upper bound on the work of checking a value against a schema, computed without doing the work.
//!
//! Schemas can multiply: `anyOf` of two references to one that is `anyOf` of two references needs 2^n steps. This walk
//! counts every pair of a schema and a value once, and multiplies.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::meter::{Exhausted, charge};

/// The maximum depth of nested pairs of a schema and a value.
const MAX_DEPTH: u32 = 1500;
/// The maximum number of pairs of a schema and a value.
const MAX_PAIRS: usize = 300_000;

/// The keywords whose schema, or list of schemas, applies to the same value. Each has a factor, because the library
/// checks them again to collect errors.
const SAME_VALUE_KEYWORDS: [(&str, u64); 7] =
    [("allOf", 1), ("anyOf", 3), ("oneOf", 3), ("not", 2), ("if", 2), ("then", 2), ("else", 2)];
/// The keywords whose schema applies to each item of a list.
const ITEM_KEYWORDS: [&str; 4] = ["additionalItems", "contains", "items", "unevaluatedItems"];
/// The keywords whose schema applies to each property.
const PROPERTY_KEYWORDS: [&str; 3] = ["additionalProperties", "propertyNames", "unevaluatedProperties"];

/// Returns the maximum number of steps.
pub(super) fn count_steps(schema: &Value, instance: &Value) -> Result<u64, Exhausted> {
    let mut anchors = HashMap::new();
    find_anchors(schema, &mut anchors);
    let mut walk = Walk { root: schema, anchors, costs: HashMap::new(), sizes: HashMap::new() };
    walk.pair(schema, instance, 0).map(|cost| cost.steps)
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
    /// The cost of each pair. The library stops at a pair that contains itself.
    costs: HashMap<(*const Value, *const Value), Cost>,
    /// The sizes of the values that are compared as a whole.
    sizes: HashMap<*const Value, u64>,
}

impl<'a> Walk<'a> {
    /// Returns the cost of validating a value by a schema. The first entry of the pair ends the walk where the pair
    /// contains itself.
    fn pair(&mut self, schema: &'a Value, instance: &'a Value, depth: u32) -> Result<Cost, Exhausted> {
        let Value::Object(keywords) = schema else { return Ok(Cost { steps: 1, depth: 1 }) };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(instance));
        if let Some(&cost) = self.costs.get(&pair) {
            return if depth + cost.depth > MAX_DEPTH { Err(exhaust()) } else { Ok(cost) };
        }
        if depth > MAX_DEPTH || self.costs.len() >= MAX_PAIRS {
            return Err(exhaust());
        }
        charge(2 + keywords.len() as u64)?;
        self.costs.insert(pair, Cost { steps: 1, depth: 1 });
        let mut sum = Cost { steps: self.own_steps(keywords, instance), depth: 0 };
        // The library checks a second time which properties are evaluated.
        let is_repeated = keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems");
        let factor = if is_repeated { 3 } else { 1 };
        if let Some(Value::String(target)) = keywords.get("$ref")
            && let Some(target) = self.target(target)
        {
            sum.add(factor, self.pair(target, instance, depth + 1)?);
        }
        for (keyword, times) in SAME_VALUE_KEYWORDS {
            match keywords.get(keyword) {
                Some(Value::Array(schemas)) => {
                    for schema in schemas {
                        sum.add(factor * times, self.pair(schema, instance, depth + 1)?);
                    }
                }
                Some(schema) => sum.add(factor * times, self.pair(schema, instance, depth + 1)?),
                None => {}
            }
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            for schema in keywords.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::values) {
                sum.add(factor, self.pair(schema, instance, depth + 1)?);
            }
        }
        match instance {
            Value::Array(items) => self.items(keywords, items, depth, &mut sum)?,
            Value::Object(entries) => self.properties(keywords, entries, depth, &mut sum)?,
            _ => {}
        }
        let cost = Cost { depth: sum.depth + 1, ..sum };
        self.costs.insert(pair, cost);
        Ok(cost)
    }

    fn items(
        &mut self,
        keywords: &'a Map<String, Value>,
        items: &'a [Value],
        depth: u32,
        sum: &mut Cost,
    ) -> Result<(), Exhausted> {
        for keyword in ["items", "prefixItems"] {
            let schemas = keywords.get(keyword).and_then(Value::as_array);
            for (schema, item) in schemas.into_iter().flatten().zip(items) {
                sum.add(1, self.pair(schema, item, depth + 1)?);
            }
        }
        for schema in ITEM_KEYWORDS.iter().filter_map(|keyword| keywords.get(*keyword)) {
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
        sum: &mut Cost,
    ) -> Result<(), Exhausted> {
        for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(value) = entries.get(name) {
                sum.add(1, self.pair(schema, value, depth + 1)?);
            }
        }
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        let others = PROPERTY_KEYWORDS.iter().filter_map(|keyword| keywords.get(*keyword));
        for schema in patterns.into_iter().flat_map(Map::values).chain(others) {
            for value in entries.values() {
                sum.add(2, self.pair(schema, value, depth + 1)?);
            }
        }
        Ok(())
    }

    /// Returns the steps of the keywords that hold no schemas.
    fn own_steps(&mut self, keywords: &'a Map<String, Value>, instance: &'a Value) -> u64 {
        let has_keyword = |keyword: &str| keywords.contains_key(keyword);
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
                steps += if has_keyword("pattern") { 200 + 32 * bytes } else { 0 };
                steps += if has_keyword("format") { 20 + 2 * bytes } else { 0 };
                steps += bytes / 16;
            }
            Value::Object(entries) => {
                let count = entries.len() as u64;
                let names = entries.keys().map(|name| name.len() as u64).sum::<u64>();
                let patterns = keywords.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len) as u64;
                let others = patterns + u64::from(has_keyword("propertyNames"));
                steps += count + patterns * count * 20 + others * names * 32;
                // Each name is matched against all patterns.
                steps += if has_keyword("additionalProperties") { patterns * (200 * count + 32 * names) } else { 0 };
            }
            Value::Array(items) => {
                let count = items.len() as u64;
                steps += count;
                steps += if has_keyword("uniqueItems") { 8 * self.size(instance) + 20 * count } else { 0 };
            }
            _ => {}
        }
        if let Some(Value::Array(options)) = keywords.get("enum") {
            // Most options differ at their beginning.
            let steps_per_option = if instance.is_array() || instance.is_object() { self.size(instance) } else { 2 };
            steps += options.len() as u64 * steps_per_option;
        }
        steps + if has_keyword("const") { self.size(instance) } else { 0 }
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

    /// Returns the target of a reference within the schema.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let fragment = reference.strip_prefix('#')?;
        let decoded = percent_decode_str(fragment).decode_utf8_lossy();
        if decoded.is_empty() || decoded.starts_with('/') {
            return self.root.pointer(&decoded);
        }
        self.anchors.get(&*decoded).copied()
    }
}

/// The cost of a pair of a schema and a value, with all pairs within it.
#[derive(Clone, Copy)]
struct Cost {
    steps: u64,
    depth: u32,
}

impl Cost {
    fn add(&mut self, times: u64, inner: Self) {
        self.steps = self.steps.saturating_add(times.saturating_mul(inner.steps));
        self.depth = self.depth.max(inner.depth);
    }
}

/// Uses up all steps of the check.
fn exhaust() -> Exhausted {
    charge(u64::MAX).err().unwrap_or(Exhausted)
}
