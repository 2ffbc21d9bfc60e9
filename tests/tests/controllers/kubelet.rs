//! The stand-in for a kubelet that runs the pods of real controllers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use nudge_tests::cluster::TestNamespace;
use tokio::task::JoinHandle;

/// Runs pods as a kubelet would, for as long as the value lives.
pub(crate) struct Kubelet(pub(crate) JoinHandle<()>);

impl Kubelet {
    /// Runs those that work.
    pub(crate) fn start(space: &TestNamespace, works: impl Fn(&Pod) -> bool + Send + 'static) -> Self {
        let space = space.clone();
        Self(tokio::spawn(async move {
            let mut turns = tokio::time::interval(Duration::from_millis(100));
            loop {
                turns.tick().await;
                let Ok(pods) = space.api::<Pod>().list(&ListParams::default()).await else { continue };
                for pod in pods.items {
                    let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
                    if !runs && works(&pod) {
                        // It may be gone by now.
                        let _ = space.run(&pod).await;
                    }
                }
            }
        }))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}
