//! `myelin sim`, as it is typed.

use super::site::Site;

const LOST: &str = "settle-window 10s\nat 0s want a:1\ncall create 1 loses-reply\ncalm 3m\n";

#[test]
fn a_script_is_played_and_what_is_expected_of_it_is_not_read() {
    let site = Site::new();
    let script = site.write("lost.txt", &format!("{LOST}----\nsomething else\n"));
    let told = site.ok(&["sim", script.to_str().unwrap()]);
    assert!(told.contains("call create 1 loses-reply"), "{told}");
    assert!(told.contains("find 1: a-0#0"), "{told}");
    assert!(told.contains("as desired"), "{told}");
}

#[test]
fn a_run_is_written_as_json() {
    let site = Site::new();
    let script = site.write("lost.txt", LOST);
    let run: serde_json::Value =
        serde_json::from_str(&site.ok(&["sim", script.to_str().unwrap(), "--json"])).unwrap();
    assert_eq!(run["broken"], serde_json::Value::Null);
    assert_eq!(run["machines"], serde_json::json!(["a-0"]));
    assert_eq!(run["calls"]["create"], 1, "it is found, not made again");
    assert_eq!(run["script"], LOST);
}

#[test]
fn many_seeds_are_played_and_counted() {
    let site = Site::new();
    let told = site.ok(&["sim", "--seeds", "10", "--seed", "30"]);
    let last = told.lines().last().unwrap();
    assert!(last.starts_with("10 seeds, ") && last.ends_with(": 0 broken rules"), "{told}");
}

#[test]
fn a_seed_always_gives_the_same_history() {
    let site = Site::new();
    let first = site.ok(&["sim", "--seed", "22", "--trace"]);
    assert_eq!(first, site.ok(&["sim", "--seed", "22", "--trace"]));
    assert_ne!(first, site.ok(&["sim", "--seed", "23", "--trace"]));
}

#[test]
fn scripts_that_make_no_sense_are_refused_with_a_place() {
    let site = Site::new();
    let wrong = site.write("wrong.txt", "at 5s crahs 3s\n");
    let error = site.fails(1, &["sim", wrong.to_str().unwrap()]);
    assert!(error.contains("wrong.txt: line 1, column 7: there is no happening"), "{error}");
    assert!(error.contains("did you mean crash?"), "{error}");
    let long = site.write("long.txt", &"# nothing\n".repeat(200_000));
    let error = site.fails(1, &["sim", long.to_str().unwrap()]);
    assert!(error.contains("longer than a script may be"), "{error}");
    let error = site.fails(1, &["sim", "missing.txt"]);
    assert!(error.contains("cannot read missing.txt"), "{error}");
    site.fails(2, &["sim", "--seeds", "many"]);
}

#[test]
fn a_script_that_asks_for_what_nobody_can_have_is_no_defect() {
    let site = Site::new();
    let scripts = [
        ("at 0s want a:1,image=refused\n", "line 1, column 1: the image of a is refused for good"),
        ("at 0s want a:1,in-flight=0\n", "line 1, column 12: in-flight is a number above 0"),
        ("at 10m want a:3\n", "line 1, column 1: nothing happens later than 5m"),
        ("call create 0 hangs\n", "line 1, column 13: which call is counted from 1"),
        ("calm 5d\n", "line 1, column 6: when everything works again is at most 1day"),
        ("sweep 0s\nlatency 0s\n", "line 1, column 7: the sweep interval is at least 1s"),
        ("at 0s want a:60 b:60\n", "line 1, column 17: 120 nodes wanted, at most 100"),
    ];
    for (script, expected) in scripts {
        let file = site.write("asks.txt", script);
        let error = site.fails(1, &["sim", file.to_str().unwrap()]);
        assert!(error.contains(expected), "{script}{error}");
        assert!(!error.contains("defect"), "{error}");
    }
    // It is not gone, and there are two for a while: the person has said so.
    let file = site.write("abandoned.txt", "at 0s want a:1\nat 60s abandon a-0\n");
    assert!(site.ok(&["sim", file.to_str().unwrap()]).contains("as desired"));
}

#[test]
fn steps_that_did_nothing_are_told() {
    let site = Site::new();
    let text = "at 0s want a:1\nat 9s machine-dies typo-0\ncall create 7 hangs\n";
    let script = site.write("nothing.txt", text);
    let told = site.ok(&["sim", script.to_str().unwrap()]);
    assert!(told.contains("did nothing: at 9s machine-dies typo-0"), "{told}");
    assert!(told.contains("did nothing: call create 7 hangs"), "{told}");
    let json = site.ok(&["sim", script.to_str().unwrap(), "--json"]);
    let run: serde_json::Value = serde_json::from_str(&json).unwrap();
    let missed = ["at 9s machine-dies typo-0", "call create 7 hangs"];
    assert_eq!(run["did_nothing"], serde_json::json!(missed));
}

#[test]
fn a_script_may_come_from_another_system() {
    let site = Site::new();
    let text = format!("{LOST}----").replace('\n', "\r\n");
    let script = site.write("lost.txt", &text);
    assert!(site.ok(&["sim", script.to_str().unwrap()]).contains("as desired"));
}
