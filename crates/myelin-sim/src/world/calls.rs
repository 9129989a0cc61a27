//! Calls of the provider: when they take effect, and whether anybody hears of it.

use std::{fmt, time::Duration};

use tokio::sync::oneshot;

use myelin_executor::{
    CreateRequest, FoundLease, FoundSession, NewLease, Presence, ProviderError, ProviderIdentity,
    StartRequest, fake::CallKind,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid};
use myelin_state::{Connection, ErrorClass, LeaseFacts, OperationKind};

use super::{
    Due, World,
    effects::{facts, number_of},
};
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
    request: Request,
    sender: oneshot::Sender<Reply>,
    fate: Option<CallFate>,
    nth: u32,
    is_told: bool,
    asked_at: Duration,
    answers_in: Duration,
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answering {
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
    Waits,
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
            return Begun::Waits;
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
        match fate {
            Some(CallFate::CrashBefore) => {
                self.crash(&format!("before {request}"), None, false);
                return Begun::Waits;
            }
            Some(CallFate::Panics) => return Begun::Panics,
            _ => {}
        }
        self.check_unknown(&request);
        let (effect_in, answers_in) = self.times(kind, nth, fate.as_ref());
        let flight = Box::new(Flight {
            request,
            sender,
            fate,
            is_told,
            nth,
            asked_at: self.now(),
            answers_in,
        });
        self.schedule_in(effect_in, Due::Effect(flight));
        Begun::Waits
    }

    /// Returns after how long a call takes effect, and how long after that it answers if it does.
    fn times(&self, kind: CallKind, nth: u32, fate: Option<&CallFate>) -> (Duration, Duration) {
        let takes = match fate {
            Some(CallFate::Slow(by) | CallFate::Late(by)) => *by,
            _ => self.latency_of(u64::from(nth) * 31 + kind as u64),
        };
        let effect_in = match kind {
            // What takes effect later than a settle window allows would make every provider a liar.
            CallKind::Create
            | CallKind::Destroy
            | CallKind::Start
            | CallKind::Conclude
            | CallKind::Cancel => (takes / 2).min(self.config.settle_window),
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
        let mut mixed = (self.config.jitter ^ nth).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let share = u32::try_from((mixed >> 32) % 101).unwrap_or(100);
        let millis = self.config.latency.as_millis() * u128::from(share) / 100;
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// What makes or ends something was recorded first, durably.
    fn check_recorded(&mut self, request: &Request) {
        let (key, kind) = match request {
            Request::Create(request) => (request.key.clone(), OperationKind::CreateLease),
            Request::Start(request) => (request.key.clone(), OperationKind::StartBootstrap),
            Request::Destroy(lease) => {
                if self.taking.contains(&lease.lease_id) {
                    return;
                }
                let machine = number_of(&lease.lease_id).and_then(|it| self.machines.get(&it));
                let Some(machine) = machine else { return };
                (machine.key.clone(), OperationKind::DestroyLease)
            }
            Request::Identity
            | Request::Find(_)
            | Request::Endpoint(_)
            | Request::Presence(_)
            | Request::List(_)
            | Request::FindSession(_)
            | Request::Conclude(_)
            | Request::Cancel(_) => return,
        };
        let recorded = self.recorded.get(&key.node);
        let is_recorded =
            recorded.is_some_and(|it| it.attempt == key.attempt && it.pending == Some(kind));
        if !is_recorded {
            let what = format!("{request}, while {recorded:?} is recorded of {}", key.node);
            self.break_rule("recorded before it is done", what);
        }
    }

    /// Lets a call take effect, and answer.
    pub(crate) fn take_effect(&mut self, flight: Flight) {
        let Flight { request, sender, fate, nth, is_told, asked_at, answers_in } = flight;
        let mut reply = self.effect(&request, fate.as_ref(), asked_at);
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
            Some(CallFate::FailsAfter(class)) => {
                reply = Err(ProviderError::new(class, "it fails after it worked"));
            }
            _ => {}
        }
        let answering = Box::new(Answering { request, sender, reply });
        self.schedule_in(answers_in, Due::Answer(answering));
    }

    /// Lets an answer arrive, if anybody waits for it.
    pub(crate) fn answer(&mut self, answering: Answering) {
        let Answering { request, sender, reply } = answering;
        let settles = settled_by(&request, &reply);
        if let (Request::List(_), Ok(Answer::Leases(leases))) = (&request, &reply) {
            self.last_listing = leases.iter().map(|it| it.lease.lease_id.to_string()).collect();
        }
        if sender.send(reply).is_ok()
            && let Some(settled) = settles
        {
            self.unknown.remove(&settled);
        }
    }

    /// What may exist is looked for before it is made again.
    fn check_unknown(&mut self, request: &Request) {
        let Some(made) = made_by(request) else { return };
        if !self.unknown.insert(made) {
            let what = format!("{request} again, and nobody knows what became of the last time");
            self.break_rule("what is unknown is looked for", what);
        }
    }

    fn effect(&mut self, request: &Request, fate: Option<&CallFate>, asked_at: Duration) -> Reply {
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
            Some(CallFate::ListsHalf) => match self.apply(request, asked_at) {
                Ok(Answer::Leases(leases)) => {
                    Ok(Answer::Leases(leases.into_iter().step_by(2).collect()))
                }
                other => other,
            },
            Some(CallFate::Twice) => {
                let first = self.apply(request, asked_at);
                self.apply_again(request, asked_at);
                first
            }
            _ => self.apply(request, asked_at),
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

/// Returns what a request makes, if it makes something.
fn made_by(request: &Request) -> Option<(CallKind, AttemptKey)> {
    if let Request::Create(request) = request {
        Some((CallKind::Create, request.key.clone()))
    } else if let Request::Start(request) = request {
        Some((CallKind::Start, request.key.clone()))
    } else {
        None
    }
}

/// Returns of what a reply says whether it exists.
fn settled_by(request: &Request, reply: &Reply) -> Option<(CallKind, AttemptKey)> {
    let is_definite = !matches!(reply, Err(error) if error.class == ErrorClass::Ambiguous);
    match (request, reply) {
        (Request::Find(key), Ok(_)) => Some((CallKind::Create, key.clone())),
        (Request::FindSession(key), Ok(_)) => Some((CallKind::Start, key.clone())),
        _ => made_by(request).filter(|_| is_definite),
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
