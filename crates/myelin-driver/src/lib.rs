//! The cluster driver: sole writer of observed state, synchronous, no runtime.
