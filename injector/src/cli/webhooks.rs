//! Starts the admission server with its webhooks, and reads the cluster's features for injection.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::{Client, Config};
use nudge_admission::{
    Accounts, AdmissionMetrics, AdmissionServer, AdmissionSettings, AnalysisWriters, ClientAuthority, KubeLookups,
    OnlyEnabled, ValidateAnalyses, ValidateTexts, Webhooks, guards,
};
use nudge_admission::{InjectPods, KubePodLookups, PodLookupState};
use nudge_certs::{Certificates, CertificatesError};
use nudge_cluster::features::{FeatureMetrics, keep_features};
use nudge_cluster::index::Index;
use nudge_core::derived_keys::{ContentKey, NoteKey};
use nudge_core::injection::{Features, InjectionSettings};
use nudge_core::namespaces::NamespaceRule;
use tokio::sync::watch;

use super::control_plane::{ControlPlane, bindable};
use super::serve_error::ServeError;
use crate::task_supervisor::{ShutdownStage, Stopping, wait_for_stop};

/// The interval between two reads of the authority for clients.
const CLIENT_CA_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The beginning of the user names of service accounts.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Starts the admission server and the reading of the features. The webhook of pods waits for the features.
pub(super) async fn start(
    plane: &mut ControlPlane,
    certificates: &Certificates,
    note_key: Arc<NoteKey>,
) -> Result<watch::Receiver<Option<Features>>, ServeError> {
    let ControlPlane { options, config, client, index, registry, tasks, content_key, .. } = plane;
    let (metrics, feature_metrics) = (AdmissionMetrics::default(), FeatureMetrics::default());
    metrics.register(registry);
    feature_metrics.register(registry);
    let (sender, features) = watch::channel(None);
    tasks.spawn("features", keep_features(client.clone(), options.features, feature_metrics, sender));
    let inputs = WebhookInputs {
        index: Arc::clone(index),
        enabled: options.enabled.clone(),
        accounts: Accounts {
            control: options.repair.account.clone(),
            sources: options.sources_account.clone(),
            analysis: options.analysis_account.clone(),
        },
        note_key,
        content_key: Arc::clone(content_key),
        injection: options.injection.clone(),
        writers: AnalysisWriters {
            questions: format!("{ACCOUNT_PREFIX}{}", options.repair.account),
            answers: format!("{ACCOUNT_PREFIX}{}", options.analysis_account),
        },
        pod_lookups: PodLookupState {
            index: Arc::clone(index),
            features: features.clone(),
            hub_ca: certificates.ca_bundle(),
        },
    };
    let config = config.clone();
    let mut tls = certificates.server_config();
    if let Some(path) = &options.admission_client_ca {
        let clients = ClientAuthority::read(path.clone())?;
        tls = Arc::new(clients.server_config(&tls).map_err(CertificatesError::from)?);
        tasks.spawn("authority for clients", clients.follow(CLIENT_CA_CHECK_INTERVAL));
    }
    let server = AdmissionServer::start(
        AdmissionSettings::new(bindable(options.listen_admission)),
        tls,
        metrics,
        // The client must be made on the server's own runtime, because it works on the runtime that created it.
        move || -> BoxFuture<'static, _> { Box::pin(async move { inputs.build_webhooks(config) }) },
    )
    .await?;
    tracing::info!(admission = %server.address(), "listening for admission reviews");
    tasks.spawn_until(ShutdownStage::Close, "admission", |stopping| serve(server, stopping));
    Ok(features)
}

async fn serve(mut server: AdmissionServer, stopping: Stopping) {
    tokio::select! {
        () = server.wait_for_end() => {}
        () = wait_for_stop(stopping) => server.stop().await,
    }
}

struct WebhookInputs {
    index: Arc<Index>,
    enabled: NamespaceRule,
    accounts: Accounts,
    note_key: Arc<NoteKey>,
    content_key: Arc<ContentKey>,
    injection: InjectionSettings,
    writers: AnalysisWriters,
    pod_lookups: PodLookupState,
}

impl WebhookInputs {
    fn build_webhooks(self, config: Config) -> Result<Webhooks, kube::Error> {
        let client = Client::try_from(config)?;
        let lookups = KubeLookups::new(client.clone(), self.index, self.enabled).with_accounts(self.accounts);
        let lookups = Arc::new(lookups);
        let pods = InjectPods::new(KubePodLookups::new(client, self.pod_lookups), self.injection);
        let mut webhooks = guards(&lookups, self.note_key);
        webhooks.push(Arc::new(OnlyEnabled::new(pods, &lookups)));
        let texts = ValidateTexts::new(&lookups, self.writers.questions.clone(), self.content_key);
        webhooks.push(Arc::new(OnlyEnabled::new(texts, &lookups)));
        webhooks.push(Arc::new(ValidateAnalyses { writers: self.writers }));
        Ok(webhooks)
    }
}
