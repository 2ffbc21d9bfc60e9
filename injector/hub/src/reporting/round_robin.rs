//! Turns of names: every name gets a turn before any name gets a second turn. Does no I/O.

use std::collections::{HashMap, VecDeque};

/// Values that take turns, the next one in front. Empty values are removed.
#[derive(Debug, Default)]
pub(super) struct RoundRobin<T> {
    by_name: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T: Default> RoundRobin<T> {
    /// Returns the value of this name; a new value is put last.
    pub(super) fn entry(&mut self, name: &str) -> &mut T {
        if !self.by_name.contains_key(name) {
            self.order.push_back(name.to_owned());
        }
        self.by_name.entry(name.to_owned()).or_default()
    }

    /// Takes an item from the first value that `take` finds one in, and moves that value to the end. Returns the
    /// value's name and the item.
    pub(super) fn take<R>(&mut self, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<(String, R)> {
        let Self { by_name, order } = self;
        let (index, item) = order
            .iter()
            .enumerate()
            .find_map(|(index, name)| Some((index, by_name.get_mut(name).and_then(&mut take)?)))?;
        let name = order.remove(index)?;
        order.push_back(name.clone());
        Some((name, item))
    }

    /// Calls `remove` on the value of this name, and removes the value if `is_empty` accepts what is left.
    pub(super) fn remove(&mut self, name: &str, remove: impl FnOnce(&mut T), is_empty: impl FnOnce(&T) -> bool) {
        let Some(value) = self.by_name.get_mut(name) else { return };
        remove(value);
        if is_empty(value) {
            self.by_name.remove(name);
            self.order.retain(|other| other != name);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
