//! Measurements of a version on trial: answers are read from the `RolloutAnalysis` of the config's name, and whose numbers are wanted is written
//! there. The role `analysis` asks for them, so the controllers need neither the network nor a Secret for it.

mod analysis;
mod object;
mod rehearsal;
