//! The rule that enables namespaces. The `namespaceSelector` of the webhooks has the same rule for the API server.

use std::collections::{BTreeMap, BTreeSet};

use nudge_protocol::labels;

/// The namespaces of Kubernetes, which are enabled by their label alone.
const SYSTEM: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// The rule that enables namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamespaceRule {
    /// Namespaces with the label are enabled.
    #[default]
    Labelled,
    /// All namespaces are enabled except these, and those whose label is `false`.
    AllBut(BTreeSet<String>),
}

impl NamespaceRule {
    /// Returns the rule for all namespaces except those of Kubernetes, that of Nudge itself, and those whose label is
    /// `false`.
    pub fn all_but(nudge_namespace: &str) -> Self {
        Self::AllBut(SYSTEM.into_iter().chain([nudge_namespace]).map(str::to_owned).collect())
    }

    /// Returns the label selector of the namespaces that can be enabled.
    pub fn selector(&self) -> &'static str {
        match self {
            Self::Labelled => "nudge.dev/enabled=true",
            // The selector also matches namespaces without the label.
            Self::AllBut(_) => "nudge.dev/enabled!=false",
        }
    }

    /// Returns whether the namespace with these labels is enabled.
    pub fn is_enabled(&self, namespace: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        let label = labels.and_then(|labels| labels.get(labels::ENABLED)).map(String::as_str);
        let is_selected = match self {
            Self::Labelled => label == Some("true"),
            Self::AllBut(_) => label != Some("false"),
        };
        is_selected && self.allows_name(namespace)
    }

    /// Returns whether a namespace that the selector matches is enabled, by its name: API servers before 1.21 do not
    /// set the label kubernetes.io/metadata.name.
    pub fn allows_name(&self, namespace: &str) -> bool {
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
            assert!(!all.allows_name(name), "{name}");
        }
        assert!(all.allows_name("shop") && all.allows_name("default") && all.allows_name("nudge-system"));
        assert_ne!(all.selector(), NamespaceRule::Labelled.selector());
        let labelled = |value: &str| BTreeMap::from([(labels::ENABLED.to_owned(), value.to_owned())]);
        let holds = |rule: &NamespaceRule, namespace: &str, label: Option<&str>| {
            rule.is_enabled(namespace, label.map(labelled).as_ref())
        };
        assert!(holds(&all, "shop", None) && holds(&all, "shop", Some("x")) && !holds(&all, "shop", Some("false")));
        assert!(!holds(&all, "kube-system", Some("true")) && holds(&NamespaceRule::Labelled, "shop", Some("true")));
        assert!(
            !holds(&NamespaceRule::Labelled, "shop", None) && !holds(&NamespaceRule::Labelled, "shop", Some("True"))
        );
        // Somebody has labelled it by hand.
        assert!(NamespaceRule::Labelled.allows_name("kube-system"));
    }
}
