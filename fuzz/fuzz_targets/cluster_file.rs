//! [`myelin_fuzz::cluster_file`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myelin_fuzz::cluster_file(bytes));
