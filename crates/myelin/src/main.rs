//! The `myelin` command.

fn main() {}
