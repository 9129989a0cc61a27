use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;

use myelin_api::JoinSecret;
use myelin_executor::{BootstrapSink, BootstrapUpdate, OutputLine, OutputStream, Provider};
use myelin_shape::{AttemptKey, BootSpec, BootstrapSessionId, ClusterUid, NodeAttemptId, RunId};

use crate::{
    JoinSource, Options, ProcessProvider,
    proc::{Family, Marks, ProcessId, Snapshot, Stat, boot_id},
    session::SessionRecord,
    store::{lease_name, read_record, write_record},
    tail::{Position, Tail, last_line, trim},
};

fn key(node: &str) -> AttemptKey {
    AttemptKey {
        cluster: ClusterUid([7; 16]),
        run: RunId(1),
        node: node.into(),
        attempt: NodeAttemptId(3),
    }
}

#[test]
fn a_lease_is_named_like_its_attempt_and_never_like_a_path() {
    let longest = format!("{}-99999", "g".repeat(63));
    for node in ["worker-0", &longest, &format!("{}-7", "g".repeat(62))] {
        assert_eq!(lease_name(&key(node)).unwrap(), key(node).to_string());
    }
    for node in ["", "..", "a/b", "A-0", "x.y", "é-0", &"g".repeat(75), &format!("{longest}012345")]
    {
        assert!(lease_name(&key(node)).is_err(), "{node}");
    }
}

#[test]
fn sessions_of_different_attempts_and_numbers_have_different_ids() {
    let id = |node, number| SessionRecord::new(key(node), number, BootSpec::default()).session.0;
    let ids = [id("worker-0", 1), id("worker-0", 2), id("worker-1", 1), id("worker-1", 2)];
    let distinct: std::collections::BTreeSet<_> = ids.into_iter().collect();
    assert_eq!(distinct.len(), 4);
    assert_eq!(id("worker-0", 1), ids[0]);
    assert!(ids.iter().all(|&id| id < 1 << 53), "exact as a JSON number");
}

#[test]
fn a_process_line_is_read_whatever_the_command_is_named() {
    let line = b"42 (a) R 1 (\xff) b) S 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
    let stat = Stat::parse(42, line).unwrap();
    assert_eq!((stat.pid, stat.parent, stat.group, stat.start_time), (42, 7, 9, 12345));
    for nonsense in [&b""[..], b"42 (x", b"42 (x) S", b"42 (x) S a b c"] {
        assert_eq!(Stat::parse(42, nonsense), None);
    }
}

/// A process of the test's own, ended when this is dropped.
struct Process(Child);

impl Process {
    fn sleeping(mark: &str) -> Self {
        let mut command = Command::new("sleep");
        let (name, value) = mark.split_once('=').unwrap();
        Self(command.arg("600").env(name, value).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_known_by_boot_number_and_start_and_not_as_a_zombie() {
    let boot = boot_id().unwrap();
    let mut process = Process::sleeping("MYELIN_TEST=identity");
    let id = ProcessId::of(&boot, process.pid()).unwrap();
    assert!(id.find(&boot).is_some());
    assert!(id.find("another boot").is_none());
    let reused = ProcessId { start_time: id.start_time - 1, ..id.clone() };
    assert!(reused.find(&boot).is_none());
    process.0.kill().unwrap();
    // A zombie until it is waited for.
    while id.find(&boot).is_some() {
        std::thread::yield_now();
    }
    assert!(ProcessId::of(&boot, process.pid()).is_some());
    process.0.wait().unwrap();
    assert!(ProcessId::of(&boot, process.pid()).is_none_or(|other| other != id));
}

fn marks_of_test(mark: &str) -> Marks {
    Marks { entries: vec![mark.into()], lease: "/nonexistent".into() }
}

#[test]
fn a_family_is_told_by_whole_environment_entries() {
    let mark = format!("MYELIN_LEASE=test-{}", std::process::id());
    let process = Process::sleeping(&mark);
    let longer = Process::sleeping(&format!("{mark}1"));
    let snapshot = Snapshot::take().unwrap();
    let running = |mark: &str| {
        let mut family = Family::new(marks_of_test(mark), []);
        let running = family.running(&snapshot);
        running.iter().map(|stat| stat.pid).collect::<Vec<_>>()
    };
    assert_eq!(running(&mark), [process.pid()]);
    assert_eq!(running(&format!("{mark}1")), [longer.pid()]);
}

#[derive(Debug)]
struct Deaf;

impl BootstrapSink for Deaf {
    fn report(&self, _: &AttemptKey, _: BootstrapSessionId, _: BootstrapUpdate) {}
}

#[tokio::test]
async fn looking_for_a_lease_waits_for_a_create_that_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let join = JoinSource { address: "127.0.0.1:9".into(), secret: JoinSecret::new([1; 32]) };
    let options = Options::new(directory.path(), vec!["agent".into()], join);
    let provider = ProcessProvider::new(options, Arc::new(Deaf)).unwrap();
    let key = key("worker-0");
    let under_way = provider.turn(&key.to_string()).await;
    let mut find = Provider::find(&provider, &key);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut find).await;
    assert!(early.is_err(), "{early:?}");
    drop(under_way);
    assert_eq!(find.await.unwrap(), []);
}

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn append(&self, name: &str, text: &[u8]) {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(self.path(name)).unwrap();
        file.write_all(text).unwrap();
    }

