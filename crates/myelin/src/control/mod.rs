//! The control socket: how other processes ask a running loop.
//!
//! A Unix socket in the state directory, for its owner only. Each side sends one JSON object a line; a connection takes any
//! number of requests, one after the other. Every request states the protocol's version. Whatever is no request is
//! answered with one error, and the connection is closed. A server holds a bounded number of connections, each with a
//! bounded line and a deadline.
//!
//! Reading order: [`Request`], [`Answer`], [`Server`], [`Client`].

mod answer;
mod client;
mod message;
mod server;

pub(crate) use self::answer::answer;
pub use self::client::{Client, Error};
pub use self::message::{
    Answer, CONTROL_VERSION, Failure, FailureKind, Operator, Reply, Request, RequestLine, Source,
    Word,
};
pub use self::server::{Options, Server};
