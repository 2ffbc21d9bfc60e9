//! Real servers that sources ask, run by the tests.

pub mod giftless;
pub mod git_content;
pub mod git_repository;
pub mod git_server;
pub mod openbao;
pub mod registry;
