//! Calls of the provider: when they take effect, and whether anybody hears of it.

use std::{fmt, time::Duration};

use tokio::sync::oneshot;

use myelin_executor::{
    CreateRequest, FoundLease, FoundSession, NewLease, Presence, ProviderError, ProviderIdentity,
    StartRequest, fake::CallKind,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid};
use myelin_state::{Connection, ErrorClass, LeaseFacts};

use super::{Due, World, effects::facts};
use crate::{CallFate, Place, Step, script::call_name, story::is_of_sweeps};

/// What was asked.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Identity,
    Create(Box<CreateRequest>),
    Find(AttemptKey),
    Endpoint(Box<LeaseFacts>),
    Presence(Box<LeaseFacts>),
    Destroy(Box<LeaseFacts>),
    List(ClusterUid),
    Start(Box<StartRequest>),
    FindSession(AttemptKey),
    Conclude(BootstrapSessionId),
    Cancel(BootstrapSessionId),
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Identity(ProviderIdentity),
    Lease(Box<NewLease>),
    Leases(Vec<FoundLease>),
    Endpoint(Option<Connection>),
    Presence(Presence),
    Session(BootstrapSessionId),
    FoundSession(Option<FoundSession>),
    Done,
}

pub(super) type Reply = Result<Answer, ProviderError>;

/// A call under way.
#[derive(Debug)]
pub(crate) struct Flight {
    number: u64,
    incarnation: u64,
    request: Request,
    sender: oneshot::Sender<Reply>,
    fate: Option<CallFate>,
    nth: u32,
    is_told: bool,
    asked_at: Duration,
    answers_in: Duration,
    /// When whoever waited for the answer stopped waiting, or died.
    given_up_at: Option<Duration>,
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answering {
    incarnation: u64,
    asked_at: Duration,
    request: Request,
    sender: oneshot::Sender<Reply>,
    reply: Reply,
}

impl Request {
    fn kind(&self) -> CallKind {
        match self {
            Self::Identity => CallKind::Identity,
            Self::Create(_) => CallKind::Create,
            Self::Find(_) => CallKind::Find,
            Self::Endpoint(_) => CallKind::Endpoint,
            Self::Presence(_) => CallKind::Presence,
            Self::Destroy(_) => CallKind::Destroy,
            Self::List(_) => CallKind::List,
            Self::Start(_) => CallKind::Start,
            Self::FindSession(_) => CallKind::FindSession,
            Self::Conclude(_) => CallKind::Conclude,
            Self::Cancel(_) => CallKind::Cancel,
        }
    }
}

impl Request {
    /// Returns what it makes, if it makes something.
    pub(super) fn made(&self) -> Option<(CallKind, AttemptKey)> {
        if let Self::Create(request) = self {
            Some((CallKind::Create, request.key.clone()))
        } else if let Self::Start(request) = self {
            Some((CallKind::Start, request.key.clone()))
        } else {
            None
        }
    }

    /// Returns whether it ends something.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Self::Destroy(_) | Self::Cancel(_))
    }

    /// Returns what it is about.
    fn what(&self) -> String {
        let attempt = |key: &AttemptKey| format!("{}#{}", key.node, key.attempt);
        match self {
            Self::Identity => "the account".to_owned(),
            Self::Create(request) => attempt(&request.key),
            Self::Start(request) => attempt(&request.key),
            Self::Find(key) | Self::FindSession(key) => attempt(key),
            Self::Endpoint(lease) | Self::Presence(lease) | Self::Destroy(lease) => {
                lease.lease_id.to_string()
            }
            Self::List(_) => "every machine".to_owned(),
            Self::Conclude(session) | Self::Cancel(session) => format!("session {}", session.0),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", call_name(self.kind()), self.what())
    }
}

/// What a call does to whoever makes it, beside answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It waits for the answer of the flight of this number; none has number 0.
    Waits(u64),
    Panics,
}

