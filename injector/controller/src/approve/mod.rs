//! Approvals of versions: which ones count, by what admission has signed and what the API server says of the users'
//! rights.

mod counted_approvals;
mod rights_review;
