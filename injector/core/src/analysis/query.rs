//! The text of a query for certain pods.

/// The maximum number of pods that a query names.
pub const MAX_PODS: usize = 100;
/// The maximum size of all names of pods in a query.
const MAX_NAMES_BYTES: usize = 8192;

/// Returns the names of these pods. If there are too many, returns a sample: the pods with the lowest numbers. Each pod
/// has a random number that never changes, so the sample changes as little as the pods do.
pub fn sample_pods<'a>(pods: impl Iterator<Item = (u32, &'a str)>) -> Vec<String> {
    let mut pods: Vec<(u32, &str)> = pods.collect();
    pods.sort_unstable();
    let mut bytes = 0;
    let fits_query = |name: &&str| {
        bytes = name.len().saturating_add(1).saturating_add(bytes);
        bytes <= MAX_NAMES_BYTES
    };
    let mut names: Vec<String> =
        pods.iter().map(|(_, name)| *name).take(MAX_PODS).take_while(fits_query).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Returns the query with the namespace and the names of pods in place of their placeholders. A dot is written as a
/// character class, which needs no escape in any kind of string; names of pods have no other character with a meaning
/// in regular expressions.
pub fn fill_query(query: &str, namespace: &str, pods: &[String]) -> String {
    let safe = |name: &&String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    let names: Vec<String> = pods.iter().filter(safe).map(|name| name.replace('.', "[.]")).collect();
    query.replace("{{namespace}}", namespace).replace("{{pods}}", &names.join("|"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_and_their_namespace_are_filled_in() {
        let pods = ["web-1".to_owned(), "db.a".to_owned(), "a\"}) or vector(0".to_owned()];
        let query = "sum(up{namespace=\"{{namespace}}\",pod=~\"{{pods}}\"}) / count(up{pod=~'{{pods}}'})";
        let filled = "sum(up{namespace=\"team\",pod=~\"web-1|db[.]a\"}) / count(up{pod=~'web-1|db[.]a'})";
        assert_eq!(fill_query(query, "team", &pods), filled);
    }

    #[test]
    fn of_many_pods_a_sample_stays_as_others_come_and_go() {
        let names: Vec<String> = (0..1000).map(|number| format!("web-{number:04}")).collect();
        let pods = |from: usize| (from..1000).map(|at| (u32::try_from(at * 7919 % 1000).unwrap(), names[at].as_str()));
        let all = sample_pods(pods(0));
        assert_eq!((all.len(), all.is_sorted()), (MAX_PODS, true));
        let fewer = sample_pods(pods(100));
        assert!(fewer.iter().filter(|name| all.contains(name)).count() >= 85, "as many as are left of them");
        // Long names: as many as fit.
        let long: Vec<String> = (0..100).map(|number| format!("{number:0250}")).collect();
        assert_eq!(sample_pods(long.iter().map(|name| (1, name.as_str()))).len(), 8192 / 251);
    }

    proptest! {
        #[test]
        fn the_names_match_themselves_and_nothing_else(names in proptest::collection::vec("[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", 1..5), other in "[-a-z0-9.]{1,10}") {
            let filled = fill_query("{{pods}}", "ns", &names);
            let matches = |name: &str| filled.split('|').any(|one| one.replace("[.]", ".") == name);
            for name in &names {
                prop_assert!(matches(name));
            }
            prop_assert_eq!(matches(&other), names.contains(&other));
            let plain = filled.chars().all(|it| it.is_ascii_alphanumeric() || "-.[]|".contains(it));
            prop_assert!(plain, "{}", filled);
        }
    }
}
