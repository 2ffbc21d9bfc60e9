//! Turns among names: each has one before any has a second. Pure.

use std::collections::{HashMap, VecDeque};

/// Values that take turns, the next one in front. Nothing empty stays.
#[derive(Debug, Default)]
pub(super) struct RoundRobin<T> {
    by_name: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T: Default> RoundRobin<T> {
    /// Returns the value of this name, which is the last one if it is new.
    pub(super) fn entry(&mut self, name: &str) -> &mut T {
        if !self.by_name.contains_key(name) {
            self.order.push_back(name.to_owned());
        }
        self.by_name.entry(name.to_owned()).or_default()
    }

    /// Takes from the first value of which `take` takes something, which then is the last. Returns its name, too.
    pub(super) fn take<R>(&mut self, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<(String, R)> {
        let Self { by_name, order } = self;
        let mut taken = None;
        let at = order.iter().position(|name| {
            taken = by_name.get_mut(name).and_then(&mut take);
            taken.is_some()
        })?;
        let name = order.remove(at)?;
        order.push_back(name.clone());
        Some((name, taken?))
    }

    /// Has `remove` take from the value of this name, which goes if it is empty then.
    pub(super) fn remove(&mut self, name: &str, remove: impl FnOnce(&mut T), is_empty: impl FnOnce(&T) -> bool) {
        let Some(value) = self.by_name.get_mut(name) else { return };
        remove(value);
        if is_empty(value) {
            self.by_name.remove(name);
            self.order.retain(|known| known != name);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
