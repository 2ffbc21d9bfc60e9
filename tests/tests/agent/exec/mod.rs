//! `nudge-agent exec` as the parent of a command, and the commands that read the endpoint from inside.

mod background;
mod child;
mod exec_command;
mod exit_status;
mod foreground;
mod help;
mod inside;
mod signals;
mod terminal;
