//! All tenants of a cluster come by way of one client, the API server: one namespace and one user leave room for other
//! namespaces and users.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use nudge_admission::{AdmissionServer, AdmissionSettings, Webhooks};
use nudge_tests::cluster::Authority;
use nudge_tests::eventually;
use serde_json::json;
use tokio::task::JoinSet;

use crate::guarded_cluster::SOON;
use crate::server::{Quick, Stuck, WebhookClient, review, start};

/// A server with a webhook that never answers, and its only client.
struct Shared {
    client: Arc<WebhookClient>,
    /// Reviews that hang.
    flood: JoinSet<Result<String>>,
    _server: AdmissionServer,
}

impl Shared {
    async fn start(change: impl FnOnce(&mut AdmissionSettings)) -> Result<Self> {
        let authority = Authority::new("tenants")?;
        let webhooks: Webhooks = vec![Arc::new(Quick), Arc::new(Stuck)];
        let server = start(&authority, webhooks, |settings| {
            settings.review_timeout = Duration::from_hours(1);
            settings.max_review_timeout = Duration::from_hours(1);
            change(settings);
        })
        .await?;
        let client = Arc::new(WebhookClient::new(&authority, server.address())?);
        Ok(Self { client, flood: JoinSet::new(), _server: server })
    }

    fn hang(&mut self, namespace: &str, user: &str) {
        let (client, body) = (Arc::clone(&self.client), of(namespace, user));
        self.flood.spawn(async move { client.ask("/stuck", &body).await });
    }

    async fn ask(&self, namespace: &str, user: &str) -> Result<String> {
        self.client.ask("/quick?timeout=5s", &of(namespace, user)).await
    }

    /// Waits until a request has this answer.
    async fn until(&self, namespace: &str, user: &str, answer: &str) -> Result<()> {
        let refused = async || self.ask(namespace, user).await.ok()?.contains(answer).then_some(());
        eventually(SOON, "those that hang have taken all that they may", refused).await
    }

    /// Sends a request that takes no time, and expects an answer.
    async fn passes(&self, namespace: &str, user: &str) -> Result<()> {
        let answer = self.ask(namespace, user).await?;
        ensure!(answer.contains("\"allowed\":true"), "{namespace} {user}: {answer}");
        Ok(())
    }
}

fn of(namespace: &str, user: &str) -> String {
    let mut review = review();
    review["request"]["namespace"] = json!(namespace);
    review["request"]["userInfo"]["username"] = json!(user);
    review.to_string()
}

/// Room for some twenty reviews of one client.
fn little_room(settings: &mut AdmissionSettings) {
    settings.all_small_objects_bytes = 512 * 1024;
}

#[tokio::test]
async fn slow_reviews_of_one_namespace_leave_room_to_another() -> Result<()> {
    let mut shared = Shared::start(little_room).await?;
    for number in 0..40 {
        shared.hang("loud", &format!("user-{number}"));
    }
    shared.until("loud", "eve", "took too long").await?;
    // The same if both requests are of one user, such as a controller.
    shared.passes("quiet", "user-1").await?;
    shared.passes("quiet", "bob").await
}

#[tokio::test]
async fn slow_reviews_of_one_user_leave_room_to_another() -> Result<()> {
    let mut shared = Shared::start(little_room).await?;
    for number in 0..40 {
        shared.hang(&format!("team-{number}"), "eve");
    }
    shared.until("another", "eve", "took too long").await?;
    shared.passes("team-1", "bob").await
}

#[tokio::test]
async fn one_namespace_leaves_connections_to_another() -> Result<()> {
    let mut shared = Shared::start(|settings| settings.max_connections = 30).await?;
    for number in 0..12 {
        shared.hang("loud", &format!("user-{number}"));
    }
    shared.until("loud", "eve", "429 Too Many Requests").await?;
    shared.passes("quiet", "bob").await
}
