//! The last good content of every config, and the dictionary made of it.
//!
//! New content replaces good content only if it is good itself and the dictionary with it is within its bounds. Pure:
//! readings and the time in, changes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use nudge_protocol::ConfigName;
use nudge_protocol::status::{Problem, ProblemReason};
use time::OffsetDateTime;

use super::{Reading, SourceFault};
use crate::content::{Dictionary, EtagKey, TooLarge, VersionContent};

/// The last good contents by config.
type Contents = BTreeMap<ConfigName, Arc<VersionContent>>;

/// The last good contents, their problems and their dictionary.
pub struct Store {
    /// The order of merging; `None` for the order of names.
    order: Option<Vec<ConfigName>>,
    etags: EtagKey,
    good: Contents,
    since: BTreeMap<ConfigName, OffsetDateTime>,
    problems: BTreeMap<ConfigName, Problem>,
    dictionary: Option<Arc<Dictionary>>,
}

/// The changes that one call of [`Store::apply`] has made.
#[derive(Debug, Default)]
pub struct Applied {
    /// The new dictionary, if it differs from the previous one.
    pub dictionary: Option<Arc<Dictionary>>,
    /// Problems that are new, or whose message has changed.
    pub raised: Vec<(ConfigName, Problem)>,
    /// Configs whose problem is gone.
    pub cleared: Vec<ConfigName>,
}

impl Applied {
    /// Adds the changes of a later call.
    pub fn add(&mut self, later: Self) {
        let Self { dictionary, raised, cleared } = later;
        self.dictionary = dictionary.or(self.dictionary.take());
        self.raised.extend(raised);
        self.cleared.extend(cleared);
    }
}

impl Store {
    /// Creates an empty store that merges in the given order, or by name.
    pub fn new(order: Option<Vec<ConfigName>>, etags: EtagKey) -> Self {
        Self {
            order,
            etags,
            good: Contents::new(),
            since: BTreeMap::new(),
            problems: BTreeMap::new(),
            dictionary: None,
        }
    }

    /// Returns the dictionary; `None` until the first contents are good.
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.dictionary.as_ref()
    }

    /// Returns the last good content of a config.
    pub fn good(&self, config: &ConfigName) -> Option<&Arc<VersionContent>> {
        self.good.get(config)
    }

    /// Returns the present problems, by config.
    pub fn problems(&self) -> &BTreeMap<ConfigName, Problem> {
        &self.problems
    }

    /// Returns the time since which each config's content is served.
    pub fn since(&self) -> &BTreeMap<ConfigName, OffsetDateTime> {
        &self.since
    }

    /// Takes in readings of a source. Good configs that are not among them stay as they are.
    pub fn apply(&mut self, readings: Vec<Reading>, now: OffsetDateTime) -> Applied {
        let mut faults: BTreeMap<ConfigName, Option<SourceFault>> = BTreeMap::new();
        let mut candidates = Vec::new();
        for Reading { config, result } in readings {
            faults.insert(config.clone(), result.as_ref().err().cloned());
            let is_new = |content: &Arc<VersionContent>| self.good.get(&config).is_none_or(|good| good != content);
            candidates.extend(result.ok().filter(is_new).map(|content| (config, content)));
        }

        let mut applied = Applied::default();
        if !candidates.is_empty() {
            for (config, error) in self.adopt(&candidates, now, &mut applied) {
                let reason = ProblemReason::TooLarge;
                faults.insert(config, Some(SourceFault { reason, message: error.to_string() }));
            }
        }
        // A config that was never good and is gone has no problem any more, unless it is in the given order.
        let Self { order, good, problems, .. } = self;
        let is_ordered = |config: &ConfigName| order.as_ref().is_some_and(|order| order.contains(config));
        let gone = problems.extract_if(.., |config, _| {
            !faults.contains_key(config) && !good.contains_key(config) && !is_ordered(config)
        });
        applied.cleared.extend(gone.map(|(config, _)| config));
        for (config, fault) in faults {
            self.set_problem(config, fault, now, &mut applied);
        }
        applied
    }

    /// Returns the dictionary that there would be with these contents.
    pub fn preview(&self, contents: &[Arc<VersionContent>]) -> Result<Dictionary, TooLarge> {
        self.merged_with(&by_config(contents))
    }

    /// Returns the last good contents with these in place of theirs, in the order of merging.
    pub fn contents_with(&self, contents: &[Arc<VersionContent>]) -> Vec<Arc<VersionContent>> {
        self.ordered_with(&by_config(contents))
    }

    /// Adopts all candidates if the dictionary with them is within its bounds, otherwise one by one each candidate that
    /// fits. Returns the refused candidates.
    fn adopt(
        &mut self,
        candidates: &[(ConfigName, Arc<VersionContent>)],
        now: OffsetDateTime,
        applied: &mut Applied,
    ) -> Vec<(ConfigName, TooLarge)> {
        match self.merged_with(candidates) {
            Ok(dictionary) => {
                for (config, content) in candidates {
                    self.good.insert(config.clone(), Arc::clone(content));
                    self.since.insert(config.clone(), now);
                }
                let dictionary = Arc::new(dictionary);
                self.dictionary = Some(Arc::clone(&dictionary));
                applied.dictionary = Some(dictionary);
                Vec::new()
            }
            Err(error) => match candidates {
                [(config, _)] => vec![(config.clone(), error)],
                _ => candidates.chunks(1).flat_map(|candidate| self.adopt(candidate, now, applied)).collect(),
            },
        }
    }

    fn merged_with(&self, candidates: &[(ConfigName, Arc<VersionContent>)]) -> Result<Dictionary, TooLarge> {
        Dictionary::merge(&self.ordered_with(candidates), &self.etags)
    }

    fn ordered_with(&self, candidates: &[(ConfigName, Arc<VersionContent>)]) -> Vec<Arc<VersionContent>> {
        let mut contents = self.good.clone();
        contents.extend(candidates.iter().cloned());
        match &self.order {
            None => contents.into_values().collect(),
            Some(order) => order.iter().filter_map(|config| contents.remove(config)).collect(),
        }
    }

    fn set_problem(
        &mut self,
        config: ConfigName,
        fault: Option<SourceFault>,
        now: OffsetDateTime,
        applied: &mut Applied,
    ) {
        let Some(SourceFault { reason, message }) = fault else {
            if self.problems.remove(&config).is_some() {
                applied.cleared.push(config);
            }
            return;
        };
        let before = self.problems.get(&config);
        if before.is_some_and(|problem| problem.reason == reason && problem.message == message) {
            return;
        }
        let since = before.filter(|problem| problem.reason == reason).map_or(now, |problem| problem.since);
        let problem = Problem { reason, message, since };
        self.problems.insert(config.clone(), problem.clone());
        applied.raised.push((config, problem));
    }
}

