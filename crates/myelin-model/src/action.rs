//! Everything that can happen.

use std::fmt;

use myelin_state::ErrorClass;

use crate::Slot;

/// One thing that happens. Named by slot and not by attempt, so that it means the same in all states that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A bootstrap is started; the reply is on its way.
    Performs(Slot),
    /// An effect is carried out, unless it was, and its true result arrives.
    Replies(Slot),
    /// An effect that was to be stopped is: its executor says that it does not know, or that it failed.
    Stops {
        /// Whose effect.
        slot: Slot,
        /// Whether it has happened.
        happened: bool,
    },
    /// A bootstrap reports that it gets on.
    Progresses(Slot),
    /// A bootstrap reports its end after the join.
    Closes(Slot),
    /// An agent joins.
    Joins(Slot),
    /// That an agent is silent is noticed.
    IsMissed(Slot),
    /// An agent that was silent is heard.
    IsHeard(Slot),
    /// That a lease is gone is noticed.
    IsGone(Slot),
    /// A copy of an earlier message arrives.
    Late(u8),
    /// The time that the driver wants to be woken at comes. A fault if something on its way is slower than its deadline.
    TimePasses,
    /// Nothing is waited for, and time passes.
    Rests,
    /// Somebody applies what is wanted next.
    Applies,
    /// Somebody says `retry` about a node that is held for it.
    Retries(Slot),
    /// Somebody says `resume`.
    Resumes,
    /// Fault: somebody says `pause`.
    Pauses,
    /// Fault: somebody says `replace` about a node.
    IsReplaced(Slot),
    /// Fault: an effect fails without having happened.
    Fails(Slot, ErrorClass),
    /// Fault: that an endpoint is not there yet.
    IsNotReady(Slot),
    /// Fault: an effect ends, and whether it has happened is not known.
    EndsUnknown {
        /// Whose effect.
        slot: Slot,
        /// Whether it has happened.
        happened: bool,
    },
    /// Fault: the reply of an effect is lost.
    LosesReply {
        /// Whose effect.
        slot: Slot,
        /// Whether it has happened.
        happened: bool,
    },
    /// Fault: the reply of an effect arrives, and will arrive again.
    RepliesTwice(Slot),
    /// Fault: an agent joins, and that will be told again.
    JoinsTwice(Slot),
    /// Fault: silence is noticed, and that will be told again.
    IsMissedTwice(Slot),
    /// Fault: an agent that was silent is heard, and that will be told again.
    IsHeardTwice(Slot),
    /// Fault: that a lease is gone is noticed, and will be told again.
    IsGoneTwice(Slot),
    /// Fault: a bootstrap reports its end after the join, and that will be told again.
    ClosesTwice(Slot),
    /// Fault: a bootstrap fails.
    BootFails(Slot),
    /// Fault: a bootstrap fails, and that will be told again.
    BootFailsTwice(Slot),
    /// Fault: an effect cannot be handed to its executor.
    SubmitFails(Slot),
    /// Fault: nobody wakes the driver until all that it waits for is long over.
    Oversleeps,
    /// Fault: nothing can be recorded until all that the driver waits for is long over. The effects of these slots (one bit
    /// each) were not handed out before.
    StandsStill(u8),
    /// Fault: an agent dies.
    AgentDies(Slot),
    /// Fault: an agent is not heard any more.
    AgentIsCutOff(Slot),
    /// Fault: a machine is lost with all that runs on it.
    MachineDies(Slot),
    /// Fault: the control plane is killed, and goes on from what it has recorded.
    Crashes {
        /// For which slots (one bit each) what was asked for and not answered has happened.
        happened: u8,
        /// Whether it goes on only when all that it waited for is long over.
        long: bool,
    },
}

