//! The cluster and the way to it, as kubectl finds them.
//!
//! - `kubeconfig`: the files, the context, and the pod's own account
//! - `proxy`: the proxy on the way
//! - `credentials`: the program that gives credentials

mod credentials;
mod kubeconfig;
mod proxy;

pub(crate) use kubeconfig::config;
