//! The figures of the node loop, measured and, where they count instructions or bytes, gated.
//!
//! Wall times drift on shared machines, so they are medians to read; gates are on instruction counts (callgrind) and
//! heap bytes, which do not drift. Each figure runs in a process of its own.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use crate::root;

/// Where the table is kept.
const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- begin figures -->\n";
const END: &str = "<!-- end figures -->\n";

/// How many nodes.
const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// The wall times of the table: name of the figure, title, divisor for display, unit, repeats.
const TIMES: &[(&str, &str, f64, &str, &str)] = &[
    ("cold", "cold plan", 1.0, "ns per node", "5"),
    ("steady", "steady full pass", 1.0, "ns per node", "9"),
    ("incremental", "incremental pass, 100 nodes dirty", 1000.0, "µs per pass", "31"),
    ("react", "folding 100 reports, and that pass", 1000.0, "µs per pass", "31"),
    ("converge", "full convergence, instant executor, with ledger", 1000.0, "µs per node", "3"),
    ("oracle", "oracle: `reconcile` of the converged cluster", 1.0, "ns per node", "5"),
];

/// How many nodes converge durably.
const DURABLE: u64 = 10_000;

/// Instruction counts are taken at these sizes: small enough for callgrind, far enough apart to show growth.
const COUNTED: [u64; 2] = [1_000, 100_000];

/// What the counts may be at most, per node or per pass; see `docs/benchmarks.md` for what they are.
const MOST_STEADY: f64 = 300.0;
/// A pass that looks at the same nodes may cost so much more in the larger cluster, for deeper trees.
const MOST_GROWTH: f64 = 2.0;
const MOST_BYTES: f64 = 700.0;

/// Measures, prints the table, and checks the gates; writes the table into the page if asked.
///
/// # Errors
///
/// A gate that does not hold, or a program that cannot be run.
pub(crate) fn run(write: bool) -> anyhow::Result<()> {
    let (figures, durable) = (build("myelin-driver", "figures")?, build("myelin", "durable")?);
    let mut table = machine();
    table += &times(&figures)?;
    table += &durability(&durable)?;
    let gated = gates(&figures)?;
    table += &gated.table;
    eprintln!("{table}");
    if write {
        replace_table(&root()?.join(PAGE), &table)?;
    }
    ensure!(gated.broken.is_empty(), "gates broken: {}", gated.broken.join("; "));
    Ok(())
}

/// Builds the program and returns where it is.
fn build(package: &str, bench: &str) -> anyhow::Result<PathBuf> {
    let args = format!("bench --package {package} --bench {bench} --no-run --message-format=json");
    let output = Command::new("cargo")
        .args(args.split(' '))
        .current_dir(root()?)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "`cargo {args}` ended with {}", output.status);
    let text = String::from_utf8(output.stdout).context("cargo prints text")?;
    let mut lines = text.lines().rev();
    let path = lines
        .find_map(|line| field(line, "\"executable\":\""))
        .context("cargo named no executable")?;
    Ok(path.into())
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("Machine: {model}, {cores} cores.\n\n")
}

fn times(figures: &Path) -> anyhow::Result<String> {
    let mut table =
        String::from("| figure | unit | 10³ | 10⁴ | 10⁵ | 10⁶ |\n|---|---|---|---|---|---|\n");
    for (name, title, divisor, unit, repeats) in TIMES {
        write!(table, "| {title} | {unit} |")?;
        for size in SIZES {
            let text = measure(Command::new(figures), name, size, repeats)?;
            write!(table, " {:.1} |", number(&text, "\"median\":")? / divisor)?;
        }
        table.push('\n');
    }
    Ok(table)
}

/// What durability adds to convergence.
fn durability(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).args([&DURABLE.to_string(), "3"]).output();
    let output = output.context("cannot measure durability")?;
    ensure!(output.status.success(), "durability ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut table = String::from(
        "\n| convergence of 10⁴ nodes, instant executor | seconds | runs of the driver | µs per run |\n|---|---|---|---|\n",
    );
    for (name, title) in
        [("memory", "state in memory"), ("disk", "every run committed to SQLite on disk")]
    {
        let line = text.lines().find(|line| line.contains(&format!("durable_{name}")));
        let line = line.with_context(|| format!("no figure of {name}"))?;
        let figure = |key: &str| number(line, key);
        let (seconds, passes) = (figure("\"seconds\":")?, figure("\"passes\":")?);
        writeln!(
            table,
            "| {title} | {seconds:.2} | {passes:.0} | {:.0} |",
            figure("\"us_per_pass\":")?
        )?;
    }
    Ok(table)
}

