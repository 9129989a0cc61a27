//! The built command on real processes.
//!
//! Everything is waited for with a deadline, and looked for in `/proc` afterwards.

mod sim;
mod site;

mod backups;
mod census;
mod changes;
mod crash;
mod endings;
mod first;
mod outages;
mod refusals;
mod restarts;
mod resumed;
mod stores;
mod terminal;
