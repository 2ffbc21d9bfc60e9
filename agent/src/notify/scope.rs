//! Finds the processes of a container.

use std::collections::BTreeMap;
use std::sync::Arc;

use nudge_protocol::ContainerName;
use nudge_protocol::hub::PodContainer;
use tokio::sync::watch;

use crate::proc::LiveTable;
use crate::proc::ProcessTable as _;

/// The pod's containers as the hub reports them.
pub type Containers = Arc<BTreeMap<ContainerName, PodContainer>>;

/// The set of processes that the agent searches for a container's processes.
#[derive(Clone, Debug)]
pub enum NotifyScope {
    /// All descendants of this process.
    Descendants,
    /// The process with this PID and its descendants.
    Tree(i32),
    /// The processes of the container with this name, as soon as its ID is known.
    Container {
        /// The name of the container.
        name: ContainerName,
        /// The pod's containers.
        containers: watch::Receiver<Containers>,
        /// The container at the last call of `roots`.
        last: Option<PodContainer>,
    },
}

/// The change of a container that the hub reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerChange {
    /// The hub has reported the container for the first time. It may have run for long.
    Listed,
    /// The container has started, restarted or ended.
    Started,
}

/// The topmost processes of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// The processes whose parents are outside of the container.
    Processes(Vec<i32>),
    /// The hub has not reported the container's ID yet.
    Unknown,
    /// The container has ended and will not start again.
    Ended,
}

impl NotifyScope {
    /// Returns the scope of the container with this name.
    pub fn for_container(name: ContainerName, containers: watch::Receiver<Containers>) -> Self {
        Self::Container { name, containers, last: None }
    }

    pub(super) fn roots(&mut self, table: &mut LiveTable) -> Roots {
        match self {
            Self::Descendants => Roots::Processes(table.children(std::process::id().cast_signed())),
            Self::Tree(pid) => Roots::Processes(vec![*pid]),
            Self::Container { name, containers, last } => {
                *last = containers.borrow().get(name).cloned();
                match last {
                    Some(container) if container.ended => Roots::Ended,
                    Some(container) if !container.id.is_empty() => {
                        Roots::Processes(topmost(&table.members(&container.id)))
                    }
                    _ => Roots::Unknown,
                }
            }
        }
    }

    /// Waits until the container differs from the last call of `roots`.
    pub(super) async fn wait_for_change(&mut self) -> ContainerChange {
        let Self::Container { name, containers, last } = self else { return std::future::pending().await };
        if containers.wait_for(|now| now.get(name) != last.as_ref()).await.is_err() {
            std::future::pending::<()>().await;
        }
        if last.is_some() { ContainerChange::Started } else { ContainerChange::Listed }
    }
}

/// Returns the processes whose parent is not among them. Does no I/O.
fn topmost(members: &[(i32, i32)]) -> Vec<i32> {
    let is_member = |pid: i32| members.iter().any(|(member, _)| *member == pid);
    members.iter().filter(|(_, parent)| !is_member(*parent)).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_are_those_whose_parent_is_elsewhere() {
        assert_eq!(topmost(&[(7, 1), (9, 7), (12, 9), (20, 0)]), [7, 20]);
        assert!(topmost(&[]).is_empty());
    }

    #[tokio::test]
    async fn a_container_is_unknown_until_it_has_an_id_and_another_after_a_restart() {
        let name = ContainerName::new("app").unwrap();
        let with = |id: &str, ended| {
            let container = PodContainer { name: name.clone(), id: id.to_owned(), ended };
            Arc::new(BTreeMap::from([(name.clone(), container)]))
        };
        let (sender, containers) = watch::channel(Containers::default());
        let mut scope = NotifyScope::for_container(name.clone(), containers);
        let mut table = LiveTable::default();
        assert_eq!(scope.roots(&mut table), Roots::Unknown);
        sender.send_replace(with("", false));
        assert_eq!(scope.wait_for_change().await, ContainerChange::Listed);
        assert_eq!(scope.roots(&mut table), Roots::Unknown);
        sender.send_replace(with(&"a".repeat(64), false));
        assert_eq!(scope.wait_for_change().await, ContainerChange::Started);
        assert_eq!(scope.roots(&mut table), Roots::Processes(Vec::new()));
        sender.send_replace(with(&"a".repeat(64), true));
        scope.wait_for_change().await;
        assert_eq!(scope.roots(&mut table), Roots::Ended);
    }
}
