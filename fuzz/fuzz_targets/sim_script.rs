//! [`myelin_fuzz::sim_script`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myelin_fuzz::sim_script(bytes));
