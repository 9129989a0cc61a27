//! A state directory whose files are not as they were left: nothing is done to any machine, and the file is named.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::{Pid, geteuid};

use super::site::{Site, stderr, workers};

/// What is durable of a run. The log and its index may be absent.
const FILES: [&str; 4] = ["state.db", "state.db-wal", "state.db-shm", "state.mark"];

/// A run with machines and no loop.
struct Left {
    site: Site,
    file: PathBuf,
    agents: Vec<Pid>,
    leases: Vec<String>,
}

impl Left {
    fn new(count: u32) -> Self {
        let site = Site::new();
        let file = site.write("cluster.yaml", &workers(count, ""));
        site.ok(&["up", file.to_str().unwrap(), "--until-converged"]);
        let (agents, leases) = (site.all_agents(), site.leases());
        assert_eq!((agents.len(), leases.len()), (count as usize, count as usize));
        Self { site, file, agents, leases }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.state().join(name)
    }

    /// Scales the run, so that what was kept before is old.
    fn scale(&mut self, count: u32) {
        self.site.write("cluster.yaml", &workers(count, ""));
        self.site.ok(&["up", self.file.to_str().unwrap(), "--until-converged"]);
        (self.agents, self.leases) = (self.site.all_agents(), self.site.leases());
    }

    /// Checks that nobody acts on what is there, and returns what the commands say.
    fn refused(&self) -> [String; 2] {
        let said = [&["up", self.file.to_str().unwrap(), "--yes"][..], &["down", "--yes"]]
            .map(|args| self.site.fails(1, args));
        self.untouched();
        said
    }

    fn untouched(&self) {
        assert_eq!(self.site.all_agents(), self.agents);
        assert_eq!(self.site.leases(), self.leases);
    }

    /// Checks that the run goes on and can be ended once its files are back.
    fn end(self) {
        self.site.ok(&["up", self.file.to_str().unwrap(), "--until-converged"]);
        self.untouched();
        self.site.ok(&["down", "--yes"]);
        self.site.nothing_is_left();
    }
}

