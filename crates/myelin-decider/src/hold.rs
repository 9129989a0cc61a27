//! Why a step that group policy has a say in was not granted, and until what.

use crate::{
    Held, HeldReason, Trigger,
    brake::Brakings,
    grant::{Granted, GroupView, Policy, budget},
    index::{Line, SlotKey, kept_until},
    trial::Trial,
};

impl Policy<'_> {
    /// Says why a slot that waits in a line was granted nothing.
    pub(crate) fn held(
        &self,
        key: SlotKey,
        line: Line,
        granted: &Granted,
        memo: &mut Brakings,
    ) -> Option<Held> {
        let view = self.view(key.group)?;
        Some(match line {
            Line::Keep(failed_at) => match kept_until(failed_at, Some(view.group)) {
                Some(time) => Held::at(HeldReason::Kept, time),
                None => Held::on(HeldReason::Kept, Trigger::Operator),
            },
            Line::Create => self
                .held_by_template(&view, key.index)
                .unwrap_or_else(|| Self::held_create(&view, granted)),
            Line::Replace | Line::ReplaceSilent => self.held_replace(&view, granted),
            Line::Repair(repair) => self
                .held_by_template(&view, key.index)
                .unwrap_or_else(|| self.held_repair(&view, repair, granted, memo)),
        })
    }

    /// Says why no machine may be made from the template for this slot, if so.
    fn held_by_template(&self, view: &GroupView<'_>, index: u32) -> Option<Held> {
        if let Some(&index) = view.lines.refused.first() {
            let node = view.slot(index);
            let refused = self.state.nodes.get(&node);
            let refusal = refused.and_then(|node| node.refused.as_deref());
            let message = refusal.map(|refusal| refusal.message.clone());
            let message = message.unwrap_or_default();
            return Some(Held::on(HeldReason::Refused { node, message }, Trigger::SpecChange));
        }
        let starts = view.may_start(&self.trial(view), index);
        self.held_by_trial(view).filter(|_| !starts)
    }

    pub(crate) fn held_create(view: &GroupView<'_>, granted: &Granted) -> Held {
        let in_flight = view.lines.counts.creating + granted.group(view.number).creates;
        let limit = view.group.policy.max_in_flight_creates;
        let reason = HeldReason::CreateLimit { in_flight, limit };
        Held::on(reason, Trigger::GroupCounts)
    }

    fn held_by_trial(&self, view: &GroupView<'_>) -> Option<Held> {
        match self.trial(view) {
            Trial::Canary { index, quarantined: true } => {
                let reason = HeldReason::CanaryFailed { node: view.slot(index) };
                Some(Held::on(reason, Trigger::SpecChange))
            }
            Trial::Canary { index, quarantined: false } => {
                let reason = HeldReason::Canary { node: view.slot(index) };
                // Beyond the limit it is not kept, and its cleanup is what is waited for.
                let until = |at| kept_until(at, Some(view.group));
                let stays = |at| until(at).is_none_or(|time| time > self.now);
                let kept = view.lines.keep.iter().filter(|(at, _)| stays(*at));
                let mut kept = kept.take(view.group.policy.keep_limit as usize);
                let kept = kept.find(|(_, kept)| *kept == index);
                Some(match kept.and_then(|&(at, _)| until(at)) {
                    Some(time) => Held::at(reason, time),
                    None => Held::on(reason, Trigger::GroupCounts),
                })
            }
            Trial::Open | Trial::Nobody => None,
        }
    }

    fn held_replace(&self, view: &GroupView<'_>, granted: &Granted) -> Held {
        let unavailable = view.lines.counts.spends + granted.group(view.number).taken;
        let limit = budget(view.group).unwrap_or(u32::MAX);
        let trial = if unavailable < limit { self.held_by_trial(view) } else { None };
        trial.unwrap_or_else(|| {
            Held::on(HeldReason::Budget { unavailable, limit }, Trigger::GroupCounts)
        })
    }
}
