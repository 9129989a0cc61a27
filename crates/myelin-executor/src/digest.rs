//! Digests of templates, computed once per template.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use myelin_shape::NodeTemplate;

/// Remembers the digest of every template that is still in use.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By address. The weak reference keeps the address from being used again for another template.
    by_address: HashMap<usize, (Weak<NodeTemplate>, Arc<str>)>,
    prune_above: usize,
}

impl Digests {
    pub(crate) fn of(&self, template: &Arc<NodeTemplate>) -> Arc<str> {
        let address = Arc::as_ptr(template).addr();
        let mut known = self.known.lock().expect("no code panics while it holds the digests");
        if let Some((_, digest)) = known.by_address.get(&address) {
            return Arc::clone(digest);
        }
        known.prune();
        let digest: Arc<str> = template.digest().into();
        let entry = (Arc::downgrade(template), Arc::clone(&digest));
        known.by_address.insert(address, entry);
        digest
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.lock().expect("not poisoned").by_address.len()
    }
}

impl Known {
    /// Drops the digests of templates that are gone, at most each time their number has doubled.
    fn prune(&mut self) {
        if self.by_address.len() <= self.prune_above {
            return;
        }
        self.by_address.retain(|_, (template, _)| template.strong_count() > 0);
        self.prune_above = self.by_address.len().max(8) * 2;
    }
}

#[cfg(test)]
mod tests;
