use std::fmt::Debug;

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

use super::strategies;
use crate::{
    BootstrapSessionId, ClusterShape, NodeGroupId, ProviderKind, ProviderLeaseId, RoleId,
    RunNodeGroupSpec, SwactorId,
};

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
    fn ids(text in strategies::text(), number: u64, key in strategies::attempt_key(), operation in strategies::operation_id()) {
        check(&NodeGroupId::from(text.as_str()))?;
        check(&RoleId::from(text.as_str()))?;
        check(&ProviderKind::from(text.as_str()))?;
        check(&ProviderLeaseId::from(text.as_str()))?;
        check(&SwactorId::from(text.as_str()))?;
        check(&BootstrapSessionId(number))?;
        check(&key)?;
        check(&operation)?;
    }

    #[test]
    fn policies(limit in strategies::limit(), group in strategies::group_policy(), run in strategies::run_policy()) {
        check(&limit)?;
        check(&group)?;
        check(&run)?;
    }

    #[test]
    fn parts_of_groups(
        shape in strategies::node_shape(),
        boot in strategies::boot(),
        join in strategies::join_template(),
        spec in strategies::join_spec(),
    ) {
        check(&shape)?;
        check(&boot)?;
        check(&join)?;
        check(&spec)?;
    }

    #[test]
    fn slots(slot in strategies::slot()) {
        check(&*slot.template)?;
        check(&slot)?;
    }

    #[test]
    fn shapes(shape in strategies::cluster_shape()) {
        check(&shape)?;
    }

    #[test]
    fn a_template_that_was_read_back_has_the_same_digest(template in strategies::template()) {
        let text = serde_json::to_string(&template).unwrap();
        let read: crate::NodeTemplate = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.digest(), template.digest());
    }
}

#[test]
fn a_group_needs_only_five_fields() {
    let text = r#"{"run_id": 1, "group_id": "a", "role": "a", "count": 2, "provider": "process"}"#;
    let group: RunNodeGroupSpec = serde_json::from_str(text).unwrap();
    assert_eq!(group, RunNodeGroupSpec::new(crate::RunId(1), "a", 2, "process"));
}

#[test]
fn a_misspelt_key_is_refused() {
    let shape = serde_json::from_str::<crate::DesiredNodeShape>(r#"{"imgae": "x"}"#).unwrap_err();
    assert!(shape.to_string().starts_with("unknown field `imgae`"), "{shape}");
    let policy =
        serde_json::from_str::<crate::GroupPolicy>(r#"{"max_unavailble": 1}"#).unwrap_err();
    assert!(policy.to_string().starts_with("unknown field `max_unavailble`"), "{policy}");
}

#[test]
fn the_schema_of_a_shape_names_its_fields() {
    let schema = schemars::schema_for!(ClusterShape);
    let properties = schema.get("properties").unwrap().as_object().unwrap();
    let names: Vec<_> = properties.keys().map(String::as_str).collect();
    insta::assert_snapshot!(names.join(" "), @"generation groups policy run_id");
    let required = serde_json::to_string(schema.get("required").unwrap()).unwrap();
    insta::assert_snapshot!(required, @r#"["run_id","generation","groups"]"#);
}
