//! The wait of the role certs for the first contact. A process without the webhooks is Ready when the API server calls
//! and trusts them.

use std::future::pending;

use kube::Config;
use nudge_cluster::first_contact::{Contact, QuestionReply, QuestionScope, ask};
use tokio::sync::watch;
use tokio::time::sleep;

use super::cluster;
use crate::task_supervisor::Tasks;

/// Starts a task that asks until there is contact.
pub(super) fn start(config: &Config, namespace: &str, tasks: &mut Tasks) -> watch::Receiver<Contact> {
    let (config, namespace, sender) = (config.clone(), namespace.to_owned(), watch::Sender::default());
    let contact = sender.subscribe();
    tasks.spawn("first contact", async move {
        wait_for_contact(&config, &namespace, &sender).await;
        pending::<()>().await;
    });
    contact
}

async fn wait_for_contact(config: &Config, namespace: &str, contact: &watch::Sender<Contact>) {
    let mut logged = None;
    loop {
        // Each question uses a new connection, because there may be several API servers.
        let reply = match cluster::client(config) {
            Ok(client) => ask(client, namespace, QuestionScope::Installation).await,
            Err(error) => QuestionReply::Failed(error.to_string()),
        };
        contact.send_modify(|contact| *contact = std::mem::take(contact).after(reply));
        let current = contact.borrow().clone();
        let Some(delay) = current.wait() else {
            tracing::info!("the API server asks and trusts the webhooks");
            return;
        };
        let cause = current.missing_cause().map(str::to_owned);
        if logged != cause {
            tracing::info!(cause, "waiting until the API server asks and trusts the webhooks");
            logged = cause;
        }
        sleep(delay).await;
    }
}