fn keep(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in FILES {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// Puts kept files back, and removes those of them that were not there.
fn put_back(kept: &Path, state: &Path, names: &[&str]) {
    for name in names {
        fs::remove_file(state.join(name)).ok();
        if kept.join(name).exists() {
            fs::copy(kept.join(name), state.join(name)).unwrap();
        }
    }
}

fn names_file(said: &[String; 2], path: &Path) {
    for text in said {
        assert!(text.contains(path.to_str().unwrap()), "{} is named: {text}", path.display());
    }
}

#[test]
fn who_has_lost_the_state_removes_what_the_providers_list() {
    let left = Left::new(2);
    fs::write(left.path("state.db"), b"no database").unwrap();
    let refused = left.site.fails(1, &["down", "--yes"]);
    assert!(refused.contains("myelin down --without-state"), "{refused}");
    left.untouched();
    let said = left.site.ok(&["down", "--without-state", "--yes"]);
    assert!(said.contains("removed 2 machines; nothing is left."), "{said}");
    left.site.nothing_is_left();
}

#[test]
fn an_older_copy_of_the_state_is_noticed_and_nothing_is_acted_on() {
    let mut left = Left::new(1);
    let state = left.site.state().to_owned();
    let (old, new) = (state.with_file_name("old"), state.with_file_name("new"));
    keep(&state, &old);
    left.scale(3);
    keep(&state, &new);

    put_back(&old, &state, &FILES[..3]);
    let said = left.refused();
    names_file(&said, &left.path("state.db"));
    assert!(said[0].contains("is behind what was acted on: "), "{}", said[0]);

    // With the mark put back as well, only the machines show that something is missing.
    put_back(&old, &state, &FILES);
    for text in left.refused() {
        assert!(text.contains("the store is behind: "), "{text}");
        assert!(text.contains(" was made for attempt 2 of worker-2"), "{text}");
        assert!(text.contains("the store's next attempt is 1"), "{text}");
    }

    put_back(&new, &state, &FILES);
    left.end();
}

#[test]
fn a_mark_that_is_lost_is_named_and_nothing_is_acted_on() {
    let left = Left::new(1);
    let mark = fs::read(left.path("state.mark")).unwrap();
    for damage in [None, Some(vec![0; mark.len()])] {
        match damage {
            None => fs::remove_file(left.path("state.mark")).unwrap(),
            Some(bytes) => fs::write(left.path("state.mark"), bytes).unwrap(),
        }
        names_file(&left.refused(), &left.path("state.mark"));
    }
    fs::write(left.path("state.mark"), mark).unwrap();
    left.end();
}

#[test]
fn damaged_state_is_named_and_left_as_it_is() {
    let left = Left::new(2);
    let path = left.path("state.db");
    let state = left.site.state().to_owned();
    let kept = state.with_file_name("kept");
    keep(&state, &kept);
    let flip = |at: usize| {
        let mut bytes = fs::read(kept.join("state.db")).unwrap();
        bytes[at] ^= 0x40;
        bytes
    };
    let whole = fs::read(kept.join("state.db")).unwrap().len();
    let half = fs::read(kept.join("state.db")).unwrap()[..whole / 2].to_vec();
    let damages = [flip(3), flip(30), half, b"not a database at all".repeat(500), Vec::new()];
    for damage in damages {
        put_back(&kept, &state, &FILES);
        for log in ["state.db-wal", "state.db-shm"] {
            fs::remove_file(left.path(log)).ok();
        }
        fs::write(&path, &damage).unwrap();
        names_file(&left.refused(), &path);
        assert!(fs::read(&path).unwrap() == damage, "it is kept for a repair by hand");
    }
    put_back(&kept, &state, &FILES);
    left.end();
}

#[test]
fn state_that_is_gone_is_not_begun_anew_beside_the_mark() {
    let left = Left::new(1);
    let state = left.site.state().to_owned();
    let kept = state.with_file_name("kept");
    keep(&state, &kept);
    for name in &FILES[..3] {
        fs::remove_file(left.path(name)).ok();
    }
    names_file(&left.refused(), &state);
    assert!(!left.path("state.db").exists());
    put_back(&kept, &state, &FILES);
    left.end();
}

/// Returns a command that permissions mean something to: the superuser's are taken from it.
fn unprivileged(site: &Site, args: &[&str]) -> Command {
    let myelin = site.command();
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"]);
        command.arg(myelin.get_program());
        command
    } else {
        Command::new(myelin.get_program())
    };
    command.args(args).env("MYELIN_STATE_DIR", site.state()).stdin(std::process::Stdio::null());
    command
}

#[test]
fn state_that_cannot_be_written_is_named_and_nothing_is_acted_on() {
    let left = Left::new(1);
    let allow = |name: &str, mode: u32| {
        fs::set_permissions(left.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let present: Vec<_> = FILES.into_iter().filter(|name| left.path(name).exists()).collect();
    let files = |mode: u32| present.iter().for_each(|name| allow(name, mode));
    for (of_directory, of_files) in [(0o500, 0o600), (0o700, 0o400), (0o500, 0o400)] {
        files(of_files);
        allow("", of_directory);
        for args in [&["up", left.file.to_str().unwrap(), "--yes"][..], &["down", "--yes"]] {
            let output = unprivileged(&left.site, args).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{of_directory:o} {of_files:o}: {said}");
            let place = left.site.state().to_str().unwrap();
            assert!(said.contains(place) && said.contains("\nhint: "), "{said}");
        }
        allow("", 0o700);
        files(0o600);
        left.untouched();
    }
    left.end();
}

#[test]
fn who_cannot_look_for_the_state_is_not_told_that_nothing_is_left() {
    let left = Left::new(1);
    let database = left.path("state.db");
    let away = left.path("away");
    fs::rename(&database, &away).unwrap();
    // Whether it exists cannot be told: it leads to itself.
    std::os::unix::fs::symlink(&database, &database).unwrap();
    for args in [&["down", "--yes"][..], &["census"], &["status"], &["backup", "copy.db"]] {
        let refused = left.site.fails(1, args);
        assert!(refused.contains("cannot look for ") && refused.contains("state.db"), "{refused}");
    }
    fs::rename(&away, &database).unwrap();
    left.site.ok(&["down", "--yes"]);
    left.site.nothing_is_left();
}
