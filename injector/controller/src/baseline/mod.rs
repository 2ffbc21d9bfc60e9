//! The baseline: existing ConfigMaps and Secrets become configs by themselves, and such a config goes when nobody needs
//! it any more.

mod end;
mod kinds;
mod make;
mod scan;

pub use scan::take_over;
