//! The `dir` source: every way to switch a version is noticed, and no faulty content replaces good content.

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
