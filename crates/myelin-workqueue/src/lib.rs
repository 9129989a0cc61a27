//! A keyed coalescing work queue with deadlines; time is passed in.
