//! The `dir` source: every way to switch a version is seen, and nothing that is wrong replaces what was good.

mod check_command;
mod current;
mod editing;
mod folders;
mod modes;
mod reread;
mod scene;
mod switching;
mod use_command;
mod values;
mod versions;
