//! Cluster files: the examples, nonsense, and properties over all formats.

mod examples;
mod nonsense;
mod properties;