fn by_config(contents: &[Arc<VersionContent>]) -> Vec<(ConfigName, Arc<VersionContent>)> {
    contents.iter().map(|content| (content.config().clone(), Arc::clone(content))).collect()
}

#[cfg(test)]
mod tests {
    use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
    use nudge_protocol::{Key, VersionName};
    use time::Duration;

    use super::*;
    use crate::content::Value;

    const START: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn name(config: &str) -> ConfigName {
        ConfigName::new(config).unwrap()
    }

    fn good_reading(config: &str, version: &str, value: &[u8]) -> Reading {
        let values = BTreeMap::from([(Key::new(&format!("{config}-key")).unwrap(), Value::from(value))]);
        let content = VersionContent::new(name(config), VersionName::new(version).unwrap(), values);
        Reading { config: name(config), result: Ok(Arc::new(content)) }
    }

    fn bad_reading(config: &str, message: &str) -> Reading {
        let fault = SourceFault { reason: ProblemReason::VersionMissing, message: message.to_owned() };
        Reading { config: name(config), result: Err(fault) }
    }

    fn store() -> Store {
        Store::new(None, EtagKey::new(b""))
    }

    #[test]
    fn a_fault_leaves_the_good_content_and_is_raised_once() {
        let mut store = store();
        store.apply(vec![good_reading("a", "1", b"x")], START);
        let before = store.dictionary().unwrap().etag().to_owned();

        let applied = store.apply(vec![bad_reading("a", "gone")], START + Duration::SECOND);
        assert!(applied.dictionary.is_none());
        assert_eq!(applied.raised.len(), 1);
        assert_eq!(store.dictionary().unwrap().etag(), before);

        let again = store.apply(vec![bad_reading("a", "gone")], START + Duration::MINUTE);
        assert!(again.raised.is_empty());
        let other = store.apply(vec![bad_reading("a", "gone for good")], START + Duration::MINUTE);
        assert_eq!(other.raised[0].1.since, START + Duration::SECOND, "the reason is the same as before");

        let back = store.apply(vec![good_reading("a", "1", b"x")], START + Duration::HOUR);
        assert_eq!(back.cleared, [name("a")]);
        assert!(back.dictionary.is_none(), "the content is what it was");
    }

    #[test]
    fn one_config_that_makes_the_dictionary_too_large_does_not_hold_up_another() {
        let mut store = store();
        store.apply(vec![good_reading("a", "1", b"x"), good_reading("b", "1", b"x")], START);
        let huge = vec![b'x'; MAX_DICTIONARY_BYTES];
        let applied = store.apply(vec![good_reading("a", "2", &huge), good_reading("b", "2", b"y")], START);
        let versions: Vec<&str> =
            applied.dictionary.as_ref().unwrap().configs().iter().map(|view| view.version.as_str()).collect();
        assert_eq!(versions, ["1", "2"]);
        assert_eq!(store.problems()[&name("a")].reason, ProblemReason::TooLarge);
        assert!(!store.problems().contains_key(&name("b")));
    }

    #[test]
    fn the_same_content_under_another_version_is_a_change() {
        let mut store = store();
        store.apply(vec![good_reading("a", "1", b"x")], START);
        assert!(store.apply(vec![good_reading("a", "2", b"x")], START).dictionary.is_some());
        assert!(store.apply(vec![good_reading("a", "2", b"x")], START).dictionary.is_none());
    }

    #[test]
    fn a_config_that_was_never_good_and_is_gone_leaves_no_problem() {
        let mut store = store();
        store.apply(vec![good_reading("a", "1", b"x"), bad_reading("b", "not yet")], START);
        assert_eq!(store.problems().len(), 1);
        let applied = store.apply(vec![good_reading("a", "1", b"x")], START);
        assert_eq!((applied.cleared, store.problems().len()), (vec![name("b")], 0));
    }

    #[test]
    fn the_given_order_decides_who_wins() {
        let order = Some(vec![name("b"), name("a")]);
        let mut store = Store::new(order, EtagKey::new(b""));
        let applied = store.apply(vec![good_reading("a", "1", b"x"), good_reading("b", "1", b"x")], START);
        assert_eq!(applied.dictionary.unwrap().value("nudge.configs").unwrap(), &b"b=1,a=1"[..]);
    }
}
