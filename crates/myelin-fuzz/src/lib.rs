//! What must hold for any bytes that myelin reads: one function a parser, which panics when it does not.
//!
//! libFuzzer calls them with inputs it makes up (`fuzz/`, `cargo xtask fuzz`), and the tests of this crate with the
//! inputs that are kept in `fuzz/corpus`. Nothing of the product depends on this crate.
//!
//! Reading order: [`TARGETS`], [`cluster_file`], [`store_rows`], [`agent_messages`], [`controller_messages`],
//! [`control_requests`], [`sim_script`].
//!
//! ```
//! let (name, check) = myelin_fuzz::TARGETS[0];
//! assert_eq!(name, "cluster_file");
//! check(b"0{run: 1, groups: [{id: worker}]}");
//! ```

mod control;
mod file;
mod messages;
mod script;
mod store;

pub use crate::{
    control::control_requests,
    file::cluster_file,
    messages::{agent_messages, controller_messages},
    script::sim_script,
    store::store_rows,
};

/// The name of a fuzzer and of its corpus, and what it calls.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 6] = [
    ("cluster_file", cluster_file),
    ("store_rows", store_rows),
    ("agent_messages", agent_messages),
    ("controller_messages", controller_messages),
    ("control_requests", control_requests),
    ("sim_script", sim_script),
];
