//! What the integration tests and the benchmarks share: an agent under a guard, folders of configuration to switch, a
//! client that trusts one certificate, a Kubernetes API server, and readings from `/proc`.

pub mod access;
pub mod affinity;
pub mod agent;
pub mod balancer;
pub mod binary;
pub mod cgroup;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config_dir;
pub mod eventually;
pub mod fake_hub;
pub mod finished;
pub mod hook_server;
pub mod hub;
pub mod hub_tls;
pub mod installation;
pub mod kubelet;
pub mod pod;
pub mod process;
pub mod procfs;
pub mod raw;
pub mod scene;
pub mod standard_webhooks;
pub mod standin;
pub mod subscriber;
pub mod tls;
pub mod tools;

pub use access::Access;
pub use agent::{Agent, ExecCommand};
pub use balancer::Balancer;
pub use client::{Client, Reply};
pub use cluster::Cluster;
pub use config_dir::ConfigDir;
pub use eventually::{eventually, eventually_blocking};
pub use fake_hub::FakeHub;
pub use finished::Finished;
pub use hook_server::{Answer, Delivery, HookServer};
pub use installation::{Installation, Replica, ReplicaOptions};
pub use kubelet::Kubelet;
pub use pod::Pod;
pub use process::Process;
pub use raw::Raw;
pub use scene::Scene;
pub use subscriber::subscriber;
