//! Metrics of the authority, and of the pods whose agents do not trust the serving certificate, or will lose their
//! trust within 180 days.

use nudge_certs::Certificates;
use nudge_cluster::index::Index;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::config_metrics::Label;

/// The metrics of the authority.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustMetrics {
    expiry: Gauge,
    pods: Family<Label, Gauge>,
}

impl TrustMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Expiry of the authority that signed the serving certificate, in seconds since 1970";
        registry.register("authority_expiry_timestamp_seconds", help, self.expiry.clone());
        let help = "Injected pods that must be created again, because their agents trust no authority of the serving certificate \
                    (lost), or will not within 180 days (ending)";
        registry.register("pods_by_trust", help, self.pods.clone());
    }

    pub(super) fn update(&self, certificates: &Certificates, index: &Index) {
        let Some(trust) = certificates.trust() else { return };
        self.expiry.set(trust.authority_expires.unix_timestamp());
        let (mut lost, mut ending) = (0, 0);
        if let Some(trusting) = trust.pods {
            for pod in index.pods().iter().filter(|pod| !pod.is_finished()) {
                if pod.created < Some(trusting.since.unix_timestamp()) {
                    lost += 1;
                } else if pod.created < Some(trusting.lasting_since.unix_timestamp()) {
                    ending += 1;
                }
            }
        }
        for (trust, count) in [("lost", lost), ("ending", ending)] {
            self.pods.get_or_create(&[("trust", trust)]).set(count);
        }
    }
}
