//! What the command says about itself.

use clap::CommandFactory as _;

use super::{Outcome, args::Cli, failure::Failure, output};

pub(super) fn schema() -> Outcome {
    let text = serde_json::to_string_pretty(&crate::file::schema());
    let text = text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    output::print(&(text + "\n"))?;
    Ok(0)
}

pub(super) fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "myelin", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

pub(super) fn man() -> Outcome {
    let mut page = Vec::new();
    let mut pages = vec![Cli::command()];
    pages[0].build();
    let verbs: Vec<_> =
        pages[0].get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    pages.extend(verbs.into_iter().map(|verb| {
        let name = format!("myelin-{}", verb.get_name());
        verb.display_name(name)
    }));
    for command in pages {
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.map_err(|error| Failure::new(format!("cannot write the page: {error}")))?;
    }
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
