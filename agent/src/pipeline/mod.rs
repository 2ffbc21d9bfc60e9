//! The path of contents from a source to the endpoint, the files and the subscribers, in that order; and the reports to
//! the hub.

mod delivery;
mod dir;
mod hub;
mod in_place;
mod intake;
mod last_good_keeper;
mod next_attempt;
mod report;
mod unfit_contents;

pub use delivery::{Delivery, Outlets};
pub use dir::DirPipeline;
pub use hub::HubPipeline;
pub use in_place::InPlace;
pub use intake::IntakeParts;
