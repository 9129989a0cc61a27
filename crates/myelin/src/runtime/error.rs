//! Why the loop does not do as asked.

use std::sync::Arc;

use myelin_driver::DesiredError;
use myelin_shape::{NodeGroupId, ShapeErrors};
use myelin_store::StoreError;

use crate::view::PlanView;

use super::handle::ANSWER_DEADLINE;

/// Why the loop did not do as asked. Nothing changed, unless it is [`Unrecorded`](Self::Unrecorded).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The loop has ended.
    #[error("the loop has ended")]
    Ended,
    /// The loop did not answer in time.
    #[error("the loop did not answer within {} seconds", ANSWER_DEADLINE.as_secs())]
    NoAnswer,
    /// The cluster is being taken down.
    #[error("the cluster is being taken down")]
    Leaving,
    /// What happens cannot be made durable, so nothing is done.
    #[error("nothing is done: {error}")]
    Store {
        /// Why not.
        error: Arc<StoreError>,
    },
    /// It was taken, but could not be made durable yet: it takes effect once that works, and is lost if the loop ends
    /// before.
    #[error("not recorded yet, and without effect until it is: {error}")]
    Unrecorded {
        /// Why not.
        error: Arc<StoreError>,
    },
    /// The file is of another run.
    #[error("the file is of run {found}, this is run {expected}")]
    OtherRun {
        /// The loop's run.
        expected: u64,
        /// The file's run.
        found: u64,
    },
    /// The revision is not the one that was expected.
    #[error("generation {expected} was expected, but {current} is desired by now")]
    OtherGeneration {
        /// What was expected.
        expected: u64,
        /// What is there.
        current: u64,
    },
    /// Ready nodes would be taken, and nobody agreed to that.
    #[error("nodes that are ready now would be deleted or replaced: {}", .0.ready_taken)]
    TakesReady(Box<PlanView>),
    /// A group wants a provider that there is not.
    #[error("group {group}: there is no provider {provider:?}; known: {known}")]
    UnknownProvider {
        /// The group.
        group: NodeGroupId,
        /// What it wants.
        provider: String,
        /// What there is.
        known: String,
    },
    /// The shape is not valid.
    #[error("the cluster is not valid: {0}")]
    Invalid(ShapeErrors),
    /// The driver refused the shape.
    #[error(transparent)]
    Refused(DesiredError),
    /// There is no such node or group.
    #[error("there is no node or group {name:?}")]
    Unknown {
        /// What was named.
        name: String,
        /// A name that was probably meant.
        near: Option<String>,
    },
    /// The request does not apply to the node as it is.
    #[error("{name}: nothing to {what}, {why}")]
    NotApplicable {
        /// The node or group.
        name: String,
        /// What was asked.
        what: &'static str,
        /// Why there is nothing to do.
        why: String,
    },
}

impl From<DesiredError> for Error {
    fn from(error: DesiredError) -> Self {
        match error {
            DesiredError::OtherRun { expected, found } => {
                Self::OtherRun { expected: expected.0, found: found.0 }
            }
            DesiredError::Invalid(errors) => Self::Invalid(errors),
            other @ (DesiredError::OldGeneration { .. } | DesiredError::ChangedContent { .. }) => {
                Self::Refused(other)
            }
        }
    }
}
