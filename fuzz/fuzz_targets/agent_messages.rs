//! [`myelin_fuzz::agent_messages`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myelin_fuzz::agent_messages(bytes));
