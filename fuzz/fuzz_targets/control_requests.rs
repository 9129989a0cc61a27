//! [`myelin_fuzz::control_requests`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myelin_fuzz::control_requests(bytes));
