//! `kubectl nudge ui` in a real browser, on a real API server.

mod acts;
mod approvals;
mod attacks;
mod away;
mod bounds;
mod browser;
mod crowd;
mod hostile;
mod keyboard;
mod page;
mod pictures;
mod requests;
mod scene;
mod tab;
mod views;
