//! The objects of a namespace that are left out, because it has too many. They are counted and reported, so that none
//! is lost silently.

use std::collections::{BTreeMap, HashSet};

use super::WatchedKind;

/// The maximum number of names that are remembered of each kind. There may be more objects.
const MAX_NAMES: usize = 10_000;

/// The objects of a namespace that are left out.
#[derive(Default)]
pub(super) struct LeftOutObjects {
    /// The names for each kind that has left-out objects.
    kinds: BTreeMap<WatchedKind, ObjectNames>,
}

#[derive(Default)]
struct ObjectNames {
    names: HashSet<Box<str>>,
    /// Whether there were objects without a name here when the last list began.
    has_unnamed: bool,
}

impl LeftOutObjects {
    /// Adds an object. Returns whether it is the first of its kind.
    pub(super) fn add(&mut self, kind: WatchedKind, name: &str) -> bool {
        let is_first = !self.kinds.contains_key(&kind);
        let objects = self.kinds.entry(kind).or_default();
        if objects.names.len() < MAX_NAMES {
            objects.names.insert(name.into());
        } else if !objects.names.contains(name) {
            objects.has_unnamed = true;
        }
        is_first
    }

    /// Removes an object that is kept now, or gone.
    pub(super) fn remove(&mut self, kind: WatchedKind, name: &str) {
        if let Some(objects) = self.kinds.get_mut(&kind) {
            objects.names.remove(name);
            if objects.names.is_empty() && !objects.has_unnamed {
                self.kinds.remove(&kind);
            }
        }
    }

    /// Forgets the objects that a list did not show.
    pub(super) fn retain(&mut self, kind: WatchedKind, was_listed: impl Fn(&str) -> bool) {
        if let Some(objects) = self.kinds.get_mut(&kind) {
            // If there was room for every name, no object is unnamed.
            objects.has_unnamed &= objects.names.len() == MAX_NAMES;
            objects.names.retain(|name| was_listed(name));
            if objects.names.is_empty() && !objects.has_unnamed {
                self.kinds.remove(&kind);
            }
        }
    }

    /// Returns whether the object is known to be left out.
    pub(super) fn has_name(&self, kind: WatchedKind, name: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|objects| objects.names.contains(name))
    }

    /// Returns whether an object that is not kept may exist all the same.
    pub(super) fn may_have(&self, kind: WatchedKind, name: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|objects| objects.has_unnamed || objects.names.contains(name))
    }

    /// Returns the number of known objects: at most [`MAX_NAMES`], plus one that stands for all further objects.
    pub(super) fn count(&self, kind: WatchedKind) -> usize {
        self.kinds.get(&kind).map_or(0, |objects| objects.names.len() + usize::from(objects.has_unnamed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_a_name_count_until_a_list_shows_that_there_are_none() {
        let (mut left_out, kind) = (LeftOutObjects::default(), WatchedKind::Pods);
        assert!(left_out.add(kind, "0") && !left_out.add(kind, "0"), "it is reported once");
        (1..=MAX_NAMES).for_each(|number| _ = left_out.add(kind, &number.to_string()));
        assert_eq!(left_out.count(kind), MAX_NAMES + 1);
        assert!(left_out.may_have(kind, "x") && !left_out.has_name(kind, "x"));
        (0..MAX_NAMES).for_each(|number| left_out.remove(kind, &number.to_string()));
        assert_eq!(left_out.count(kind), 1, "one has no name");
        left_out.add(kind, "10000");
        left_out.retain(kind, |_| true);
        assert_eq!((left_out.count(kind), left_out.may_have(kind, "x")), (1, false));
        left_out.retain(kind, |_| false);
        assert_eq!(left_out.count(kind), 0);
        assert!(left_out.add(kind, "0"), "it is reported again");
    }

    #[test]
    fn a_list_with_more_than_the_names_leaves_some_without() {
        let (mut left_out, kind) = (LeftOutObjects::default(), WatchedKind::Pods);
        (0..=MAX_NAMES).for_each(|number| _ = left_out.add(kind, &number.to_string()));
        left_out.retain(kind, |name| name == "7");
        assert_eq!(left_out.count(kind), 2);
    }
}
