//! The text of a config's objects, which pods should get while `spec.version` is absent: the version of the text, the
//! earliest time of the move to it, who reads the objects themselves, and when an edit is refused
//! or gives way.

mod direct_readers;
mod edit_refusal;
mod object_events;
mod object_text;
mod text_order;
mod text_record;
mod text_version;
mod text_writes;
mod unsettled_text;
mod write_back;

pub use direct_readers::{DirectReader, direct_readers, record_readers};
pub use edit_refusal::{TextEdit, edit_refusal};
pub use object_events::{event_workloads, object_events};
pub use object_text::{ReadText, read_object};
pub use text_order::{BEGINNING_INTERVAL, NeighbourConfig, text_to_go_first};
pub use text_record::{forget_text, record_text};
pub use text_version::{FirstVersion, TEXT_DEBOUNCE, TextRequest};
pub use text_writes::TextWrites;
pub use unsettled_text::pace_gate;
pub use write_back::{WriteBack, WriteBackCause};
