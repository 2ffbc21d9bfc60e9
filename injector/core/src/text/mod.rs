//! The text of a config's objects, which pods should get while `spec.version` is absent: the version of the text, the
//! earliest time of the move to it, who reads the objects themselves, and when an edit is refused
//! or gives way.

mod edit_refusal;
mod object_events;
mod pace;
mod readers;
mod reading;
mod record;
mod version;
mod write_back;

pub use edit_refusal::{TextEdit, edit_refusal};
pub use object_events::{event_workloads, object_events};
pub use pace::withheld_by_pace;
pub use readers::{DirectReader, direct_readers, record_readers};
pub use reading::{ReadText, read_object};
pub use record::{forget_text, record_text};
pub use version::{FirstVersion, TEXT_DEBOUNCE, TextRequest};
pub use write_back::{WriteBack, WriteBackCause};
