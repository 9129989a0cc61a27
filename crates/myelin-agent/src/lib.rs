//! The program on a node: joins with a one-time token and heartbeats.
