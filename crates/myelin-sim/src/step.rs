//! Everything that can happen to a simulated cluster.
//!
//! A [`Step`] is either something that comes at a time, or what the nth of something does. It holds nothing that was
//! drawn at random, so a list of steps is a history that can be played again, cut down, and read.

use std::{fmt, time::Duration};

use myelin_executor::fake::CallKind;
use myelin_shape::{LogicalNodeId, NodeGroupId, RunNodeGroupSpec};
use myelin_state::{BootstrapStage, ErrorClass, OperatorRequest};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Something comes, so long after the start.
    At(Duration, Happening),
    /// The nth call of a kind goes like this, counted from 1 over the whole run.
    Call(CallKind, u32, CallFate),
    /// The nth bootstrap goes like this.
    Boot(u32, BootFate),
    /// The nth commit goes like this.
    Commit(u32, CommitFate),
    /// The nth report to the driver goes like this.
    Report(u32, ReportFate),
}

/// What comes from outside, at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// Somebody wants these groups and no others.
    Want(Vec<RunNodeGroupSpec>),
    /// An operator stops all effects.
    Pause,
    /// An operator starts them again.
    Resume,
    /// An operator asks something of a node.
    Ask(LogicalNodeId, OperatorRequest),
    /// An operator asks something of a group.
    AskGroup(NodeGroupId, OperatorRequest),
    /// The machine of a slot ceases to exist, and all that runs on it.
    MachineDies(LogicalNodeId),
    /// The agent of a slot ends without a word.
    AgentDies(LogicalNodeId),
    /// The agent of a slot says nothing for so long.
    AgentStops(LogicalNodeId, Duration),
    /// Another agent presents the token of a slot's attempt.
    AgentTwin(LogicalNodeId),
    /// Nothing of any agent arrives for so long.
    Sever(Duration),
    /// Every call of the provider fails for so long.
    Outage(Duration, ErrorClass),
    /// Listings hold nothing for so long, as those of a wrong account do.
    ListsNothing(Duration),
    /// Another account answers for so long.
    OtherAccount(Duration),
    /// The control plane is killed, and started again so much later.
    Crash(Duration),
    /// As a crash; and what was committed after the last barrier is lost.
    PowerLoss(Duration),
    /// The clock of the host is set; whoever runs does not see it, whoever starts does.
    ClockJumps(Jump),
}

/// By how much a clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// Forwards.
    Ahead(Duration),
    /// Backwards.
    Back(Duration),
}

/// How a call of the provider goes.
#[derive(Clone, Debug, PartialEq)]
pub enum CallFate {
    /// It works, and takes this long.
    Slow(Duration),
    /// It works, and its answer is lost.
    LosesReply,
    /// It works this much later, and never answers.
    Late(Duration),
    /// It does nothing and never answers.
    Hangs,
    /// It fails without effect.
    Fails(ErrorClass),
    /// It works, and fails all the same.
    FailsAfter(ErrorClass),
    /// It says that nothing is there, whatever is; what makes or ends something fails.
    FindsNothing,
    /// It lists every second lease only.
    ListsHalf,
    /// It lists what there was when the listing before it was made.
    ListsOld,
    /// It does nothing and says that it did.
    Lies,
    /// It takes effect twice.
    Twice,
    /// It panics.
    Panics,
    /// The control plane is killed when it is about to be made.
    CrashBefore,
    /// The control plane is killed when it has taken effect.
    CrashAfter,
}

/// How a bootstrap goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootFate {
    /// The agent joins before the start is answered.
    JoinsFirst,
    /// The agent joins so much later.
    Slow(Duration),
    /// It reports this stage, and no agent comes.
    Fails(BootstrapStage),
    /// Nothing more is heard.
    Hangs,
    /// It reports every stage three times.
    Repeats,
    /// The agent joins, and ends so much later.
    DiesAfter(Duration),
}

/// How a commit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFate {
    /// The disk is full.
    Full,
    /// Somebody holds the database.
    Locked,
    /// It takes effect, and its answer is lost.
    AnswerLost,
    /// The control plane is killed before it takes effect.
    CrashBefore,
    /// The control plane is killed after it took effect.
    CrashAfter,
    /// As that, and what was committed after the last barrier is lost.
    PowerLoss,
}

/// How a report to the driver goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFate {
    /// It comes so much later.
    Late(Duration),
    /// It comes, and so much later once more.
    Again(Duration),
    /// It never comes.
    Lost,
}

/// Where something can go wrong: the nth of something, as in a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A call of a kind.
    Call(CallKind, u32),
    /// A bootstrap.
    Boot(u32),
    /// A commit.
    Commit(u32),
    /// A report to the driver.
    Report(u32),
    /// A report that an agent is silent: counted as the others, and never lost.
    Silence(u32),
}

impl Step {
    /// Returns whether it breaks what a provider promises: then two machines of a slot at once are not our doing.
    pub fn is_a_lie(&self) -> bool {
        let (kind, fate) = match self {
            Self::Call(kind, _, fate) => (kind, fate),
            // Whoever says so of everything says it of what is there.
            Self::At(_, Happening::Outage(_, class)) => return *class == ErrorClass::AlreadyAbsent,
            Self::At(..) | Self::Boot(..) | Self::Commit(..) | Self::Report(..) => return false,
        };
        match fate {
            CallFate::Lies => *kind != CallKind::Conclude,
            CallFate::Twice => matches!(kind, CallKind::Create | CallKind::Start),
            CallFate::FindsNothing => {
                matches!(kind, CallKind::Find | CallKind::FindSession | CallKind::Presence)
            }
            CallFate::FailsAfter(class) => {
                matches!(kind, CallKind::Create | CallKind::Start)
                    && *class != ErrorClass::Ambiguous
            }
            CallFate::Fails(class) => {
                matches!(kind, CallKind::Destroy | CallKind::Cancel)
                    && *class == ErrorClass::AlreadyAbsent
            }
            CallFate::Slow(_)
            | CallFate::LosesReply
            | CallFate::Late(_)
            | CallFate::Hangs
            | CallFate::ListsHalf
            | CallFate::ListsOld
            | CallFate::Panics
            | CallFate::CrashBefore
            | CallFate::CrashAfter => false,
        }
    }

    /// Returns the short name of what goes wrong, for counting.
    pub fn name(&self) -> String {
        match self {
            Self::At(_, happening) => happening.name(),
            Self::Call(kind, _, fate) => format!("call {} {}", word(kind), word(fate)),
            Self::Boot(_, fate) => format!("boot {}", word(fate)),
            Self::Commit(_, fate) => format!("commit {}", word(fate)),
            Self::Report(_, fate) => format!("report {}", word(fate)),
        }
    }
}

impl Happening {
    /// Returns the short name, for counting.
    pub(crate) fn name(&self) -> String {
        word(self)
    }
}

/// Returns the name of a variant.
fn word(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(|it: char| !it.is_alphanumeric()).unwrap_or(text.len());
    text[..end].to_owned()
}
