//! The pure observation reducer: facts in, state changed, nothing emitted.
