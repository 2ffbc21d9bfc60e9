//! The text of a config's objects, which is what pods should get while `spec.version` is absent: the version that it
//! is, and when the move to it may begin.

mod pace;
mod reading;
mod record;
mod version;

pub use pace::withheld_by_pace;
pub use reading::{ReadText, read_object};
pub use record::{forget_text, record_text};
pub use version::{TEXT_DEBOUNCE, TextRequest};
