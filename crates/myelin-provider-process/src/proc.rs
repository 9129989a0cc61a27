//! What `/proc` says about processes: who they are, whose they are, whether they are still there.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The largest environment that is searched for a mark. The kernel allows some megabytes at most.
const MAX_ENVIRON: u64 = 16 * 1024 * 1024;

/// A process that can be told from every other, before and after it, also over a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessId {
    pub(crate) boot_id: String,
    pub(crate) pid: i32,
    /// Clock ticks between boot and the start of the process.
    pub(crate) start_time: u64,
}

impl ProcessId {
    /// Returns the identity of a process that exists, as a zombie at least.
    pub(crate) fn of(boot_id: &str, pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        Some(Self { boot_id: boot_id.into(), pid, start_time: stat.start_time })
    }

    /// Returns the running process that this is the identity of.
    pub(crate) fn find(&self, boot_id: &str) -> Option<Stat> {
        if self.boot_id != boot_id {
            return None;
        }
        Stat::read(self.pid).filter(|stat| stat.start_time == self.start_time && stat.is_running())
    }
}

/// Returns an id that changes with every boot of the host.
pub(crate) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim_end().into())
}

/// Returns an id of the host that no boot changes: directories outlive a boot, and so do the leases in them.
pub(crate) fn host_id() -> io::Result<String> {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if !machine.trim().is_empty() {
        return Ok(machine.trim().into());
    }
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim_end().into())
}

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) start_time: u64,
    state: u8,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &bytes)
    }

    /// Parses from the last `)` on: the command's name before it may hold anything.
    pub(crate) fn parse(pid: i32, bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().rposition(|&byte| byte == b')')?;
        let rest = str::from_utf8(&bytes[end + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1 and the name is field 2, so field n is at n - 3 here.
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            pid,
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            start_time: field(22)?.parse().ok()?,
        })
    }

    /// Returns whether it can still do something: a zombie cannot.
    fn is_running(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }

    /// Returns a handle of exactly this process, if it is still there.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // The number may have been given to another process before it was opened, not after.
        let now = Self::read(self.pid)?;
        (now.start_time == self.start_time).then_some(handle)
    }

    /// Sends a signal to exactly this process. One that is gone needs none.
    pub(crate) fn signal(&self, signals: &[Signal]) {
        let Some(handle) = self.open() else { return };
        for &signal in signals {
            if let Err(error) = pidfd_send_signal(&handle, signal) {
                tracing::debug!(pid = self.pid, ?signal, %error, "cannot signal");
            }
        }
    }
}

/// Names of the environment entries that tell whose a process is.
const MARKS: [&[u8]; 2] = [b"MYELIN_LEASE=", b"MYELIN_SESSION="];

/// What the processes in question are told by.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// Environment entries, `NAME=value`, all of which they carry.
    pub(crate) entries: Vec<String>,
    /// Directory of their lease. A process without any mark that prints to a log there is one of them: it was started
    /// with a clean environment.
    pub(crate) lease: PathBuf,
}

/// All processes that ran at one time, with the marks they carry.
#[derive(Debug)]
pub(crate) struct Snapshot {
    everyone: BTreeMap<i32, Stat>,
    marks: BTreeMap<i32, Vec<Vec<u8>>>,
    /// Where those without marks print to, if it may be a log of ours.
    logs: BTreeMap<i32, PathBuf>,
}

impl Snapshot {
    /// Looks at every process. Blocks; costs two small reads for each, and two more for those without marks.
    pub(crate) fn take() -> io::Result<Self> {
        let everyone = everyone()?;
        let marked = everyone.keys().map(|&pid| (pid, marks(pid)));
        let marks: BTreeMap<_, _> = marked.filter(|(_, marks)| !marks.is_empty()).collect();
        let others = everyone.keys().filter(|pid| !marks.contains_key(pid));
        let logs = others.filter_map(|&pid| Some((pid, log(pid)?))).collect();
        Ok(Self { everyone, marks, logs })
    }

    fn carries(&self, pid: i32, wanted: &Marks) -> bool {
        let Some(carried) = self.marks.get(&pid) else {
            return self.logs.get(&pid).is_some_and(|log| log.parent() == Some(&wanted.lease));
        };
        let mut wanted = wanted.entries.iter();
        wanted.all(|mark| carried.iter().any(|entry| entry == mark.as_bytes()))
    }
}

/// Returns where a process prints to, if the name is one of our logs'.
fn log(pid: i32) -> Option<PathBuf> {
    let links = [1, 2].map(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")));
    let is_log = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("stdout.") || name.starts_with("stderr."))
    };
    links.into_iter().flatten().find(is_log)
}

/// Returns the marks of a process; none when it is another user's, or ends meanwhile.
fn marks(pid: i32) -> Vec<Vec<u8>> {
    let mut environ = Vec::new();
    let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else {
        return Vec::new();
    };
    if file.take(MAX_ENVIRON).read_to_end(&mut environ).is_err() {
        return Vec::new();
    }
    let entries = environ.split(|&byte| byte == 0);
    let is_mark = |entry: &&[u8]| MARKS.iter().any(|mark| entry.starts_with(mark));
    entries.filter(is_mark).map(Into::into).collect()
}

/// Running processes that belong together: by their marks, and by descent from those that were found before.
///
/// A process that drops its environment keeps belonging as long as its parent or its group's leader was ever seen to.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    marks: Marks,
    /// Members seen so far, by number, with their start time.
    seen: BTreeMap<i32, u64>,
}

impl Family {
    pub(crate) fn new(marks: Marks, leaders: impl IntoIterator<Item = Stat>) -> Self {
        let seen = leaders.into_iter().map(|stat| (stat.pid, stat.start_time));
        Self { marks, seen: seen.collect() }
    }

    /// Returns the members that run in the snapshot. Never this process.
    pub(crate) fn running(&mut self, snapshot: &Snapshot) -> Vec<Stat> {
        let myself = i32::try_from(std::process::id()).expect("process numbers are below 2^22");
        let everyone = &snapshot.everyone;
        let mut members = BTreeMap::new();
        for stat in everyone.values().filter(|stat| stat.pid != myself) {
            let is_known = self.seen.get(&stat.pid) == Some(&stat.start_time);
            if is_known || snapshot.carries(stat.pid, &self.marks) {
                members.insert(stat.pid, *stat);
            }
        }
        loop {
            let related = |stat: &&Stat| {
                let by_descent = members.contains_key(&stat.parent);
                let by_group = members.contains_key(&stat.group);
                stat.pid != myself && !members.contains_key(&stat.pid) && (by_descent || by_group)
            };
            let found: Vec<Stat> = everyone.values().filter(related).copied().collect();
            if found.is_empty() {
                break;
            }
            members.extend(found.into_iter().map(|stat| (stat.pid, stat)));
        }
        let seen = members.values().map(|stat| (stat.pid, stat.start_time));
        self.seen.extend(seen);
        members.into_values().collect()
    }
}

fn everyone() -> io::Result<BTreeMap<i32, Stat>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some(stat) = pid.and_then(Stat::read).filter(Stat::is_running) {
            found.insert(stat.pid, stat);
        }
    }
    Ok(found)
}
