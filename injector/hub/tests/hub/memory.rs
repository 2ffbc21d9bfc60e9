//! The measured memory of a request body: little more than the server reserves for it, however the body is cut into
//! pieces.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use hyper::StatusCode;
use nudge_hub::Settings;
use nudge_protocol::hub::MAX_REQUEST_BYTES;
use nudge_tests::fakes::crowd::token;
use tokio::time::{sleep, timeout};

use crate::front::Front;
use crate::stand_in::StandIn;

/// Counts the allocations of each thread: a test, its client and its hub share one thread.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn grown(bytes: isize) {
    let now = NOW.get().saturating_add(bytes);
    NOW.set(now);
    PEAK.set(PEAK.get().max(now));
}

// SAFETY: all is left to the system's allocator, and counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        grown(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the peak of the additional memory while a client sends `pieces` with a pause after each piece.
async fn taken(head: &str, pieces: impl Iterator<Item = String>, pause: Option<Duration>) -> Result<isize> {
    let stand_in =
        StandIn::new(Settings { body_timeout: Duration::from_mins(2), ..Settings::default() }, 1, Duration::ZERO);
    let front = Front::new(&stand_in.hub)?;
    let mut client = front.connect().await?;
    let token = token(0);
    let head = format!("POST /v1/poll HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\n{head}\r\n\r\n");
    client.send(head).await?;
    let before = NOW.get();
    PEAK.set(before);
    for piece in pieces {
        client.send(piece).await?;
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
    let reply = timeout(Duration::from_mins(1), client.reply()).await??;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "it was read whole, and is no poll");
    Ok(PEAK.get() - before)
}

const KIB: isize = 1024;

#[tokio::test]
async fn bytes_that_come_one_by_one_take_no_buffer_each() -> Result<()> {
    let pieces = (0..2000).map(|_| "x".to_owned());
    let bytes = taken("content-length: 2000", pieces, Some(Duration::from_millis(1))).await?;
    assert!(bytes < 128 * KIB, "{bytes}");
    Ok(())
}

#[tokio::test]
async fn a_body_in_chunks_of_one_byte_takes_as_much_as_any_other() -> Result<()> {
    let mut chunks = String::new();
    for _ in 0..512 {
        chunks += "1\r\nx\r\n";
    }
    let pieces = (0..MAX_REQUEST_BYTES / 512).map(|_| chunks.clone()).chain(["0\r\n\r\n".to_owned()]);
    let bytes = taken("transfer-encoding: chunked", pieces, None).await?;
    assert!(bytes < 256 * KIB, "{bytes}");
    Ok(())
}
