//! The `myelin` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    myelin::cli::run(std::env::args_os())
}
