//! An `up` that is killed while a `down` waits for it.

use std::time::{Duration, Instant};

use super::{
    Tally,
    life::{Desired, Life},
};

#[test]
fn a_down_whose_loop_is_killed_goes_on_by_itself_and_leaves_nothing() {
    let (tally, start) = (Tally::default(), Instant::now());
    // From before it has asked the loop to when that has removed everything.
    for milliseconds in [0, 10, 20, 30, 50, 80, 120, 200, 400] {
        let mut life = Life::new(&tally);
        let three = Desired::new(3, 'a');
        let up = life.begin_up(&three);
        life.until_whole(&three, &up);
        life.down_beside(up, Duration::from_millis(milliseconds));
        life.end();
    }
    tally.tell("down beside up", "", start.elapsed());
}
