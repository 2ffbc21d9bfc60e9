//! Files of repositories on real servers: git-http-backend behind nginx, and sshd.

mod answers;
mod app;
mod bounds;
mod disk;
mod faults;
mod giftless;
mod https;
mod large;
mod lfs;
mod repository;
mod signatures;
mod slow;
mod ssh;
mod web;
