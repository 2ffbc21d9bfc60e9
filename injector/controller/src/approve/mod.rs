//! Approvals of versions. Which ones count depends on admission's signatures, and on the API server's answers about
//! users' rights.

mod counted_approvals;
mod rights_review;
