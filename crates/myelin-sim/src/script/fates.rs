//! What goes wrong with the nth of something.

use myelin_executor::fake::CallKind;
use myelin_state::{BootstrapStage, ErrorClass};

use super::{
    line::{Line, ScriptError},
    read::LASTS,
};
use crate::{BootFate, CallFate, CommitFate, ReportFate};

pub(super) const CALLS: [(&str, CallKind); 11] = [
    ("identity", CallKind::Identity),
    ("create", CallKind::Create),
    ("find", CallKind::Find),
    ("endpoint", CallKind::Endpoint),
    ("presence", CallKind::Presence),
    ("destroy", CallKind::Destroy),
    ("list", CallKind::List),
    ("start", CallKind::Start),
    ("find-session", CallKind::FindSession),
    ("conclude", CallKind::Conclude),
    ("cancel", CallKind::Cancel),
];

pub(super) fn read_call_kind(line: &mut Line<'_>) -> Result<CallKind, ScriptError> {
    let word = line.word("which kind of call")?;
    let known = CALLS.iter().find(|(name, _)| *name == word);
    let names = CALLS.map(|(name, _)| name);
    known.map(|(_, kind)| *kind).ok_or_else(|| line.unknown("call", word, &names))
}

pub(super) fn read_call_fate(line: &mut Line<'_>) -> Result<CallFate, ScriptError> {
    const WORDS: [&str; 14] = [
        "slow",
        "loses-reply",
        "late",
        "hangs",
        "fails",
        "fails-after",
        "finds-nothing",
        "lists-half",
        "lists-old",
        "lies",
        "twice",
        "panics",
        "crash-before",
        "crash-after",
    ];
    let word = line.word("how it goes")?;
    Ok(match word {
        "slow" => CallFate::Slow(line.duration("how long it takes", LASTS)?),
        "loses-reply" => CallFate::LosesReply,
        "late" => CallFate::Late(line.duration("how late it is", LASTS)?),
        "hangs" => CallFate::Hangs,
        "fails" => CallFate::Fails(read_class(line)?),
        "fails-after" => CallFate::FailsAfter(read_class(line)?),
        "finds-nothing" => CallFate::FindsNothing,
        "lists-half" => CallFate::ListsHalf,
        "lists-old" => CallFate::ListsOld,
        "lies" => CallFate::Lies,
        "twice" => CallFate::Twice,
        "panics" => CallFate::Panics,
        "crash-before" => CallFate::CrashBefore,
        "crash-after" => CallFate::CrashAfter,
        other => return Err(line.unknown("way for a call to go", other, &WORDS)),
    })
}

pub(super) fn read_class(line: &mut Line<'_>) -> Result<ErrorClass, ScriptError> {
    const WORDS: [&str; 6] =
        ["transient", "ambiguous", "no-capacity", "permanent", "absent", "rate-limited=10s"];
    let word = line.word("the class of the failure")?;
    if let Some(pause) = word.strip_prefix("rate-limited=") {
        return Ok(ErrorClass::RateLimited(line.duration_in(pause, "the pause", LASTS)?));
    }
    Ok(match word {
        "transient" => ErrorClass::Transient,
        "ambiguous" => ErrorClass::Ambiguous,
        "no-capacity" => ErrorClass::NoCapacity,
        "permanent" => ErrorClass::Permanent,
        "absent" => ErrorClass::AlreadyAbsent,
        other => return Err(line.unknown("class of failure", other, &WORDS)),
    })
}

pub(super) const FAILED_STAGES: [(&str, BootstrapStage); 5] = [
    ("ssh", BootstrapStage::SshConnectFailed),
    ("check", BootstrapStage::BootCheckFailed),
    ("start", BootstrapStage::StartFailed),
    ("join", BootstrapStage::SwactorJoinFailed),
    ("stream", BootstrapStage::StreamError),
];

pub(super) fn read_boot_fate(line: &mut Line<'_>) -> Result<BootFate, ScriptError> {
    const WORDS: [&str; 6] = ["joins-first", "slow", "fails", "hangs", "repeats", "dies-after"];
    let word = line.word("how it goes")?;
    Ok(match word {
        "joins-first" => BootFate::JoinsFirst,
        "slow" => BootFate::Slow(line.duration("how much later", LASTS)?),
        "fails" => {
            let word = line.word("at what it fails")?;
            let known = FAILED_STAGES.iter().find(|(name, _)| *name == word);
            let names = FAILED_STAGES.map(|(name, _)| name);
            let stage = known.ok_or_else(|| line.unknown("failure of a boot", word, &names))?;
            BootFate::Fails(stage.1)
        }
        "hangs" => BootFate::Hangs,
        "repeats" => BootFate::Repeats,
        "dies-after" => BootFate::DiesAfter(line.duration("how much later", LASTS)?),
        other => return Err(line.unknown("way for a boot to go", other, &WORDS)),
    })
}

pub(super) const COMMITS: [(&str, CommitFate); 6] = [
    ("full", CommitFate::Full),
    ("locked", CommitFate::Locked),
    ("answer-lost", CommitFate::AnswerLost),
    ("crash-before", CommitFate::CrashBefore),
    ("crash-after", CommitFate::CrashAfter),
    ("power-loss", CommitFate::PowerLoss),
];

pub(super) fn read_commit_fate(line: &mut Line<'_>) -> Result<CommitFate, ScriptError> {
    let word = line.word("how it goes")?;
    let known = COMMITS.iter().find(|(name, _)| *name == word);
    let names = COMMITS.map(|(name, _)| name);
    known.map(|(_, fate)| *fate).ok_or_else(|| line.unknown("way for a commit to go", word, &names))
}

pub(super) fn read_report_fate(line: &mut Line<'_>) -> Result<ReportFate, ScriptError> {
    let word = line.word("how it goes")?;
    match word {
        "lost" => Ok(ReportFate::Lost),
        "late" => Ok(ReportFate::Late(line.duration("how late", LASTS)?)),
        "again" => Ok(ReportFate::Again(line.duration("how much later", LASTS)?)),
        other => Err(line.unknown("way for a report to go", other, &["late", "again", "lost"])),
    }
}
