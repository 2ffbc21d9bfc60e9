//! Commands as users run them: to their end, on a terminal, and in the transcripts of pages.

pub mod finished;
pub mod helm;
pub mod recording;
pub mod terminal;
pub mod transcript;
