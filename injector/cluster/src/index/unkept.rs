//! The objects of a namespace that are not kept, because it has too many: counted and reported, so that none is lost silently.

use std::collections::{BTreeMap, HashSet};

use super::Kind;

/// Names that are remembered of each kind. There may be more objects.
const NAMES: usize = 10_000;

/// What is not kept of a namespace.
#[derive(Default)]
pub(super) struct Unkept {
    /// The names that are not kept, for each kind that has any.
    kinds: BTreeMap<Kind, Names>,
}

#[derive(Default)]
struct Names {
    names: HashSet<Box<str>>,
    /// Whether there were more when the last name came.
    more: bool,
}

impl Unkept {
    /// Adds an object. Returns whether it is the first of its kind.
    pub(super) fn add(&mut self, kind: Kind, name: &str) -> bool {
        let is_first = !self.kinds.contains_key(&kind);
        let of_kind = self.kinds.entry(kind).or_default();
        if of_kind.names.len() < NAMES {
            of_kind.names.insert(name.into());
        } else if !of_kind.names.contains(name) {
            of_kind.more = true;
        }
        is_first
    }

    /// The object is kept now, or gone.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) {
        if let Some(of_kind) = self.kinds.get_mut(&kind) {
            of_kind.names.remove(name);
            if of_kind.names.is_empty() && !of_kind.more {
                self.kinds.remove(&kind);
            }
        }
    }

    /// Forgets those that a list did not show.
    pub(super) fn retain(&mut self, kind: Kind, seen: impl Fn(&str) -> bool) {
        if let Some(of_kind) = self.kinds.get_mut(&kind) {
            // Where there was room for every name, there are no more.
            of_kind.more &= of_kind.names.len() == NAMES;
            of_kind.names.retain(|name| seen(name));
            if of_kind.names.is_empty() && !of_kind.more {
                self.kinds.remove(&kind);
            }
        }
    }

    /// Returns whether this one is known not to be kept.
    pub(super) fn names(&self, kind: Kind, name: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|of_kind| of_kind.names.contains(name))
    }

    /// Returns whether this one, which is not kept, may be there all the same.
    pub(super) fn may_hold(&self, kind: Kind, name: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|of_kind| of_kind.more || of_kind.names.contains(name))
    }

    /// How many are known, which is at most [`NAMES`] and one for all others.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.kinds.get(&kind).map_or(0, |of_kind| of_kind.names.len() + usize::from(of_kind.more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_a_name_count_until_a_list_shows_that_there_are_none() {
        let (mut unkept, kind) = (Unkept::default(), Kind::Pods);
        assert!(unkept.add(kind, "0") && !unkept.add(kind, "0"), "it is reported once");
        (1..=NAMES).for_each(|number| _ = unkept.add(kind, &number.to_string()));
        assert_eq!(unkept.count(kind), NAMES + 1);
        assert!(unkept.may_hold(kind, "x") && !unkept.names(kind, "x"));
        (0..NAMES).for_each(|number| unkept.remove(kind, &number.to_string()));
        assert_eq!(unkept.count(kind), 1, "one has no name");
        unkept.add(kind, "10000");
        unkept.retain(kind, |_| true);
        assert_eq!((unkept.count(kind), unkept.may_hold(kind, "x")), (1, false));
        unkept.retain(kind, |_| false);
        assert_eq!(unkept.count(kind), 0);
        assert!(unkept.add(kind, "0"), "it is reported again");
    }

    #[test]
    fn a_list_with_more_than_the_names_leaves_some_without() {
        let (mut unkept, kind) = (Unkept::default(), Kind::Pods);
        (0..=NAMES).for_each(|number| _ = unkept.add(kind, &number.to_string()));
        unkept.retain(kind, |name| name == "7");
        assert_eq!(unkept.count(kind), 2);
    }
}
