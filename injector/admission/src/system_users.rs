//! The users of Kubernetes itself whose requests must always pass.

use k8s_openapi::api::authentication::v1::UserInfo;

/// The controller that empties a namespace that is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";
/// The controller that deletes the dependents of a deleted object.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// Returns whether the user empties terminating namespaces. Such requests must pass in spite of all rules.
pub fn empties_namespace(user: &UserInfo) -> bool {
    user.username.as_deref().is_some_and(is_namespace_controller)
}

/// Returns whether the user deletes objects together with their owners.
pub(super) fn collects_garbage(user: &UserInfo) -> bool {
    user.username.as_deref() == Some(GARBAGE_COLLECTOR)
}

/// Returns whether the user is the controller that empties namespaces.
pub(super) fn is_namespace_controller(username: &str) -> bool {
    username == NAMESPACE_CONTROLLER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namesake_in_another_namespace_does_not_count() {
        let user = |name: &str| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() };
        assert!(empties_namespace(&user(NAMESPACE_CONTROLLER)));
        assert!(!empties_namespace(&user("system:serviceaccount:default:namespace-controller")));
        assert!(!empties_namespace(&UserInfo::default()));
    }
}
