//! The agent as the smallest program there is: `process-agent --join-file PATH`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let path = std::env::args_os().nth(2).unwrap_or_default();
    match myelin_agent::run_from_join_file(path.as_ref()).await {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(_) => ExitCode::FAILURE,
    }
}
