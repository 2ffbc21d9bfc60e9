//! The log, for unit tests that read it.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to log, and forgets what this thread has logged so far.
///
/// There is one subscriber for all threads. If each test had its own, the first thread that reaches a line without a
/// subscriber would disable the line for all threads (`tracing-core` 0.1.36, `callsite::dispatchers`). A fixture that
/// all tests use calls this before anything is logged.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
    LOG.take();
}

/// Returns the lines that this thread has logged which contain the text.
pub fn lines(text: &str) -> Vec<String> {
    let log = LOG.with_borrow(|log| String::from_utf8_lossy(log).into_owned());
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}
