//! Panics of the code that is simulated, wherever they are caught.
//!
//! A task that panics ends without a word, and a simulation that goes on without it may well end as it should. A run is
//! on one thread, so what panicked there was of it. A panic that a script asks for is none: it comes by another way.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Begins to take note of panics, and forgets those of this thread.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let text = info.to_string().replace('\n', " ");
            // Of a thread that ends there is nobody to tell.
            let _ = FIRST.try_with(|first| {
                first.borrow_mut().get_or_insert(text);
            });
            before(info);
        }));
    });
    take();
}

/// Takes the first panic of this thread that nobody has taken.
pub(crate) fn take() -> Option<String> {
    FIRST.take()
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, resume_unwind};

    use super::{take, watch};

    #[test]
    fn a_panic_that_somebody_catches_is_seen_all_the_same() {
        watch();
        assert!(catch_unwind(|| resume_unwind(Box::new("asked for"))).is_err());
        assert_eq!(take(), None, "it was asked for");
        assert!(catch_unwind(|| panic!("by accident")).is_err());
        assert!(take().is_some_and(|text| text.contains("by accident")));
        assert_eq!(take(), None, "it was taken");
    }
}
