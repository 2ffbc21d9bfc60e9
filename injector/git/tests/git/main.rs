//! Files of repositories on real servers: git-http-backend behind nginx, and sshd.

mod https;
mod repository;
mod web;
