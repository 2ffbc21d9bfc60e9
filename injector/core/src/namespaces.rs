//! Which namespaces are enabled: the rule that the webhooks' `namespaceSelector` has for the API server.

use std::collections::{BTreeMap, BTreeSet};

use nudge_protocol::labels;

/// The namespaces of Kubernetes, which are enabled by their label alone.
const SYSTEM: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// The rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamespaceRule {
    /// Namespaces with the label are enabled.
    #[default]
    Labelled,
    /// The namespaces are enabled except these, and those whose label is `false`.
    AllBut(BTreeSet<String>),
}

impl NamespaceRule {
    /// Returns the filter for all namespaces except those of Kubernetes, that of Nudge itself, and those whose label is `false`.
    pub fn all_but(own: &str) -> Self {
        Self::AllBut(SYSTEM.into_iter().chain([own]).map(str::to_owned).collect())
    }

    /// The label selector of the namespaces that can be enabled.
    pub fn selector(&self) -> &'static str {
        match self {
            Self::Labelled => "nudge.dev/enabled=true",
            // Also matches those without the label.
            Self::AllBut(_) => "nudge.dev/enabled!=false",
        }
    }

    /// Returns whether the namespace with these labels is enabled.
    pub fn holds(&self, namespace: &str, all: Option<&BTreeMap<String, String>>) -> bool {
        let label = all.and_then(|all| all.get(labels::ENABLED)).map(String::as_str);
        let selected = match self {
            Self::Labelled => label == Some("true"),
            Self::AllBut(_) => label != Some("false"),
        };
        selected && self.takes(namespace)
    }

    /// Returns whether a namespace that the selector matches is enabled. By its name and not the label kubernetes.io/metadata.name, which servers
    /// before 1.21 do not set.
    pub fn takes(&self, namespace: &str) -> bool {
        match self {
            Self::Labelled => true,
            Self::AllBut(names) => !names.contains(namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_and_nudge_itself_are_never_enabled_together_with_all_others() {
        let all = NamespaceRule::all_but("nudge-here");
        for name in ["kube-system", "kube-public", "kube-node-lease", "nudge-here"] {
            assert!(!all.takes(name), "{name}");
        }
        assert!(all.takes("shop") && all.takes("default") && all.takes("nudge-system"));
        assert_ne!(all.selector(), NamespaceRule::Labelled.selector());
        let labelled = |value: &str| BTreeMap::from([(labels::ENABLED.to_owned(), value.to_owned())]);
        let holds = |rule: &NamespaceRule, namespace: &str, label: Option<&str>| {
            rule.holds(namespace, label.map(labelled).as_ref())
        };
        assert!(holds(&all, "shop", None) && holds(&all, "shop", Some("x")) && !holds(&all, "shop", Some("false")));
        assert!(!holds(&all, "kube-system", Some("true")) && holds(&NamespaceRule::Labelled, "shop", Some("true")));
        assert!(
            !holds(&NamespaceRule::Labelled, "shop", None) && !holds(&NamespaceRule::Labelled, "shop", Some("True"))
        );
        // Somebody has labelled it by hand.
        assert!(NamespaceRule::Labelled.takes("kube-system"));
    }
}
