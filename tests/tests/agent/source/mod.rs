//! The `dir` source: every way to switch a version is seen, and nothing that is wrong replaces what was good.

mod check_command;
mod current;
mod editing;
mod folders;
mod idle_agent;
mod modes;
mod reread;
mod switching;
mod use_command;
mod values;
mod versions;
