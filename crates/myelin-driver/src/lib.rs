//! The cluster driver: sole writer of observed state, synchronous, no runtime.
//!
//! [`ClusterDriver::handle`] takes one [`Event`] and returns [`Effects`]: what to submit, what to stop, what changed, and
//! when to wake it. It folds observations, plans over the nodes that were touched, applies what is still valid, and
//! records every effect before it returns it (seed 1 §6, §9). It reads no clock: `now` is an argument, and never
//! taken to go backwards. It performs nothing: a shell commits `changed`, then submits.
//!
//! Reading order: [`Event`], [`Effects`], [`ClusterDriver`], [`DriverEvent`], [`Preview`].
//!
//! ```
//! use std::time::SystemTime;
//! use myelin_driver::{ClusterDriver, Desired, Event, Options};
//! use myelin_shape::{ClusterShape, RunId, RunNodeGroupSpec};
//!
//! let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
//! let shape = ClusterShape::new(RunId(1), 1, [group]);
//! let mut driver = ClusterDriver::new(Options::default());
//! let effects = driver.handle(SystemTime::UNIX_EPOCH, Event::Desired(Box::new(Desired::new(shape))));
//! assert_eq!(effects.submit[0].to_string(), "worker-0 0.0 CreateLease");
//! assert!(!driver.convergence().converged);
//! ```

mod apply;
mod desired;
mod driver;
mod event;
mod fold;
mod preview;

pub use crate::desired::{Desired, DesiredError};
pub use crate::driver::{ClusterDriver, Convergence, Counters, Options};
pub use crate::event::{Changed, Effects, Event, Submission, Target};
pub use crate::preview::{NodeChange, Preview};
pub use myelin_state::{DriverEvent, EventKind};

#[cfg(test)]
mod tests;
