//! Rules about one lease.

use myelin_state::ErrorClass;

use super::trial::{Suite, Verdict, same};
use crate::{CreateRequest, FoundLease, Presence};

pub(super) async fn repeated_create_answers_the_same_lease(suite: &Suite<'_>) -> Verdict {
    let request = suite.request();
    let first = suite.create(&request).await?;
    let second = suite.create(&request).await?;
    same("the second create answered", &second.lease_id, &first.lease_id)?;
    let found = suite.find_settled(&request.key).await?;
    same("leases after two creates", &found.len().min(2), &1)?;
    suite.destroy(&first).await?;
    Ok(true)
}

pub(super) async fn keys_do_not_share_a_lease(suite: &Suite<'_>) -> Verdict {
    let first = suite.create(&suite.request()).await?;
    let second = suite.create(&suite.request()).await?;
    if first.lease_id == second.lease_id {
        return Err(format!("two attempts got lease {}", first.lease_id));
    }
    suite.destroy(&first).await?;
    suite.destroy(&second).await?;
    Ok(true)
}

pub(super) async fn find_answers_what_create_made(suite: &Suite<'_>) -> Verdict {
    let request = suite.request();
    let before = suite.find_settled(&request.key).await?;
    same("leases before the create", &ids(&before), &Vec::new())?;
    let made = suite.create(&request).await?;
    let found = suite.find_settled(&request.key).await?;
    same("leases found", &ids(&found), &vec![made.lease_id.to_string()])?;
    same("the key found", &found[0].key, &request.key)?;
    same("the facts found", &found[0].lease, &made)?;
    suite.destroy(&made).await?;
    Ok(true)
}

pub(super) async fn lease_keeps_its_digest(suite: &Suite<'_>) -> Verdict {
    let request = suite.request();
    let made = suite.create(&request).await?;
    let found = suite.find_settled(&request.key).await?;
    let digests: Vec<_> = found.iter().map(|lease| lease.template_digest.as_str()).collect();
    same("the digests found", &digests, &vec![&*request.template_digest])?;
    suite.destroy(&made).await?;
    Ok(true)
}

pub(super) async fn lease_keeps_the_generation_it_was_made_under(suite: &Suite<'_>) -> Verdict {
    let request = suite.request();
    let made = suite.create(&request).await?;
    let later = CreateRequest { generation: request.generation + 1, ..request.clone() };
    let adopted = suite.create(&later).await?;
    same("a create under a later generation answered", &adopted.lease_id, &made.lease_id)?;
    let found = suite.find_settled(&request.key).await?;
    let generations: Vec<_> = found.iter().map(|lease| lease.generation).collect();
    same("the generations found", &generations, &vec![Some(request.generation)])?;
    let listed = suite.call("list", suite.provider.list(suite.clusters[0])).await?;
    // What is not listed at all is for another check to say.
    if let Some(listed) = listed.iter().find(|lease| lease.key == request.key) {
        same("the generation listed", &listed.generation, &Some(request.generation))?;
    }
    suite.destroy(&made).await?;
    Ok(true)
}

pub(super) async fn oldest_of_two_leases_comes_first(suite: &Suite<'_>) -> Verdict {
    let request = suite.request();
    let oldest = suite.create(&request).await?;
    if !suite.harness.duplicate(&request).await {
        suite.destroy(&oldest).await?;
        return Ok(false);
    }
    let found = suite.find_settled(&request.key).await?;
    same("leases found of two", &found.len(), &2)?;
    same("the first of them", &found[0].lease.lease_id, &oldest.lease_id)?;
    let adopted = suite.create(&request).await?;
    same("create adopted", &adopted.lease_id, &oldest.lease_id)?;
    for lease in &found {
        suite.destroy(&lease.lease).await?;
    }
    Ok(true)
}

pub(super) async fn endpoint_appears(suite: &Suite<'_>) -> Verdict {
    let made = suite.create(&suite.request()).await?;
    suite.connection(&made).await?;
    suite.destroy(&made).await?;
    Ok(true)
}

pub(super) async fn refused_template_is_a_permanent_error(suite: &Suite<'_>) -> Verdict {
    let Some(request) = suite.refused_request() else {
        return Ok(false);
    };
    match suite.limited("create", suite.provider.create(&request)).await? {
        Ok(made) => Err(format!("it was leased as {}", made.lease.lease_id)),
        Err(error) => {
            same("the class", &error.class, &ErrorClass::Permanent)?;
            same("its message is empty", &error.message.is_empty(), &false)?;
            let found = suite.find_settled(&request.key).await?;
            same("leases after the refusal", &ids(&found), &Vec::new())
        }
    }
}

pub(super) async fn destroyed_lease_is_absent(suite: &Suite<'_>) -> Verdict {
    let request = suite.request();
    let made = suite.create(&request).await?;
    same("before", &suite.presence(&made).await?, &Presence::Present)?;
    suite.destroy(&made).await?;
    same("after", &suite.presence(&made).await?, &Presence::Absent)?;
    let found = suite.find_settled(&request.key).await?;
    same("leases found after", &ids(&found), &Vec::new())
}

pub(super) async fn destroying_twice_succeeds(suite: &Suite<'_>) -> Verdict {
    let made = suite.create(&suite.request()).await?;
    suite.destroy(&made).await?;
    suite.destroy(&made).await?;
    Ok(true)
}

pub(super) fn ids(found: &[FoundLease]) -> Vec<String> {
    found.iter().map(|it| it.lease.lease_id.to_string()).collect()
}
