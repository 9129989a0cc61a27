//! Outcomes that no provider answered: given up, never sent, panicked.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use myelin_shape::{LogicalNodeId, OperationId};
use myelin_state::{ErrorClass, OperationError, OperationKind, OperationOutcome};

use crate::Submission;

/// The outcome of an operation whose call was or may have been cut short.
pub(crate) fn given_up(kind: OperationKind, why: &str) -> OperationOutcome {
    if kind.creates() {
        failed(ErrorClass::Ambiguous, &format!("{why}; it may have taken effect"))
    } else {
        failed(ErrorClass::Transient, why)
    }
}

/// The outcome of an operation for which no provider was called. Nothing happened, but an earlier unknown stays one.
pub(crate) fn never_sent(submission: &Submission) -> OperationOutcome {
    if submission.is_unsettled() {
        let why = "never sent; the outcome of an earlier call is still unknown";
        return failed(ErrorClass::Ambiguous, why);
    }
    failed(ErrorClass::Transient, "never sent: no turn came before its deadline")
}

pub(crate) fn is_ambiguous(outcome: &OperationOutcome) -> bool {
    matches!(outcome, OperationOutcome::Failed(error) if error.class == ErrorClass::Ambiguous)
}

pub(crate) fn failed(class: ErrorClass, message: &str) -> OperationOutcome {
    OperationOutcome::Failed(OperationError { class, message: message.into() })
}

/// Makes a panic a failed operation.
pub(crate) async fn caught(
    kind: OperationKind,
    call: impl Future<Output = OperationOutcome>,
) -> OperationOutcome {
    let mut call = pin!(call);
    poll_fn(move |context| {
        // After a panic the future is never polled again, so nothing sees it half changed.
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => {
                let message = format!("the provider panicked: {}", panic_text(&*panic));
                Poll::Ready(given_up(kind, &message))
            }
        }
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Logs how an operation ended.
pub(crate) fn log(node: &LogicalNodeId, operation: OperationId, outcome: &OperationOutcome) {
    let attempt = operation.attempt;
    if let OperationOutcome::Failed(error) = outcome {
        tracing::warn!(
            code = "operation.failed", %node, %attempt, %operation, class = %error.class, error = %error.message,
            "operation failed"
        );
    } else {
        tracing::debug!(
            code = "operation.finished", %node, %attempt, %operation, ?outcome, "operation finished"
        );
    }
}
