//! `nudge-agent exec` as the parent of a command, and the commands that read the endpoint from inside.

mod background;
mod child;
mod exit_status;
mod foreground;
mod help;
mod inside;
mod scene;
mod signals;
mod terminal;