    fn tail(&self) -> Tail {
        self.tail_from([Position::default(); 2])
    }

    fn tail_from(&self, [out, err]: [Position; 2]) -> Tail {
        let out = (OutputStream::Stdout, self.path("out"), out);
        let err = (OutputStream::Stderr, self.path("err"), err);
        Tail::new([out, err])
    }
}

fn numbered_lines(numbers: std::ops::RangeInclusive<u32>) -> Vec<u8> {
    numbers.flat_map(|n| format!("line {n} {}\n", "x".repeat(1000)).into_bytes()).collect()
}

fn render(lines: &[OutputLine]) -> Vec<String> {
    let name = |stream| match stream {
        OutputStream::Stdout => 'o',
        OutputStream::Stderr => 'e',
    };
    let line = |line: &OutputLine| format!("{}{} {}", name(line.stream), line.sequence, line.text);
    lines.iter().map(line).collect()
}

#[test]
fn lines_are_numbered_per_stream_and_reported_when_they_are_whole() {
    let files = Files::new();
    let mut tail = files.tail();
    assert!(tail.poll().is_empty(), "nothing is there yet");
    files.append("out", b"one\ntw");
    files.append("err", b"bad\r\n");
    assert_eq!(render(&tail.poll()), ["o1 one", "e1 bad"]);
    files.append("out", b"o\n\nend");
    assert_eq!(render(&tail.poll()), ["o2 two", "o3 "]);
    assert_eq!(render(&tail.finish()), ["o4 end"]);
    assert!(tail.finish().is_empty());
}

#[test]
fn a_file_that_is_cut_or_replaced_is_read_from_its_start() {
    let files = Files::new();
    let mut tail = files.tail();
    files.append("out", b"before the cut\n");
    tail.poll();
    fs::write(files.path("out"), "cut\n").unwrap();
    assert_eq!(render(&tail.poll()), ["o2 cut"]);
    files.append("next", b"replaced\n");
    fs::rename(files.path("next"), files.path("out")).unwrap();
    assert_eq!(render(&tail.poll()), ["o3 replaced"]);
}

#[test]
fn catching_up_keeps_the_last_lines_and_counts_all() {
    let files = Files::new();
    let text: String =
        (1..=50_000).flat_map(|n| ["line ".into(), n.to_string(), "\n".into()]).collect();
    files.append("out", text.as_bytes());
    let mut tail = files.tail();
    assert_eq!(render(&tail.catch_up(2)), ["o49999 line 49999", "o50000 line 50000"]);
    files.append("out", b"more\n");
    assert_eq!(render(&tail.poll()), ["o50001 more"]);
}

#[test]
fn a_line_without_end_costs_a_bounded_amount_of_memory() {
    let files = Files::new();
    files.append("out", &vec![0xff; 1 << 20]);
    files.append("out", b"\nnext\n");
    let mut tail = files.tail();
    let lines = tail.catch_up(10);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].text.len() <= 4096 && lines[0].text.ends_with('…'));
    assert_eq!(lines[1].text, "next");
}

