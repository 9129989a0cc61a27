//! Declare the cluster you want; myelin leases, boots, joins and keeps it so.
//!
//! Reading order: the [module `file`](mod@file), the cluster as people write it.
//!
//! ```
//! use myelin::file::{Format, parse};
//!
//! let file = parse(b"run: 1\ngroups: [{id: worker, count: 3}]", Format::Yaml, "cluster.yaml")?;
//! assert_eq!(file.shape(1).groups[0].provider.as_str(), "process");
//! # Ok::<(), myelin::file::FileErrors>(())
//! ```

pub mod file;
