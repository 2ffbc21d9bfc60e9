//! Reads of the version of the API server, and of every node only that of its kubelet.

use kube::Client;
use kube::api::{ListParams, Request};
use nudge_core::features::Minor;
use nudge_protocol::error_chain::chain;
use serde::Deserialize;

/// The number of nodes of a page. They are large objects.
const PAGE_SIZE: u32 = 250;

/// The reason why versions can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum VersionsError {
    /// The API server refused or could not be reached.
    #[error("{what} can't be read")]
    Api {
        /// The request, as a message has it.
        what: &'static str,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The API server did not answer with a version.
    #[error("the API server's version can't be parsed")]
    Server(#[from] nudge_core::features::MinorError),
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Vec<Node>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct Node {
    metadata: NodeMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize)]
struct NodeMeta {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
}

/// Reads the API server's version. In a cluster with servers of different versions it is the version of one of them.
pub(super) async fn read_server_version(client: &Client) -> Result<Minor, VersionsError> {
    let result = client.apiserver_version().await;
    let version = result.map_err(|error| api_error("the API server's version", error))?;
    Ok(version.git_version.parse()?)
}

/// Reads the kubelets' versions. Other texts are left out: a virtual kubelet may report any.
pub(super) async fn read_kubelet_versions(client: &Client) -> Result<Vec<Minor>, VersionsError> {
    let mut params = ListParams::default().limit(PAGE_SIZE);
    let mut versions: Vec<Minor> = Vec::new();
    loop {
        let request = Request::new("/api/v1/nodes").list(&params);
        let request = request.map_err(|error| api_error("nodes", kube::Error::BuildRequest(error)))?;
        let page: Page = client.request(request).await.map_err(|error| api_error("nodes", error))?;
        for node in page.items {
            let text = node.status.node_info.kubelet_version;
            match text.parse() {
                Ok(version) if versions.contains(&version) => {}
                Ok(version) => versions.push(version),
                Err(error) => {
                    tracing::info!(node = node.metadata.name, error = chain(&error), "kubelet version ignored");
                }
            }
        }
        if page.metadata.next.is_empty() {
            return Ok(versions);
        }
        params = params.continue_token(&page.metadata.next);
    }
}

fn api_error(what: &'static str, error: kube::Error) -> VersionsError {
    VersionsError::Api { what, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_of_a_node_is_read() {
        let text = r#"{"kind": "NodeList", "metadata": {"resourceVersion": "7", "continue": "more"}, "items": [
            {"metadata": {"name": "a"}, "spec": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.33.1", "osImage": "x"}}},
            {"metadata": {"name": "b"}}]}"#;
        let page: Page = serde_json::from_str(text).unwrap();
        let versions: Vec<_> = page.items.iter().map(|node| node.status.node_info.kubelet_version.as_str()).collect();
        assert_eq!((versions, page.metadata.next.as_str()), (vec!["v1.33.1", ""], "more"));
    }
}
