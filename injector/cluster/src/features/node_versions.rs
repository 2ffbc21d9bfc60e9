//! Reads of the version of the API server, and of every node only that of its kubelet.

use kube::api::{ApiResource, ListParams, NotUsed, Object};
use kube::{Api, Client, ResourceExt as _};
use nudge_core::features::{Minor, MinorError};
use nudge_protocol::error_chain::chain;
use serde::Deserialize;

use crate::call::{CallError, call};
use crate::listing::for_each_listed;

/// The reason why versions can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum VersionsError {
    /// The API server refused or could not be reached.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The API server did not answer with a version.
    #[error("the API server's version can't be parsed")]
    Server(#[from] MinorError),
}

/// A node, which is a large object, without all that does not matter here.
type Node = Object<Option<NotUsed>, NodeStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    node_info: NodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
}

/// Reads the API server's version. In a cluster with servers of different versions it is the version of one of them.
pub(super) async fn read_server_version(client: &Client) -> Result<Minor, VersionsError> {
    let version = call(|| "reading the API server's version".to_owned(), client.apiserver_version()).await?;
    Ok(version.git_version.parse()?)
}

/// Reads the kubelets' versions. Other texts are left out: a virtual kubelet may report any.
pub(super) async fn read_kubelet_versions(client: &Client) -> Result<Vec<Minor>, VersionsError> {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
    let nodes = Api::<Node>::all_with(client.clone(), &resource);
    let mut versions: Vec<Minor> = Vec::new();
    for_each_listed(
        || "listing nodes".to_owned(),
        &nodes,
        ListParams::default(),
        |node| {
            let status = node.status.as_ref();
            match status.map_or("", |status| &status.node_info.kubelet_version).parse() {
                Ok(version) if versions.contains(&version) => {}
                Ok(version) => versions.push(version),
                Err(error) => tracing::info!(node = node.name_any(), error = chain(&error), "kubelet version ignored"),
            }
        },
    )
    .await?;
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_of_a_node_is_read() {
        let text = r#"[
            {"metadata": {"name": "a"}, "spec": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.33.1", "osImage": "x"}}},
            {"metadata": {"name": "b"}}]"#;
        let nodes: Vec<Node> = serde_json::from_str(text).unwrap();
        let versions = nodes.into_iter().map(|node| node.status.map(|status| status.node_info.kubelet_version));
        assert_eq!(versions.collect::<Vec<_>>(), [Some("v1.33.1".to_owned()), None]);
    }
}
