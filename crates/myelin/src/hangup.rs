//! Whether anybody is still at the other end.

use std::{os::fd::AsFd, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::sleep;

/// How often it is looked. The system tells it to those who read or write, and we do neither meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Returns once the other end of a pipe or a socket is closed for good; never for a file.
///
/// A peer that only sends nothing more, and still reads, is there.
pub(crate) async fn hung_up(stream: impl AsFd) {
    loop {
        sleep(LOOK_EVERY).await;
        // A closed end is reported whether asked for or not, and nothing else is of interest.
        let mut watched = [PollFd::new(&stream, PollFlags::empty())];
        if poll(&mut watched, Some(&Timespec::default())).is_ok_and(|n| n > 0) {
            return;
        }
    }
}