fn measure(mut program: Command, name: &str, size: u64, repeats: &str) -> anyhow::Result<String> {
    let output = program.args([name, &size.to_string(), repeats]).output();
    let output = output.with_context(|| format!("cannot measure {name}"))?;
    ensure!(output.status.success(), "{name} of {size} nodes ended with {}", output.status);
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    Ok(text)
}

struct Gates {
    table: String,
    broken: Vec<String>,
}

impl Gates {
    fn row(&mut self, title: &str, value: f64, most: f64) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.table, "| {title} | {value:.1} | {most:.0} |");
        if value > most {
            self.broken.push(format!("{title}: {value:.1}, at most {most:.0}"));
        }
    }
}

fn gates(figures: &Path) -> anyhow::Result<Gates> {
    let head = "\n| gate | measured | at most |\n|---|---|---|\n";
    let mut gates = Gates { table: head.to_owned(), broken: Vec::new() };
    let bytes = number(&measure(Command::new(figures), "memory", 100_000, "1")?, "\"median\":")?;
    gates.row("heap bytes per converged node, 10⁵ nodes", bytes, MOST_BYTES);
    let [small, large] = COUNTED;
    let steady = instructions(figures, "steady", large)?;
    gates.row(
        "instructions per node, steady full pass, 10⁵ nodes",
        steady / ratio(large, 1),
        MOST_STEADY,
    );
    let few = instructions(figures, "incremental", small)?;
    let many = instructions(figures, "incremental", large)?;
    gates.row("growth of an incremental pass from 10³ to 10⁵ nodes", many / few, MOST_GROWTH);
    let converge = instructions(figures, "converge", small)? / ratio(small, 1);
    let later = instructions(figures, "converge", large)? / ratio(large, 1);
    gates.row(
        "growth of convergence per node from 10³ to 10⁵ nodes",
        later / converge,
        MOST_GROWTH,
    );
    let _ = writeln!(
        gates.table,
        "\nInstructions: {:.0} per node looked at in an incremental pass, {later:.0} per node to converge (10⁵ nodes).",
        many / 100.0,
    );
    Ok(gates)
}

#[expect(clippy::cast_precision_loss, reason = "node counts are far below 2⁵²")]
fn ratio(numerator: u64, denominator: u64) -> f64 {
    numerator as f64 / denominator as f64
}

/// Counts the instructions of the functions that do what is measured, in one repeat.
fn instructions(figures: &Path, name: &str, size: u64) -> anyhow::Result<f64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=*measured_*",
    ]);
    valgrind.arg(figures);
    let text = measure(valgrind, name, size, "1").context("instruction counts need valgrind")?;
    number(&text, "Collected : ")
}

fn number(text: &str, key: &str) -> anyhow::Result<f64> {
    let Some((_, rest)) = text.split_once(key) else { bail!("no {key} in {text:?}") };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().with_context(|| format!("{key} is no number"))
}

fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(key)?;
    rest.split('"').next()
}

fn replace_table(page: &Path, table: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {PAGE}"))?;
    let split = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = split.with_context(|| format!("{PAGE} has no place for figures"))?;
    fs::write(page, format!("{before}{BEGIN}{table}{END}{after}"))
        .with_context(|| format!("cannot write {PAGE}"))
}

#[cfg(test)]
mod tests {
    use super::{field, number};

    #[test]
    fn figures_are_read_from_what_the_programs_print() {
        let line =
            r#"{"figure":"steady","nodes":10,"unit":"ns_per_node","median":41.1,"samples":[1]}"#;
        assert!((number(line, "\"median\":").unwrap() - 41.1).abs() < 1e-9);
        assert!(
            (number("==1== Collected : 864301", "Collected : ").unwrap() - 864_301.0).abs() < 1e-9
        );
        assert!(number(line, "Collected").is_err());
        assert_eq!(field(r#"{"executable":"/a/b"}"#, "\"executable\":\""), Some("/a/b"));
    }
}
