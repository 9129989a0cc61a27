//! `up` on a terminal.

use std::{
    fs::{File, OpenOptions},
    io::Read as _,
    os::unix::{fs::OpenOptionsExt as _, net::UnixStream, process::CommandExt as _},
    process::{Child, Command},
};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::site::{Site, keeps_every_rule, until, wait, workers};

/// A terminal with a command on it, which is the leader of its session.
pub(super) struct Terminal {
    master: File,
    shown: String,
    pub(super) child: Child,
}

impl Terminal {
    pub(super) fn run(site: &Site, args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        fcntl_setfl(&master, OFlags::NONBLOCK).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let flags = OFlags::NOCTTY.bits().cast_signed();
        let mut options = OpenOptions::new();
        let slave = options.read(true).write(true).custom_flags(flags).open(name).unwrap();
        let mut command = Command::new("setsid");
        command.arg0("setsid").arg("--ctty").arg(env!("CARGO_BIN_EXE_myelin")).args(args);
        command.env("MYELIN_STATE_DIR", site.state()).env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let child = command.spawn().expect("setsid of util-linux is installed");
        Self { master: master.into(), shown: String::new(), child }
    }

    /// Returns everything that was shown so far.
    fn shown(&mut self) -> &str {
        let mut bytes = [0; 4096];
        // Once the last process has closed the terminal, reading it fails.
        while let Ok(n @ 1..) = self.master.read(&mut bytes) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        &self.shown
    }

    pub(super) fn type_line(&mut self, line: &str) {
        std::io::Write::write_all(&mut self.master, format!("{line}\n").as_bytes()).unwrap();
    }

    pub(super) fn until_shown(&mut self, text: &str) {
        let mut last = String::new();
        until(text, || {
            self.shown().clone_into(&mut last);
            last.contains(text).then_some(())
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if !std::thread::panicking() {
            keeps_every_rule(None, self.shown());
        }
    }
}

#[test]
fn a_closed_terminal_leaves_the_machines() {
    let site = Site::new();
    let file = site.write("cluster.yaml", &workers(2, ""));
    let mut terminal = Terminal::run(&site, &["up", file.to_str().unwrap()]);
    terminal.until_shown("2/2 ready");
    let Terminal { child, .. } = &mut terminal;
    assert!(child.try_wait().unwrap().is_none());
    // Whoever holds the last end of it closes it, as a terminal's window does.
    terminal.master = File::open("/dev/null").unwrap();
    let status = wait(&mut terminal.child, "up without a terminal");
    assert_eq!(status.code(), Some(0));
    assert_eq!((site.agents("worker-0").len(), site.agents("worker-1").len()), (1, 1));
    assert_eq!(site.ok(&["down", "--yes"]), "removed 2 machines; nothing is left\n");
    site.nothing_is_left();
}

#[test]
fn the_live_view_has_a_line_for_each_group_and_each_moving_node() {
    let site = Site::new();
    let file = site.write("cluster.yaml", &workers(2, ", boot: {verify_commands: [sleep 1]}"));
    let path = file.to_str().unwrap();
    let mut terminal = Terminal::run(&site, &["up", path, "--until-converged"]);
    terminal.until_shown("░░░░░░░░░░░░░░░░░░░░\u{1b}[0m 0/2 ready");
    terminal.until_shown("waiting for the agent to join, at most ");
    terminal.until_shown("converged: 2 machines ready.");
    let status = wait(&mut terminal.child, "up");
    assert_eq!(status.code(), Some(0));
    let shown = terminal.shown();
    assert!(shown.contains("\u{1b}[32m ready \u{1b}[0m"), "the table has colours: {shown}");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_question_is_asked_on_a_terminal() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let mut terminal = Terminal::run(&site, &["down"]);
    terminal.until_shown("Remove 2 machines? [y/N] ");
    terminal.type_line("no");
    terminal.until_shown("error: not agreed, nothing was changed");
    assert_eq!(wait(&mut terminal.child, "down").code(), Some(1));
    assert_eq!(site.nodes().len(), 2);
    let mut terminal = Terminal::run(&site, &["down"]);
    terminal.until_shown("Remove 2 machines? [y/N] ");
    terminal.type_line("y");
    terminal.until_shown("removed 2 machines; nothing is left");
    assert_eq!(wait(&mut terminal.child, "down").code(), Some(0));
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn a_person_may_think_for_longer_than_the_loop_waits_for_a_request() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let renamed = site.write("renamed.yaml", &workers(1, "").replace("worker", "reworker"));
    let mut apply = Terminal::run(&site, &["apply", renamed.to_str().unwrap()]);
    apply.until_shown("This takes 1 node ready now. Go on? [y/N] ");
    let mut down = Terminal::run(&site, &["down"]);
    down.until_shown("Remove 1 machine? [y/N] ");
    // Whoever dialled before this one has been sent away by the time that it is.
    let mut idle = UnixStream::connect(site.state().join("control.sock")).unwrap();
    let mut told = String::new();
    idle.read_to_string(&mut told).unwrap();
    assert!(told.contains("no request came in time"), "{told}");
    apply.type_line("y");
    apply.until_shown("applied as generation 2");
    assert_eq!(wait(&mut apply.child, "apply").code(), Some(0));
    down.type_line("y");
    down.until_shown("nothing is left");
    assert_eq!(wait(&mut down.child, "down").code(), Some(0));
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}
