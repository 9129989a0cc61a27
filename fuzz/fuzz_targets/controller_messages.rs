//! [`myelin_fuzz::controller_messages`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myelin_fuzz::controller_messages(bytes));
