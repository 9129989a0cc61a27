//! What the inventory is told, and what it has written down.

use myelin_driver::DriverEvent;
use myelin_inventory::{StoreDoubt, View};

use super::{Error, Notice, core::Core};

impl Core {
    /// Returns what is recorded of leases now. While it cannot be made durable, it is doubted.
    pub(super) fn records(&self) -> View {
        let (cluster, run) = (self.shell.options.cluster, self.shell.options.run);
        let trouble = self.durable.trouble();
        let doubt = trouble.map(|trouble| StoreDoubt::NotDurable(trouble.error.to_string()));
        let view = View::of(cluster, run, self.driver().state(), self.last_generation());
        // Before anything was ever wanted, nothing can be under way.
        let wanted = self.driver().desired().is_some();
        let view = if wanted { view.under(self.driver().retry_policy()) } else { view };
        view.heard(|key| self.shell.ports.roster.last_contact(key)).doubted(doubt)
    }

    pub(super) fn note(&mut self, notice: Notice) {
        let event = self.event(notice);
        self.durable.note(event);
    }

    pub(super) async fn record(&mut self, notice: Notice) -> Result<(), Error> {
        self.check_store()?;
        let event = self.event(notice);
        self.durable.record(event);
        self.settle_durably().await
    }

    fn event(&self, notice: Notice) -> DriverEvent {
        let Notice { of, kind } = notice;
        let (node, attempt) = of.unzip();
        DriverEvent { at: self.now(), node, attempt, kind }
    }
}
