//! Unchanged software under the agent: each recipe of `examples/cookbook` takes twenty versions while its clients work.
//!
//! `cargo test --workspace --test cookbook -- --nocapture` prints the rows of the table in
//! `examples/cookbook/README.md`.

mod apache;
mod gunicorn;
mod haproxy;
mod http;
mod jvm;
mod load;
mod measure;
mod mosquitto;
mod nginx;
mod pgbouncer;
mod php_fpm;
mod postgresql;
mod prometheus;
mod psql;
mod recipe;
mod rsyslog;
mod rules;
mod runtimes;
mod sign;
mod sshd;
mod systemd;
mod unbound;
mod wrong;
