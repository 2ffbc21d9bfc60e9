//! The agent's long tasks in one supervised set: none of them ends or panics unnoticed.

use std::future::pending;

use tokio::task::{Id, JoinSet};

/// The tasks that run as long as the process. Dropping the set aborts them.
#[derive(Default)]
pub struct Tasks {
    running: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
}

impl Tasks {
    /// Starts a task that never ends by itself. Needs a tokio runtime.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.names.push((self.running.spawn(task).id(), name));
    }

    /// Waits until a task ends, which is a bug, logs it, and returns its name.
    ///
    /// Cancel safe.
    pub async fn wait_for_end(&mut self) -> &'static str {
        let Some(result) = self.running.join_next_with_id().await else { return pending().await };
        let (id, panicked) = result.map_or_else(|error| (error.id(), true), |(id, ())| (id, false));
        let task = self.names.iter().find(|(task, _)| *task == id).map_or("", |(_, name)| name);
        tracing::error!(task, panicked, "task ended, which is a bug");
        task
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_and_one_that_panics_are_both_noticed() {
        let mut tasks = Tasks::default();
        tasks.spawn("ends", async {});
        tasks.spawn("panics", async { panic!("a bug") });
        tasks.spawn("runs", pending());
        let mut ended = [tasks.wait_for_end().await, tasks.wait_for_end().await];
        ended.sort_unstable();
        assert_eq!(ended, ["ends", "panics"]);
        let mut empty = Tasks::default();
        assert!(timeout(Duration::from_millis(10), empty.wait_for_end()).await.is_err());
    }
}
