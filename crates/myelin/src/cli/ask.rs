//! Questions to the person at the terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::failure::Failure;

/// Asks whether to go on. Without a terminal nobody can answer, and it is refused.
pub(super) fn confirm(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new(format!("{question} Nobody is there to answer"))
            .hint("`--yes` agrees beforehand"));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ");
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        (Ok(_) | Err(_), _) => {
            Err(Failure::new("not agreed, nothing was changed").hint("`--yes` agrees beforehand"))
        }
    }
}
