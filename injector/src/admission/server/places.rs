//! How many connections there may be, and which one goes when there are too many: the one idle longest, never one that is being
//! answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

#[derive(Debug)]
struct Slot {
    idle_since: Option<Instant>,
    cut: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    slots: BTreeMap<u64, Slot>,
    next: u64,
}

/// The places of all connections.
#[derive(Clone, Debug)]
pub(super) struct Places {
    table: Arc<Mutex<Table>>,
    most: usize,
    count: Gauge,
}

impl Places {
    pub(super) fn new(most: usize, count: Gauge) -> Self {
        Self { table: Arc::default(), most, count }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is one step, so a panic elsewhere leaves nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, if need be that of an idle one, which is told to end; `None` when all are busy.
    pub(super) fn take(&self, now: Instant) -> Option<Place> {
        let mut table = self.table();
        if table.slots.len() >= self.most {
            let idle = table.slots.iter().filter_map(|(&id, slot)| Some((slot.idle_since?, id)));
            let (_, oldest) = idle.min()?;
            let slot = table.slots.remove(&oldest)?;
            slot.cut.notify_one();
        }
        let id = table.next;
        table.next += 1;
        let cut = Arc::new(Notify::new());
        table.slots.insert(id, Slot { idle_since: Some(now), cut: Arc::clone(&cut) });
        self.counted(&table);
        Some(Place { id, cut, all: self.clone() })
    }

    fn counted(&self, table: &Table) {
        self.count.set(i64::try_from(table.slots.len()).unwrap_or(i64::MAX));
    }
}

/// The place of one connection; given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    cut: Arc<Notify>,
    all: Places,
}

impl Place {
    /// Resolves when the connection must go.
    pub(super) async fn cut(&self) {
        self.cut.notified().await;
    }

    /// A request has come; until the result is dropped the connection is not idle.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.set(None);
        Busy(self)
    }

    fn set(&self, idle_since: Option<Instant>) {
        if let Some(slot) = self.all.table().slots.get_mut(&self.id) {
            slot.idle_since = idle_since;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.all.table();
        table.slots.remove(&self.id);
        self.all.counted(&table);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy<'a>(&'a Place);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_cut(place: &Place) -> bool {
        tokio::time::timeout(Duration::ZERO, place.cut()).await.is_ok()
    }

    #[tokio::test]
    async fn the_one_idle_longest_makes_room_and_a_busy_one_never() {
        let count = Gauge::default();
        let places = Places::new(2, count.clone());
        let now = Instant::now();
        let first = places.take(now).unwrap();
        let second = places.take(now + Duration::from_secs(1)).unwrap();
        let busy = first.busy();
        let third = places.take(now + Duration::from_secs(2)).unwrap();
        assert!(is_cut(&second).await && !is_cut(&first).await);
        drop(second);
        assert_eq!(count.get(), 2);
        let also_busy = third.busy();
        assert!(places.take(now).is_none());
        drop((busy, also_busy));
        assert!(places.take(now).is_some());
    }
}
