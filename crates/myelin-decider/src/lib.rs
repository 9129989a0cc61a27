//! The pure decider: desired and observed state in, plan out.
