//! The text of a config's objects, which pods should get while `spec.version` is absent: the version of the text, and
//! the earliest time of the move to it.

mod pace;
mod reading;
mod record;
mod version;

pub use pace::withheld_by_pace;
pub use reading::{ReadText, read_object};
pub use record::{forget_text, record_text};
pub use version::{FirstVersion, TEXT_DEBOUNCE, TextRequest};
