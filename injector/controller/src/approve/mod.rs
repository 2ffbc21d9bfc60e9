//! Approvals of versions: whose approvals count, by what admission has signed and what the API server says of the users' rights.

mod counted;
mod rights;
