//! The listener agents dial: join tokens, heartbeats, last contact.
