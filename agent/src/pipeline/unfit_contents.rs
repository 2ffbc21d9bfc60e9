//! Finds the contents that a pod can't take. Does no I/O.

use std::sync::Arc;

use nudge_protocol::ConfigName;

use crate::content::VersionContent;
use crate::source::SourceFault;

/// Returns the contents that do not pass the check. If all pass it together, there are none. Otherwise each is checked
/// together with the ones before it that pass.
pub(super) fn find_unfit(
    contents: &[Arc<VersionContent>],
    check: impl Fn(&[Arc<VersionContent>]) -> Result<(), SourceFault>,
) -> Vec<(ConfigName, SourceFault)> {
    let (mut passed, mut unfit) = (Vec::new(), Vec::new());
    if contents.is_empty() || check(contents).is_ok() {
        return unfit;
    }
    for content in contents {
        passed.push(Arc::clone(content));
        if let Err(fault) = check(&passed) {
            passed.pop();
            unfit.push((content.config().clone(), fault));
        }
    }
    unfit
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nudge_protocol::VersionName;
    use nudge_protocol::status::ProblemReason;

    use super::*;

    fn content(config: &str) -> Arc<VersionContent> {
        let (config, version) = (ConfigName::new(config).unwrap(), VersionName::new("1").unwrap());
        Arc::new(VersionContent::new(config, version, BTreeMap::new()))
    }

    #[test]
    fn a_content_that_does_not_pass_takes_no_other_with_it() {
        let check = |contents: &[Arc<VersionContent>]| {
            let bad = contents.iter().any(|content| content.config().as_str().starts_with("bad"));
            let fault = || SourceFault { reason: ProblemReason::Other, message: String::new() };
            if bad || contents.len() > 2 { Err(fault()) } else { Ok(()) }
        };
        for (held, expected) in [
            (&[][..], &[][..]),
            (&["a", "b"], &[]),
            (&["bad"], &["bad"]),
            (&["bad-a", "b"], &["bad-a"]),
            (&["a", "bad-b", "bad-c"], &["bad-b", "bad-c"]),
            (&["a", "b", "c"], &["c"]),
        ] {
            let contents: Vec<_> = held.iter().map(|config| content(config)).collect();
            let unfit = find_unfit(&contents, check).into_iter().map(|(config, _)| config.to_string());
            assert_eq!(unfit.collect::<Vec<_>>(), expected, "{held:?}");
        }
    }
}
