//! From a source to the endpoint, the files and the subscribers, in that order; and the reports to the hub.

mod delivery;
mod dir;
mod hub;
mod in_place;
mod intake;
mod keeper;
mod report;
mod unfit;

pub use delivery::{Delivery, Outlets};
pub use dir::Pipeline;
pub use hub::{HubParts, HubPipeline};
pub use in_place::{InPlace, InPlaceSettings};
