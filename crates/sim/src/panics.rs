//! A panic in a worker's task is caught by its runtime; here it is remembered, so that it breaks
//! the trajectory and not only the task.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
    static LISTENING: RefCell<bool> = const { RefCell::new(false) };
}

/// From here on, panics on this thread are kept and not printed.
pub(crate) fn listen() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if LISTENING.with_borrow(|listening| *listening) {
                LAST.set(Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
    LISTENING.set(true);
    LAST.set(None);
}

/// From here on, they are printed again.
pub(crate) fn ignore() {
    LISTENING.set(false);
}

/// The last panic since it was asked for.
pub(crate) fn take() -> Option<String> {
    LAST.take()
}
