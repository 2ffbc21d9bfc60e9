//! The objects of a config's name that become parts of the config.

use nudge_api::PartKind;
use nudge_cluster::call::CallError;
use nudge_cluster::rights::may_make_secrets;
use nudge_core::baseline::{
    BaselineLabel, BaselineNamespace, BaselineObject, BaselineVerdict, NAMESPACE_FULL, NamespaceBaseline,
    SECRETS_NOT_MADE, baseline_verdict,
};
use nudge_core::keys::ConfigKey;
use nudge_protocol::labels;

use crate::controller::Controller;
use crate::publish::ObjectApi;

/// The verdicts about the objects of one name.
#[derive(Debug, Default)]
pub(super) struct ObjectVerdicts(Vec<(PartKind, BaselineVerdict)>);

impl ObjectVerdicts {
    /// Returns the kinds that become the config.
    pub(super) fn config_kinds(&self) -> Vec<PartKind> {
        self.0.iter().filter(|(_, verdict)| verdict.becomes_config()).map(|(kind, _)| *kind).collect()
    }

    /// Returns the label that wants the config; `None` if no label does.
    pub(super) fn label(&self) -> Option<BaselineLabel> {
        let has = |label| self.0.iter().any(|(_, verdict)| *verdict == BaselineVerdict::Config(label));
        let labels = [BaselineLabel::Object, BaselineLabel::Namespace];
        labels.into_iter().find(|label| has(*label))
    }

    /// Returns the objects that stay ordinary although a label wants them, and why.
    pub(super) fn ordinary(&self) -> impl Iterator<Item = (PartKind, &'static str)> {
        self.0.iter().filter_map(|(kind, verdict)| match verdict {
            BaselineVerdict::Ordinary(cause) => Some((*kind, *cause)),
            _ => None,
        })
    }

    /// Returns whether an object could become a config if it had a label, Nudge had a right, or its namespace had fewer
    /// configs.
    pub(super) fn may_change(&self) -> bool {
        let lacked = [
            BaselineVerdict::Unwanted,
            BaselineVerdict::Ordinary(SECRETS_NOT_MADE),
            BaselineVerdict::Ordinary(NAMESPACE_FULL),
        ];
        self.0.iter().any(|(_, verdict)| lacked.contains(verdict))
    }
}

impl Controller {
    pub(super) fn baseline_namespace(&self, namespace: &str) -> BaselineNamespace {
        let label = self.index.namespace_label(namespace, labels::BASELINE);
        BaselineNamespace {
            baseline: NamespaceBaseline::of(label.as_deref()),
            configs: self.index.count_configs(namespace),
        }
    }

    /// Reads the objects of these kinds, and decides whether each becomes the config of its name.
    pub(super) async fn object_verdicts(
        &self,
        key: &ConfigKey,
        kinds: &[PartKind],
        namespace: BaselineNamespace,
    ) -> Result<ObjectVerdicts, CallError> {
        let mut verdicts = ObjectVerdicts::default();
        for &kind in kinds {
            let is_secret = kind == PartKind::Secret;
            if is_secret && !self.index.may_read_secrets(&key.namespace) {
                continue;
            }
            let api = ObjectApi { client: &self.client, namespace: &key.namespace, kind };
            let Some(object) = api.read(key.name.as_str()).await? else { continue };
            let mut verdict = baseline_verdict(&BaselineObject::from(&object), namespace);
            if is_secret && verdict.becomes_config() && !may_make_secrets(&self.client, &key.namespace).await? {
                verdict = BaselineVerdict::Ordinary(SECRETS_NOT_MADE);
            }
            verdicts.0.push((kind, verdict));
        }
        Ok(verdicts)
    }
}
