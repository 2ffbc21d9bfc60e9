//! Requests that no guard may stand in the way of.

use k8s_openapi::api::authentication::v1::UserInfo;

/// The controller that empties a namespace that is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// Whether the request empties a namespace: it must pass, whatever the rules say.
pub fn empties_namespace(user: &UserInfo) -> bool {
    user.username.as_deref() == Some(NAMESPACE_CONTROLLER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namesake_in_another_namespace_is_nobody() {
        let user = |name: &str| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() };
        assert!(empties_namespace(&user(NAMESPACE_CONTROLLER)));
        assert!(!empties_namespace(&user("system:serviceaccount:default:namespace-controller")));
        assert!(!empties_namespace(&UserInfo::default()));
    }
}