impl World {
    /// Takes a call of a control plane. A dead one makes none.
    pub(super) fn begin(
        &mut self,
        incarnation: u64,
        request: Request,
        sender: oneshot::Sender<Reply>,
    ) -> Begun {
        if !self.lives(incarnation) {
            return Begun::Waits(0);
        }
        let kind = request.kind();
        let nth = self.counts.calls.entry(kind).or_default();
        *nth += 1;
        let nth = *nth;
        self.pass(Place::Call(kind, nth));
        let fate = self.fates.calls.remove(&(kind, nth));
        if let Some(fate) = &fate {
            self.note_played(&Step::Call(kind, nth, fate.clone()));
        }
        let is_told = fate.is_some() || !is_of_sweeps(kind);
        let call = format!("{} {nth}", call_name(kind));
        self.write_down(is_told, || format!("> {call}: {}", request.what()));
        self.check_recorded(&request);
        self.check_attempt(&request);
        match fate {
            Some(CallFate::CrashBefore) => {
                self.crash(&format!("before {request}"), None, false);
                return Begun::Waits(0);
            }
            Some(CallFate::Panics) => return Begun::Panics,
            _ => {}
        }
        self.check_unknown(&request);
        let (effect_in, answers_in) = self.times(kind, nth, fate.as_ref());
        self.n_flights += 1;
        let number = self.n_flights;
        let flight = Box::new(Flight {
            number,
            incarnation,
            request,
            sender,
            fate,
            is_told,
            nth,
            asked_at: self.now(),
            answers_in,
            given_up_at: None,
        });
        self.schedule_in(effect_in, Due::Effect(flight));
        Begun::Waits(number)
    }

    /// Nobody waits for the answer of a call any more. What it does takes effect within a settle window all the same:
    /// after that "not found" is evidence, and a provider that made something later would break what it promises.
    pub(super) fn give_up(&mut self, number: u64, made: Option<&(CallKind, AttemptKey)>) {
        if let Some(made) = made {
            self.note_unknown(made);
        }
        let is_it = |due: &Due| matches!(due, Due::Effect(flight) if flight.number == number);
        let planned = self.timeline.iter().find(|(_, due)| is_it(due)).map(|(&key, _)| key);
        if let Some(key) = planned
            && let Some(Due::Effect(mut flight)) = self.timeline.remove(&key)
        {
            let now = self.now();
            flight.given_up_at = Some(now);
            self.schedule(key.0.min(now + self.config.settle_window), Due::Effect(flight));
        }
    }

    /// Returns after how long a call takes effect, and how long after that it answers if it does.
    fn times(&self, kind: CallKind, nth: u32, fate: Option<&CallFate>) -> (Duration, Duration) {
        let takes = match fate {
            Some(CallFate::Slow(by) | CallFate::Late(by)) => *by,
            _ => self.latency_of(u64::from(nth) * 31 + kind as u64),
        };
        let effect_in = match kind {
            CallKind::Create
            | CallKind::Destroy
            | CallKind::Start
            | CallKind::Conclude
            | CallKind::Cancel => match fate {
                // It never answers.
                Some(CallFate::Late(_)) => takes,
                // What is done is done at any time until the answer.
                _ => takes * self.percent_of(u64::from(nth) * 37 + kind as u64) / 100,
            },
            // What is answered was true at some time between question and answer: at one end or the other.
            CallKind::Identity
            | CallKind::Find
            | CallKind::Endpoint
            | CallKind::Presence
            | CallKind::List
            | CallKind::FindSession => takes * (nth % 2),
        };
        (effect_in, takes.saturating_sub(effect_in))
    }

