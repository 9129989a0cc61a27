//! The command: what people type, and what they are shown.
//!
//! Each module is one verb or a few that belong together. None of them decides anything about nodes: they start a
//! [`Host`](crate::host::Host), or ask a running one over its control socket, and print a [view](crate::view).
//!
//! Exit status: 0 done, 1 refused or failed, 2 usage (or changes, with `plan --detailed-exitcode`), 3 not converged,
//! 101 a broken rule, which only builds with debug assertions look for. Results go to standard output, everything else
//! to standard error; an error ends with a `hint:` line.
//!
//! Reading order: [`run`], `args`, `up`, `plan`, `read`, `operate`, `down`, `census`, `backup`, `sim`.

mod args;
mod ask;
mod backup;
mod census;
mod connect;
mod down;
mod failure;
mod log;
mod meta;
mod operate;
mod output;
mod plan;
mod progress;
mod read;
mod sim;
mod table;
mod terminal;
mod time;
mod up;

#[cfg(test)]
mod tests;

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use clap::Parser as _;

use self::{
    args::{Cli, Command},
    failure::Failure,
};

/// Everything a command may end with, beside a failure.
type Outcome = Result<u8, Failure>;

/// Not converged, in time or without a person.
const NOT_CONVERGED: u8 = 3;

/// Runs the command and returns its exit status.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Without a terminal there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Command::Agent { join_file } = &cli.command {
        return agent(join_file);
    }
    if let Command::Sim(args) = &cli.command {
        // It has runtimes of its own, and what goes wrong in a simulated world is no news of this one.
        if cli.globals.verbose > 0 {
            log::init(&cli.globals);
        }
        return ended(sim::sim(args));
    }
    log::init(&cli.globals);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(dispatch(cli));
            // Nothing of ours is left to wait for, and a stuck read of a terminal must not keep us.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(Failure::new(format!("cannot start: {error}"))),
    };
    ended(outcome)
}

fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let _ = write!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.status())
        }
    }
}

/// The agent's own life is on one thread: there may be hundreds of it on a machine.
fn agent(join_file: &std::path::Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map(|runtime| {
        let agent = myelin_agent::run_from_join_file(join_file);
        runtime.block_on(agent)
    });
    let error: Box<dyn std::error::Error> = match ended {
        Ok(Ok(exit)) => return ExitCode::from(exit.code()),
        Ok(Err(error)) => error.into(),
        Err(error) => error.into(),
    };
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "agent: {error}{source}");
    ExitCode::FAILURE
}

async fn dispatch(cli: Cli) -> Outcome {
    let globals = cli.globals;
    match cli.command {
        Command::Up(args) => up::up(&globals, args).await,
        Command::Plan(args) => plan::plan(&globals, args).await,
        Command::Apply(args) => plan::apply(&globals, args).await,
        Command::Status(args) => read::status(&globals, args).await,
        Command::Nodes(args) => read::nodes(&globals, args).await,
        Command::Explain(args) => read::explain(&globals, args).await,
        Command::Events(args) => read::events(&globals, args).await,
        Command::Logs(args) => read::logs(&globals, args).await,
        Command::Retry(args) => operate::retry(&globals, args).await,
        Command::Replace(args) => operate::replace(&globals, args).await,
        Command::Abandon(args) => operate::abandon(&globals, args).await,
        Command::Pause => operate::pause(&globals).await,
        Command::Resume => operate::resume(&globals).await,
        Command::Down(args) => down::down(&globals, args).await,
        Command::Census(args) => census::census(&globals, args).await,
        Command::Backup(args) => backup::backup(&globals, args).await,
        Command::Restore(args) => backup::restore(&globals, args).await,
        Command::Schema => meta::schema(),
        Command::Completions { shell } => meta::completions(shell),
        Command::Man => meta::man(),
        Command::Debug { what } => operate::debug(&globals, what).await,
        Command::Agent { .. } | Command::Sim(_) => {
            Err(Failure::new("this is run before anything else"))
        }
    }
}
