//! `myelin-agent --join-file PATH`: the agent as a program of its own.

use std::{error::Error, io::Write as _, path::PathBuf, process::ExitCode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let path = match (args.next(), args.next(), args.next()) {
        (Some(flag), Some(path), None) if flag == "--join-file" => PathBuf::from(path),
        _ => return fail(&"usage: myelin-agent --join-file PATH", None),
    };
    match myelin_agent::run_from_join_file(&path).await {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => fail(&error, error.source()),
    }
}

fn fail(what: &dyn std::fmt::Display, why: Option<&dyn Error>) -> ExitCode {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    // Without a standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "agent: {what}{why}");
    ExitCode::FAILURE
}
