//! The files of an OCI artifact or image at one digest, and the other way: files become an artifact.
