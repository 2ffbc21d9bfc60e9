//! The objects of a namespace that are not kept, because it has too many: counted and reported, so that none is lost silently.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Kind;

/// Names that are remembered of each kind. There may be more objects.
const NAMES: usize = 10_000;

/// What is not kept of a namespace.
#[derive(Default)]
pub(super) struct Beyond {
    names: BTreeMap<Kind, HashSet<Box<str>>>,
    reported: BTreeSet<Kind>,
}

impl Beyond {
    /// Adds an object. Returns whether it is the first of its kind that is reported.
    pub(super) fn add(&mut self, kind: Kind, name: &str) -> bool {
        let names = self.names.entry(kind).or_default();
        if names.len() < NAMES {
            names.insert(name.into());
        }
        self.reported.insert(kind)
    }

    /// The object is kept now, or gone.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) {
        if let Some(names) = self.names.get_mut(&kind) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(&kind);
            }
        }
    }

    /// Forgets those that a list did not show.
    pub(super) fn retain(&mut self, kind: Kind, seen: impl Fn(&str) -> bool) {
        if let Some(names) = self.names.get_mut(&kind) {
            names.retain(|name| seen(name));
            if names.is_empty() {
                self.names.remove(&kind);
                self.reported.remove(&kind);
            }
        }
    }

    pub(super) fn holds(&self, kind: Kind, name: &str) -> bool {
        self.names.get(&kind).is_some_and(|names| names.contains(name))
    }

    /// How many are known, which is at most [`NAMES`].
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.names.get(&kind).map_or(0, HashSet::len)
    }
}
