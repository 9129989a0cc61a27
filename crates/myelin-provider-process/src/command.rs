//! The processes of a session: a clean environment, a process group of their own, output to files.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::Stdio,
};

use tokio::process::{Child, Command};

use myelin_executor::OutputStream;

use crate::{
    Options,
    session::{SessionRecord, output_path},
};

/// Starts a verify command.
pub(crate) fn verify(
    options: &Options,
    lease: &Path,
    record: &SessionRecord,
    command: &str,
) -> io::Result<Child> {
    spawn(options, lease, record, &mut shell(command))
}

/// Starts the agent: the template's start command, or the one that comes with myelin.
pub(crate) fn start(options: &Options, lease: &Path, record: &SessionRecord) -> io::Result<Child> {
    let mut command = match &record.boot.start_swactor_command {
        Some(text) if record.boot.args.is_empty() => shell(text),
        Some(text) => shell(&format!("{text} \"$@\"")),
        None => agent(options, lease)?,
    };
    command.args(&record.boot.args);
    spawn(options, lease, record, &mut command)
}

fn agent(options: &Options, lease: &Path) -> io::Result<Command> {
    let no_agent = || io::Error::new(io::ErrorKind::InvalidInput, "the agent command is empty");
    let (program, args) = options.agent_command.split_first().ok_or_else(no_agent)?;
    let mut command = Command::new(program);
    command.args(args).arg("--join-file").arg(lease.join("join.json"));
    Ok(command)
}

/// A shell that runs the text; what is appended becomes its positional parameters.
fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text, "sh"]);
    command
}

fn spawn(
    options: &Options,
    lease: &Path,
    record: &SessionRecord,
    command: &mut Command,
) -> io::Result<Child> {
    let inherited = options.inherited_env.iter();
    let inherited = inherited.filter_map(|name| Some((name, std::env::var_os(name)?)));
    command
        .env_clear()
        .envs(inherited)
        .envs(record.boot.env.iter().map(|(name, value)| (OsStr::new(name), value)))
        .env("MYELIN_JOIN_FILE", lease.join("join.json"))
        .current_dir(lease)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output(lease, record, OutputStream::Stdout)?)
        .stderr(output(lease, record, OutputStream::Stderr)?);
    // Last, so that no template can take a process out of its lease.
    for mark in record.marks(lease).entries {
        let (name, value) = mark.split_once('=').expect("a mark is NAME=value");
        command.env(name, value);
    }
    command.spawn()
}

fn output(lease: &Path, record: &SessionRecord, stream: OutputStream) -> io::Result<File> {
    let path = output_path(lease, record.number, stream);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}