#[test]
fn catching_up_with_a_file_that_was_cut_reads_it_from_its_start() {
    let files = Files::new();
    files.append("out", b"before the cut\n");
    let mut tail = files.tail();
    tail.poll();
    fs::write(files.path("out"), "cut\n").unwrap();
    assert_eq!(render(&tail.catch_up(5)), ["o2 cut"]);
}

#[test]
fn the_last_words_are_read_whatever_long_line_comes_before() {
    let files = Files::new();
    files.append("out", &vec![b'x'; 1 << 20]);
    files.append("out", b"\nlast\nwords");
    let lines = files.tail().read_out();
    assert_eq!(render(&lines)[1..], ["o2 last", "o3 words"]);
}

#[test]
fn a_file_that_grows_faster_than_it_is_read_is_read_from_near_its_end() {
    let files = Files::new();
    let mut tail = files.tail();
    files.append("out", b"first\n");
    assert_eq!(render(&tail.poll()), ["o1 first"]);
    files.append("out", &numbered_lines(2..=6000));
    let lines = tail.catch_up(usize::MAX);
    let n_read: usize = lines.iter().map(|line| line.text.len()).sum();
    assert!(n_read < 2 << 20, "{n_read}");
    assert!(lines.last().unwrap().text.starts_with("line 6000 "));
    assert!(lines.iter().all(|line| line.text.len() > 1000), "no fragment is reported");
    // What was left out counts as one.
    assert_eq!(lines[0].sequence, 3);
    assert!(tail.bases().next().unwrap().offset > 4 << 20);
}

#[test]
fn output_given_up_frees_the_disk_and_moves_no_number() {
    use std::os::unix::fs::MetadataExt as _;
    let files = Files::new();
    let path = files.path("out");
    let mut tail = files.tail();
    let mut writer = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    for n in 0..40 {
        writer.write_all(&numbered_lines(n * 100 + 1..=n * 100 + 100)).unwrap();
        tail.poll();
        trim(&path, tail.bases().next().unwrap()).unwrap();
    }
    writer.write_all(b"end\n").unwrap();
    assert_eq!(render(&tail.poll()), ["o4001 end"]);
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.len() > 4_000_000, "nobody's place moves");
    let on_disk = metadata.blocks() * 512;
    assert!((1 << 20..(2 << 20) + (1 << 17)).contains(&on_disk), "{on_disk}");
    let bases: Vec<Position> = tail.bases().collect();
    let mut later = files.tail_from([bases[0], bases[1]]);
    let lines = later.catch_up(usize::MAX);
    for line in &lines[..lines.len() - 1] {
        assert!(line.text.starts_with(&format!("line {} ", line.sequence)), "{line:?}");
    }
    assert_eq!(render(&lines[lines.len() - 1..]), ["o4001 end"]);
}

#[test]
fn nothing_is_given_up_of_a_short_file_or_behind_a_link() {
    let files = Files::new();
    files.append("out", b"kept\n");
    trim(&files.path("out"), Position::default()).unwrap();
    std::os::unix::fs::symlink(files.path("out"), files.path("link")).unwrap();
    trim(&files.path("link"), Position { offset: 4, n_lines: 1 }).unwrap_err();
    assert_eq!(fs::read(files.path("out")).unwrap(), b"kept\n");
}

#[test]
fn what_is_no_file_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let paths = [directory.path().to_path_buf(), PathBuf::from("/dev/zero")];
    let mut tail = Tail::new(paths.map(|path| (OutputStream::Stdout, path, Position::default())));
    assert!(tail.poll().is_empty());
}

#[test]
fn the_last_line_that_says_something_is_found_from_an_offset_on() {
    let files = Files::new();
    files.append("err", b"old\n");
    assert_eq!(last_line(&files.path("err"), 4), None);
    files.append("err", b"new\n  \n\n");
    assert_eq!(last_line(&files.path("err"), 4).unwrap(), "new");
    assert_eq!(last_line(Path::new("/nonexistent"), 0), None);
}

#[test]
fn two_who_write_one_record_do_not_take_each_other_s_draft() {
    let files = Files::new();
    let path = files.path("record.json");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|n| write_record(&path, &n).unwrap()));
        }
    });
    assert!(read_record::<u32>(&path).unwrap() < 50);
    assert_eq!(fs::read_dir(files.directory.path()).unwrap().count(), 1, "no draft is left");
}
