//! Links between pages: a link to a file of this repository leads somewhere.

/// Checks the inline links of a page. Code, blocks and spans alike, holds no links.
pub(super) fn check(
    path: &str,
    text: &str,
    exists: &dyn Fn(&str) -> bool,
    findings: &mut Vec<String>,
) {
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let mut in_code = false;
    for (line, number) in text.lines().zip(1..) {
        let fence = line.trim_start();
        if fence.starts_with("```") || fence.starts_with("~~~") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(&without_spans(line)) {
            match resolve(dir, &target) {
                Target::Elsewhere => {}
                Target::File(file) if exists(&file) => {}
                Target::File(_) | Target::Outside => {
                    findings.push(format!("{path}:{number}: link to {target} leads nowhere"));
                }
            }
        }
    }
}

/// Where a link leads.
enum Target {
    /// To a file or directory, by path from the root.
    File(String),
    /// To a file outside the repository.
    Outside,
    /// To another site, or within the page.
    Elsewhere,
}

fn resolve(dir: &str, target: &str) -> Target {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return Target::Elsewhere;
    }
    let mut parts: Vec<_> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Target::Outside;
                }
            }
            part => parts.push(part),
        }
    }
    Target::File(parts.join("/"))
}

/// Removes code spans: what stands between two backticks.
fn without_spans(line: &str) -> String {
    let parts: Vec<_> = line.split('`').collect();
    // An odd backtick begins no span.
    let n_closed = parts.len() - (parts.len() + 1) % 2;
    let outside =
        |(n, part): (usize, &&str)| (n % 2 == 0 || n >= n_closed).then(|| (*part).to_owned());
    parts.iter().enumerate().filter_map(outside).collect()
}

/// Returns the targets of `[text](target)` and `[text](target "title")`.
fn targets(line: &str) -> Vec<String> {
    let rests = line.split("](").skip(1);
    let target = |rest: &str| {
        let (target, _) = rest.split_once(')')?;
        let target = target.split_whitespace().next()?;
        Some(target.trim_matches(['<', '>']).to_owned())
    };
    rests.filter_map(target).collect()
}
