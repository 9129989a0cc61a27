//! Listings that are older than the question.

use std::mem;

use super::{
    World,
    calls::{Answer, Reply},
};
use crate::CallFate;

impl World {
    /// Takes a listing, and answers with the one before it if that is its fate.
    pub(super) fn list_again(&mut self, reply: Reply, fate: Option<&CallFate>) -> Reply {
        let Ok(Answer::Leases(leases)) = reply else { return reply };
        let before = mem::replace(&mut self.listed_before, leases.clone());
        Ok(Answer::Leases(if fate == Some(&CallFate::ListsOld) { before } else { leases }))
    }
}
