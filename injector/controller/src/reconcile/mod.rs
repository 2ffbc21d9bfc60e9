//! One reconcile of one config: `reconcile_config` has its course, `inputs` observes, and `decide` writes the decision
//! that `nudge-core` makes from the inputs. Then the version is published, and old ones are deleted.

mod brake;
#[cfg(test)]
mod brake_tests;
#[cfg(test)]
mod cost_tests;
mod decide;
mod inputs;
mod neighbours;
mod next_reconcile;
mod nodes;
mod objects;
mod reconcile_config;
#[cfg(test)]
mod side_calls_tests;
#[cfg(test)]
mod status_tests;
mod validate;
#[cfg(test)]
mod validate_tests;

pub(crate) use next_reconcile::NextReconcile;
