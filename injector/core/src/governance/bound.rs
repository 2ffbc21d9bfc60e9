//! The maximum of decisions that are kept of one config and of one user, so that those who may approve one config leave room for the others of its
//! namespace.

/// The maximum of decisions about the versions of one config.
const OF_CONFIG: usize = 128;
/// The maximum of these decisions by one user.
const OF_USER: usize = 16;

/// The reason why there is no room for another decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The user has made too many decisions.
    #[error(
        "you have {OF_USER} VersionApprovals of config {config}, and a user may not have more; delete those that are not \
         needed any more, such as {oldest} (kubectl delete versionapproval {oldest})"
    )]
    User {
        /// The config.
        config: String,
        /// The first decision of the user.
        oldest: String,
    },
    /// All users together have made too many decisions.
    #[error(
        "config {config} has {OF_CONFIG} VersionApprovals, and a config may not have more; their users, or one with the right to override \
         VersionedConfig {config}, must delete those not needed any more, such as {oldest}"
    )]
    Config {
        /// The config.
        config: String,
        /// The first decision.
        oldest: String,
    },
}

/// A decision that exists already.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Made<'a> {
    /// The time of the decision, in seconds.
    pub at: i64,
    /// The name of the decision's object.
    pub name: &'a str,
    /// The user who decided.
    pub user: &'a str,
}

/// Returns whether the user may decide once more about versions of the config, of which these decisions are known.
pub fn check_room(config: &str, user: &str, made: &[Made<'_>]) -> Result<(), NoRoom> {
    let oldest = |all: &[&Made<'_>]| all.iter().min().map(|made| made.name.to_owned()).unwrap_or_default();
    let own: Vec<&Made<'_>> = made.iter().filter(|made| made.user == user).collect();
    let config = config.to_owned();
    if own.len() >= OF_USER {
        return Err(NoRoom::User { config, oldest: oldest(&own) });
    }
    if made.len() >= OF_CONFIG {
        return Err(NoRoom::Config { config, oldest: oldest(&made.iter().collect::<Vec<_>>()) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(users: &'a [String], names: &'a [String]) -> Vec<Made<'a>> {
        let made = users.iter().zip(names).zip((0..1_000).rev());
        made.map(|((user, name), at)| Made { at, name, user }).collect()
    }

    #[test]
    fn a_user_has_so_many_and_leaves_room_for_others() {
        let names: Vec<String> = (0..OF_USER).map(|at| format!("one-{at}")).collect();
        let users = vec!["bob".to_owned(); OF_USER];
        let made = all(&users, &names);
        assert_eq!(check_room("shop", "bob", &made[1..]), Ok(()));
        let full = check_room("shop", "bob", &made).unwrap_err().to_string();
        assert_eq!(
            full,
            "you have 16 VersionApprovals of config shop, and a user may not have more; delete those that are not \
             needed any more, such as one-15 (kubectl delete versionapproval one-15)"
        );
        assert_eq!(check_room("shop", "carol", &made), Ok(()));
    }

    #[test]
    fn a_config_has_so_many_by_all_users() {
        let names: Vec<String> = (0..OF_CONFIG).map(|at| format!("one-{at}")).collect();
        let users: Vec<String> = (0..OF_CONFIG).map(|at| format!("user-{}", at / OF_USER)).collect();
        let made = all(&users, &names);
        assert_eq!(check_room("shop", "carol", &made[1..]), Ok(()));
        let full = check_room("shop", "carol", &made).unwrap_err();
        assert_eq!(full, NoRoom::Config { config: "shop".to_owned(), oldest: "one-127".to_owned() });
        assert!(full.to_string().contains("with the right to override VersionedConfig shop"), "{full}");
    }
}