impl Action {
    /// Returns whether it is a fault whenever it happens. What people ask for beside the next shape counts as one.
    pub(crate) fn is_fault(self) -> bool {
        match self {
            Self::Performs(_)
            | Self::Replies(_)
            | Self::Stops { .. }
            | Self::Progresses(_)
            | Self::Closes(_)
            | Self::Joins(_)
            | Self::IsMissed(_)
            | Self::IsHeard(_)
            | Self::IsGone(_)
            | Self::Late(_)
            | Self::TimePasses
            | Self::Rests
            | Self::Applies
            | Self::Retries(_)
            | Self::Resumes => false,
            Self::Pauses
            | Self::IsReplaced(_)
            | Self::Fails(..)
            | Self::IsNotReady(_)
            | Self::EndsUnknown { .. }
            | Self::LosesReply { .. }
            | Self::RepliesTwice(_)
            | Self::JoinsTwice(_)
            | Self::IsMissedTwice(_)
            | Self::IsHeardTwice(_)
            | Self::IsGoneTwice(_)
            | Self::ClosesTwice(_)
            | Self::BootFails(_)
            | Self::BootFailsTwice(_)
            | Self::SubmitFails(_)
            | Self::Oversleeps
            | Self::StandsStill(_)
            | Self::AgentDies(_)
            | Self::AgentIsCutOff(_)
            | Self::MachineDies(_)
            | Self::Crashes { .. } => true,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = |happened: bool| if happened { "has happened" } else { "has not happened" };
        match self {
            Self::Performs(slot) => write!(f, "{slot}: its bootstrap starts"),
            Self::Replies(slot) => write!(f, "{slot}: its effect is done"),
            Self::Stops { slot, happened } => {
                write!(f, "{slot}: its effect is stopped, and {}", effect(*happened))
            }
            Self::Progresses(slot) => write!(f, "{slot}: its bootstrap gets on"),
            Self::Closes(slot) => write!(f, "{slot}: its bootstrap closes"),
            Self::Joins(slot) => write!(f, "{slot}: its agent joins"),
            Self::IsMissed(slot) => write!(f, "{slot}: its agent is missed"),
            Self::IsHeard(slot) => write!(f, "{slot}: its agent is heard"),
            Self::IsGone(slot) => write!(f, "{slot}: its lease is found gone"),
            Self::Late(n) => write!(f, "late message {n} arrives"),
            Self::TimePasses => f.write_str("time passes"),
            Self::Rests => f.write_str("time passes, and nobody waits for it"),
            Self::Applies => f.write_str("the next shape is applied"),
            Self::Retries(slot) => write!(f, "{slot}: retry is asked"),
            Self::Resumes => f.write_str("resume is asked"),
            Self::Pauses => f.write_str("fault: pause is asked"),
            Self::IsReplaced(slot) => write!(f, "fault: {slot}: replace is asked"),
            Self::Fails(slot, class) => write!(f, "fault: {slot}: its effect fails ({class})"),
            Self::IsNotReady(slot) => write!(f, "fault: {slot}: its endpoint is not there yet"),
            Self::EndsUnknown { slot, happened } => {
                let effect = effect(*happened);
                write!(f, "fault: {slot}: its effect ends, nobody knows how; it {effect}")
            }
            Self::LosesReply { slot, happened } => {
                let effect = effect(*happened);
                write!(f, "fault: {slot}: the reply to its effect is lost; it {effect}")
            }
            Self::RepliesTwice(slot) => write!(f, "fault: {slot}: its effect is done, told twice"),
            Self::JoinsTwice(slot) => write!(f, "fault: {slot}: its agent joins, told twice"),
            Self::IsMissedTwice(slot) => {
                write!(f, "fault: {slot}: its agent is missed, told twice")
            }
            Self::IsHeardTwice(slot) => write!(f, "fault: {slot}: its agent is heard, told twice"),
            Self::IsGoneTwice(slot) => {
                write!(f, "fault: {slot}: its lease is found gone, told twice")
            }
            Self::ClosesTwice(slot) => write!(f, "fault: {slot}: its bootstrap closes, told twice"),
            Self::BootFails(slot) => write!(f, "fault: {slot}: its bootstrap fails"),
            Self::BootFailsTwice(slot) => {
                write!(f, "fault: {slot}: its bootstrap fails, told twice")
            }
            Self::SubmitFails(slot) => write!(f, "fault: {slot}: its effect cannot be handed out"),
            Self::Oversleeps => f.write_str("fault: every deadline is slept through"),
            Self::StandsStill(unsent) => {
                write!(f, "fault: nothing can be recorded for long; not handed out: {unsent:02b}")
            }
            Self::AgentDies(slot) => write!(f, "fault: {slot}: its agent dies"),
            Self::AgentIsCutOff(slot) => write!(f, "fault: {slot}: its agent is cut off"),
            Self::MachineDies(slot) => write!(f, "fault: {slot}: its machine dies"),
            Self::Crashes { happened, long } => {
                let after = if *long { ", long after" } else { "" };
                write!(f, "fault: the control plane is killed and started again{after}; ")?;
                write!(f, "happened: {happened:02b}")
            }
        }
    }
}
