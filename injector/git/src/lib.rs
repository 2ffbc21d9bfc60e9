//! The files of a git repository under one path, at one commit, by the git program of the distribution.
