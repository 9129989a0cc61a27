//! The terminal the live view is drawn on.

use std::{
    io::{self, Write as _},
    sync::{Mutex, PoisonError},
};

use indicatif::TermLike;

use super::output;

/// Standard error as a terminal that may be gone at any time: the view must not fail with it, since somebody has to
/// stay and remove the machines.
#[derive(Debug, Default)]
pub(super) struct Terminal(Mutex<String>);

impl Terminal {
    fn put(&self, text: &str) {
        let mut drawn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.push_str(text);
    }

    fn step(&self, n: usize, direction: char) {
        if n > 0 {
            self.put(&format!("\x1b[{n}{direction}"));
        }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        output::size(io::stderr()).0
    }

    fn height(&self) -> u16 {
        output::size(io::stderr()).1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.step(n, 'A');
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.step(n, 'B');
        Ok(())
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.step(n, 'C');
        Ok(())
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.step(n, 'D');
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.put(text);
        self.put("\n");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.put(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put("\r\x1b[2K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut drawn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = io::stderr().write_all(drawn.as_bytes());
        drawn.clear();
        Ok(())
    }
}
