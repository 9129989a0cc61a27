//! The simulator as others use it, and scenarios with what must be seen in them.

mod corners;
mod hunted;
mod rules;
mod scenarios;