    /// Returns how long the nth of something takes: from nothing to the longest, evenly and always the same.
    fn latency_of(&self, nth: u64) -> Duration {
        let millis = self.config.latency.as_millis() * u128::from(self.percent_of(nth)) / 100;
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn percent_of(&self, nth: u64) -> u32 {
        let mut mixed = (self.config.jitter ^ nth).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        u32::try_from((mixed >> 32) % 101).unwrap_or(100)
    }

    /// Lets a call take effect, and answer.
    pub(crate) fn take_effect(&mut self, flight: Flight) {
        let visible_at = self.visible_at(&flight);
        let Flight { incarnation, request, sender, fate, nth, is_told, asked_at, .. } = flight;
        self.excuse_if_lied(&request, fate.as_ref());
        let mut reply = self.effect(&request, fate.as_ref(), visible_at);
        if let Request::List(_) = request {
            reply = self.list_again(reply, fate.as_ref());
        }
        let is_heard =
            !matches!(fate, Some(CallFate::LosesReply | CallFate::Late(_) | CallFate::Hangs));
        let call = format!("{} {nth}", call_name(request.kind()));
        self.write_down_effect(is_told, &call, || match fate {
            Some(CallFate::Hangs) => "nothing, and no answer".to_owned(),
            _ if is_heard => Shown(&reply).to_string(),
            _ => format!("{}, and no answer", Shown(&reply)),
        });
        if !is_heard {
            // Who waits goes on waiting, and is told nothing by a sender that is dropped.
            return;
        }
        match fate {
            Some(CallFate::CrashAfter) => {
                return self.crash(&format!("after {request}"), None, false);
            }
            // What did not work has failed already; of what it left as it was, `absent` would be a lie.
            Some(CallFate::FailsAfter(class)) if reply.is_ok() => {
                reply = Err(ProviderError::new(class, "it fails after it worked"));
            }
            _ => {}
        }
        let answering = Answering { incarnation, asked_at, request, sender, reply };
        self.schedule_in(flight.answers_in, Due::Answer(Box::new(answering)));
    }

    /// Returns from when on `find` and `list` know of what a call makes now: as late as the settle window lets them.
    fn visible_at(&self, flight: &Flight) -> Duration {
        let now = self.now();
        flight.given_up_at.unwrap_or(now).min(now) + self.config.settle_window
    }

    /// Lets an answer arrive, if anybody waits for it.
    pub(crate) fn answer(&mut self, answering: Answering) {
        let Answering { incarnation, asked_at, request, sender, reply } = answering;
        // What is still there of a dead control plane may take an answer, and does nothing with it.
        if !self.lives(incarnation) || sender.is_closed() {
            return;
        }
        if let (Request::List(_), Ok(Answer::Leases(leases))) = (&request, &reply) {
            self.last_listing = leases.iter().map(|it| it.lease.lease_id.to_string()).collect();
        }
        self.note_told(&request, asked_at, &reply);
        sender.send(reply).ok();
    }

    fn effect(
        &mut self,
        request: &Request,
        fate: Option<&CallFate>,
        visible_at: Duration,
    ) -> Reply {
        let now = self.now();
        if let Some((_, class)) = self.troubles.outage.filter(|(until, _)| *until > now) {
            return Err(ProviderError::new(class, "an outage"));
        }
        match fate {
            Some(CallFate::Hangs) => {
                Err(ProviderError::new(ErrorClass::Ambiguous, "nothing happens"))
            }
            Some(CallFate::Fails(class)) => Err(ProviderError::new(*class, "it fails")),
            Some(CallFate::Lies) => self.lie(request),
            Some(CallFate::FindsNothing) => find_nothing(request),
            Some(CallFate::ListsHalf) => match self.apply(request, visible_at) {
                Ok(Answer::Leases(leases)) => {
                    Ok(Answer::Leases(leases.into_iter().step_by(2).collect()))
                }
                other => other,
            },
            Some(CallFate::Twice) => {
                let first = self.apply(request, visible_at);
                self.apply_again(request, visible_at);
                first
            }
            _ => self.apply(request, visible_at),
        }
    }

    /// Answers as if it had worked.
    fn lie(&mut self, request: &Request) -> Reply {
        match request {
            Request::Create(_) => {
                let lease = facts(self.next_number());
                Ok(Answer::Lease(Box::new(NewLease { lease, connection: None })))
            }
            Request::Start(_) => Ok(Answer::Session(BootstrapSessionId(self.next_number()))),
            Request::Destroy(_) | Request::Conclude(_) | Request::Cancel(_) => Ok(Answer::Done),
            Request::Identity
            | Request::Find(_)
            | Request::Endpoint(_)
            | Request::Presence(_)
            | Request::List(_)
            | Request::FindSession(_) => find_nothing(request),
        }
    }
}

fn find_nothing(request: &Request) -> Reply {
    match request {
        Request::Find(_) | Request::List(_) => Ok(Answer::Leases(Vec::new())),
        Request::Endpoint(_) => Ok(Answer::Endpoint(None)),
        Request::Presence(_) => Ok(Answer::Presence(Presence::Absent)),
        Request::FindSession(_) => Ok(Answer::FoundSession(None)),
        Request::Identity
        | Request::Create(_)
        | Request::Destroy(_)
        | Request::Start(_)
        | Request::Conclude(_)
        | Request::Cancel(_) => {
            Err(ProviderError::new(ErrorClass::Transient, "nothing to be found"))
        }
    }
}

/// A reply in short.
struct Shown<'a>(&'a Reply);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Err(error) => write!(f, "{error}"),
            Ok(Answer::Identity(identity)) => f.write_str(&identity.0),
            Ok(Answer::Lease(lease)) => write!(f, "{}", lease.lease.lease_id),
            Ok(Answer::Leases(leases)) => {
                let ids: Vec<_> = leases.iter().map(|it| it.lease.lease_id.as_str()).collect();
                write!(f, "[{}]", ids.join(" "))
            }
            Ok(Answer::Endpoint(endpoint)) => {
                f.write_str(if endpoint.is_some() { "known" } else { "not yet" })
            }
            Ok(Answer::Presence(presence)) => write!(f, "{presence:?}"),
            Ok(Answer::Session(session)) => write!(f, "session {}", session.0),
            Ok(Answer::FoundSession(Some(found))) => write!(f, "session {}", found.session.0),
            Ok(Answer::FoundSession(None)) => f.write_str("none"),
            Ok(Answer::Done) => f.write_str("done"),
        }
    }
}
