use std::{fmt::Debug, time::SystemTime};

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

use super::strategies;
use crate::{ClusterState, NodeManagerCommand, OperationKind, RetryPolicy};

/// Checks that a value is read back as it was written.
fn check<T>(value: &T) -> Result<(), TestCaseError>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let text = serde_json::to_string(value).unwrap();
    let read: T = serde_json::from_str(&text)
        .map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    prop_assert_eq!(&read, value, "{}", text);
    Ok(())
}

proptest! {
    #[test]
    fn facts(lease in strategies::lease(), connection in strategies::connection(), record in strategies::record()) {
        check(&lease)?;
        check(&connection)?;
        check(&record)?;
    }

    #[test]
    fn retries(state in strategies::retry_state(), policy in strategies::retry_policy()) {
        check(&state)?;
        check(&policy)?;
    }

    #[test]
    fn effects(command in strategies::command(), pending in strategies::pending()) {
        check(&command)?;
        check(&pending)?;
    }

    #[test]
    fn observations(observation in strategies::observation()) {
        check(&observation)?;
    }

    #[test]
    fn nodes(node in strategies::node()) {
        check(&node)?;
    }

    #[test]
    fn clusters(cluster in strategies::cluster()) {
        check(&cluster)?;
    }

    #[test]
    fn a_command_is_of_the_kind_it_is_named_after(command in strategies::command()) {
        let text = serde_json::to_value(&command).unwrap();
        let kind: OperationKind = match text.as_object().and_then(|object| object.keys().next()) {
            Some(key) => serde_json::from_value(key.as_str().into()).unwrap(),
            None => return Err(TestCaseError::fail(format!("{command:?}"))),
        };
        prop_assert_eq!(command.kind(), kind);
    }
}

#[test]
fn a_policy_names_only_what_differs() {
    let policy: RetryPolicy = serde_json::from_str(r#"{"lost_after": "2m"}"#).unwrap();
    let expected =
        RetryPolicy { lost_after: std::time::Duration::from_mins(2), ..RetryPolicy::default() };
    assert_eq!(policy, expected);
    let error = serde_json::from_str::<RetryPolicy>(r#"{"lost_afer": "2m"}"#).unwrap_err();
    assert!(error.to_string().starts_with("unknown field `lost_afer`"), "{error}");
}

#[test]
fn a_time_before_1970_is_an_error_and_no_panic() {
    let before = SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(1);
    let state = crate::RetryState { restart_at: Some(before), ..crate::RetryState::default() };
    assert!(serde_json::to_string(&state).is_err());
}

#[test]
fn a_time_beyond_the_clock_is_an_error_and_no_panic() {
    let text = format!(r#"{{"secs_since_epoch": {}, "nanos_since_epoch": 0}}"#, u64::MAX);
    assert!(serde_json::from_str::<SystemTime>(&text).is_err());
}

/// Returns the names of a schema's fields.
fn fields(schema: &schemars::Schema) -> String {
    let properties = schema.get("properties").unwrap().as_object().unwrap();
    properties.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_schema_of_a_state_names_its_fields() {
    insta::assert_snapshot!(fields(&schemars::schema_for!(ClusterState)), @"brake groups next_attempt_id nodes observed_generation paused");
    insta::assert_snapshot!(fields(&schemars::schema_for!(RetryPolicy)), @"answer_timeout bootstrap_timeout endpoint_probe_interval factor initial_delay jitter_percent lost_after max_cancel_failures max_consecutive_failures max_delay operation_timeout ready_timeout stable_after");
}

#[test]
fn every_command_has_a_schema() {
    let schema = schemars::schema_for!(NodeManagerCommand);
    let variants = schema.get("oneOf").unwrap().as_array().unwrap();
    assert_eq!(variants.len(), OperationKind::ALL.len());
}
