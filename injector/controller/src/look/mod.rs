//! One look at one config: `begin` begins it, `inputs` observes, `decide` writes what `nudge-core` decides by that, conditions among it, and then
//! the version is published and old ones are deleted.

mod again;
mod baseline;
mod begin;
mod brake;
#[cfg(test)]
mod brake_tests;
mod decide;
mod inputs;
#[cfg(test)]
mod look_tests;
mod neighbours;
mod nodes;
mod objects;
#[cfg(test)]
mod reconcile_tests;
#[cfg(test)]
mod side_calls_tests;
mod validate;
#[cfg(test)]
mod validate_tests;

pub(crate) use again::Again;
