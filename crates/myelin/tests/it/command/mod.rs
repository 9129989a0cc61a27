//! The built command on real processes.
//!
//! Everything is waited for with a deadline, and looked for in `/proc` afterwards.

mod site;

mod backups;
mod census;
mod changes;
mod endings;
mod first;
mod outages;
mod refusals;
mod restarts;
mod stores;
mod terminal;
