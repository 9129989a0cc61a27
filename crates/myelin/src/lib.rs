//! Declare the cluster you want; myelin leases, boots, joins and keeps it so.
//!
//! Reading order: the [module `file`](mod@file), the cluster as people write it; [`runtime`], the loop at work; [`view`],
//! what is shown of it; [`state_dir`] and [`control`], how other processes find and ask it; [`cli`], the command.
//!
//! ```
//! use myelin::file::{Format, parse};
//!
//! let file = parse(b"run: 1\ngroups: [{id: worker, count: 3}]", Format::Yaml, "cluster.yaml")?;
//! assert_eq!(file.shape(1).groups[0].provider.as_str(), "process");
//! # Ok::<(), myelin::file::FileErrors>(())
//! ```

pub mod cli;
pub mod control;
#[cfg(debug_assertions)]
mod crash;
pub mod file;
mod hangup;
pub mod host;
mod printable;
pub mod runtime;
pub mod state_dir;
pub mod view;
