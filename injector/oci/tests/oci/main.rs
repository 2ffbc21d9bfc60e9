//! The client against Debian's registry, and against servers that attack it.

mod access;
mod artifacts;
mod asking;
mod attacks;
mod certificate;
mod images;
mod plain;
mod reach;
mod registry;
mod stand_in;
mod tokens;
