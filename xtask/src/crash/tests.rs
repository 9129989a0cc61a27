use super::total;

#[test]
fn figures_of_all_lines_are_added_up() {
    let text = "down, every 1 of: kills=3 restarts=4 seconds=1.5 violations=0 moments <write:3\n\
                random: kills=30 restarts=50 seconds=2.0 violations=1 lives=4 seeds=1..\n";
    assert_eq!(total(text, 4.25), "all: kills=33 restarts=54 seconds=4.2 violations=1");
}
