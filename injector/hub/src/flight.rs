//! Work that several tasks wait for. It is done once, and to its end even if some of them leave.

use tokio::sync::watch;

/// The result of work under way; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Flight<T>(watch::Receiver<Option<T>>);

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    /// Starts `work`.
    pub(super) fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            let result = work.await;
            sender.send_replace(Some(result));
        });
        Self(receiver)
    }

    /// Its result; `None` when it has panicked.
    pub(super) async fn landed(&mut self) -> Option<T> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}
