//! The limits of the number of decisions about one config and by one user, so that the approvers of one config leave
//! room for the other configs of its namespace.

/// The maximum number of decisions about the versions of one config.
const MAX_PER_CONFIG: usize = 128;
/// The maximum number of decisions about the versions of one config by one user.
const MAX_PER_USER: usize = 16;

/// The reason why a user can't decide once more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyDecisions {
    /// The user has made too many decisions.
    #[error(
        "you have {MAX_PER_USER} VersionApprovals of config {config}, which is the limit; delete those that are not \
         needed any more, such as {oldest} (kubectl delete versionapproval {oldest})"
    )]
    User {
        /// The config that the decisions are about.
        config: String,
        /// The user's oldest `VersionApproval`, by its name.
        oldest: String,
    },
    /// All users together have made too many decisions.
    #[error(
        "config {config} has {MAX_PER_CONFIG} VersionApprovals, which is the limit; their users, or one with the \
         right to override VersionedConfig {config}, must delete some, such as {oldest}"
    )]
    Config {
        /// The config that the decisions are about.
        config: String,
        /// The oldest `VersionApproval`, by its name.
        oldest: String,
    },
}

/// A decision that exists already. Decisions are ordered by their time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PastDecision<'a> {
    /// The time of the decision, in seconds.
    pub at: i64,
    /// The name of the decision's object.
    pub name: &'a str,
    /// The user who decided.
    pub user: &'a str,
}

/// Checks that the user may decide once more about versions of the config, which has these decisions.
pub fn check_decision_count(config: &str, user: &str, decisions: &[PastDecision<'_>]) -> Result<(), TooManyDecisions> {
    let oldest = decisions.iter().filter(|decision| decision.user == user).min();
    let by_user = decisions.iter().filter(|decision| decision.user == user).count();
    let config = config.to_owned();
    if let Some(oldest) = oldest.filter(|_| by_user >= MAX_PER_USER) {
        return Err(TooManyDecisions::User { config, oldest: oldest.name.to_owned() });
    }
    if let Some(oldest) = decisions.iter().min().filter(|_| decisions.len() >= MAX_PER_CONFIG) {
        return Err(TooManyDecisions::Config { config, oldest: oldest.name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(users: &'a [String], names: &'a [String]) -> Vec<PastDecision<'a>> {
        let made = users.iter().zip(names).zip((0..1_000).rev());
        made.map(|((user, name), at)| PastDecision { at, name, user }).collect()
    }

    #[test]
    fn a_user_has_so_many_and_leaves_room_for_others() {
        let names: Vec<String> = (0..MAX_PER_USER).map(|at| format!("one-{at}")).collect();
        let users = vec!["bob".to_owned(); MAX_PER_USER];
        let made = all(&users, &names);
        assert_eq!(check_decision_count("shop", "bob", &made[1..]), Ok(()));
        let full = check_decision_count("shop", "bob", &made).unwrap_err().to_string();
        assert_eq!(
            full,
            "you have 16 VersionApprovals of config shop, which is the limit; delete those that are not needed any \
             more, such as one-15 (kubectl delete versionapproval one-15)"
        );
        assert_eq!(check_decision_count("shop", "carol", &made), Ok(()));
    }

    #[test]
    fn a_config_has_so_many_by_all_users() {
        let names: Vec<String> = (0..MAX_PER_CONFIG).map(|at| format!("one-{at}")).collect();
        let users: Vec<String> = (0..MAX_PER_CONFIG).map(|at| format!("user-{}", at / MAX_PER_USER)).collect();
        let made = all(&users, &names);
        assert_eq!(check_decision_count("shop", "carol", &made[1..]), Ok(()));
        let full = check_decision_count("shop", "carol", &made).unwrap_err();
        assert_eq!(full, TooManyDecisions::Config { config: "shop".to_owned(), oldest: "one-127".to_owned() });
        assert!(full.to_string().contains("with the right to override VersionedConfig shop"), "{full}");
    }
}
