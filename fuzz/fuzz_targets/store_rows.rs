//! [`myelin_fuzz::store_rows`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myelin_fuzz::store_rows(bytes));
