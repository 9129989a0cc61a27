//! Many creates at once.

use std::time::Instant;

use super::{
    Tally,
    life::{Desired, Ended, Life, Moment},
};

#[test]
fn an_up_killed_in_the_middle_of_ten_creates_leaves_nothing_that_down_does_not_remove() {
    let (tally, start) = (Tally::default(), Instant::now());
    let moments = [
        Moment::Write(8),
        Moment::CallBefore(5),
        Moment::Call(5),
        Moment::Call(12),
        Moment::CallBefore(10),
    ];
    for moment in moments {
        let mut life = Life::new(&tally);
        // All at once, not one to begin with.
        let ten = Desired { more: ", policy: {first_node: all}", ..Desired::new(10, 'a') };
        assert_eq!(life.up(&ten, Some(moment)), Ended::Killed, "{moment}");
        life.end();
    }
    tally.tell("ten creates", "", start.elapsed());
}
