//! Helpers of the integration tests and the benchmarks.
//!
//! The tests know the programs from the outside alone: by the documentation of `nudge-protocol` and `nudge-api`.

pub mod affinity;
pub mod agent;
pub mod binary;
pub mod cgroup;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod eventually;
pub mod fakes;
pub mod kubelet;
pub mod log;
pub mod policies;
pub mod ports;
pub mod process;
pub mod procfs;
pub mod python;
pub mod servers;
pub mod tools;

pub use agent::access::Access;
pub use agent::client::{Client, Reply};
pub use agent::config_dir::ConfigDir;
pub use agent::raw::Raw;
pub use agent::under_test::AgentUnderTest;
pub use agent::{Agent, ExecCommand};
pub use cluster::Cluster;
pub use cluster::installation::Installation;
pub use cluster::pair::Pair;
pub use cluster::replica::{Apart, ApartTwice, Replica, ReplicaOptions};
pub use commands::finished::Finished;
pub use commands::helm::Helm;
pub use commands::terminal::Terminal;
pub use eventually::{eventually, eventually_blocking};
pub use fakes::balancer::Balancer;
pub use fakes::fake_hub::FakeHub;
pub use fakes::hook_server::{Answer, Delivery, HookServer};
pub use kubelet::Kubelet;
pub use kubelet::pod::Pod;
pub use kubelet::subscriber::{serving, subscriber};
pub use process::Process;
