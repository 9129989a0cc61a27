//! The linter: convergence and every invariant, over state, plan and history.
