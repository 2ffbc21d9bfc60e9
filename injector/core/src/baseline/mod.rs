//! Existing ConfigMaps and Secrets that become configs by themselves, and what may be one.

mod existing_objects;
mod secret_type;

pub(crate) use existing_objects::{BUNDLES, RESERVED};
pub use existing_objects::{
    BaselineLabel, BaselineNamespace, BaselineObject, BaselineVerdict, FIRST_VERSION, MAX_NAMESPACE_CONFIGS,
    NAMESPACE_FULL, NamespaceBaseline, SECRETS_NOT_MADE, baseline_refusal, baseline_verdict, first_config, is_adopted,
    is_of_namespace, is_untouched,
};
pub(crate) use secret_type::OPAQUE;
pub use secret_type::is_configuration;
