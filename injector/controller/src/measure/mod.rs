//! Measurements of a version on trial: the question is written into the `RolloutAnalysis` of the config's name, and the
//! answers are read from there. The role `analysis` asks Prometheus, so the controllers need neither the network nor a
//! Secret for it.

mod analysis;
mod object;
mod rehearsal;
