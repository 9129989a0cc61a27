//! How a cluster file becomes the desired state.

use myelin_driver::{Desired, Event};
use myelin_durable::Settled;
use myelin_shape::{ClusterShape, ProviderKind};
use myelin_store::Source;

use crate::{
    file::ClusterFile,
    view::{self, PlanView},
};

use super::{Applied, Error, Wanted, core::Core};

impl Core {
    pub(super) fn plan(&self, file: &ClusterFile) -> Result<PlanView, Error> {
        check_providers(file, &self.shell.options.providers)?;
        if file.run != self.shell.options.run {
            let (expected, found) = (self.shell.options.run.0, file.run.0);
            return Err(Error::OtherRun { expected, found });
        }
        // How agents report is settled when a loop begins, and this one has not.
        let agent = self.as_of.is_none().then_some(&self.shell.options.agent);
        view::plan(self.driver(), agent, file, self.now()).map_err(Error::from)
    }

    /// Makes a file the desired state.
    ///
    /// The revision only counts up when something changed: seed 1 §5.1 lets one generation name one content.
    pub(super) async fn apply(
        &mut self,
        wanted: Wanted,
        if_generation: Option<u64>,
        may_take_ready: bool,
    ) -> Result<Applied, Error> {
        let Wanted { file, source } = wanted;
        if self.leaving {
            return Err(Error::Leaving);
        }
        self.check_store()?;
        let current = self.driver().desired().map_or(0, |shape| shape.generation);
        if let Some(expected) = if_generation.filter(|&expected| expected != current) {
            return Err(Error::OtherGeneration { expected, current });
        }
        let plan = self.plan(&file)?;
        if plan.ready_taken > 0 && !may_take_ready {
            return Err(Error::TakesReady(Box::new(plan)));
        }
        let unchanged = self.driver().desired() == Some(&file.shape(current))
            && *self.driver().retry_policy() == file.retry;
        if unchanged {
            let generation = current;
            return Ok(Applied { generation, plan });
        }
        let generation = self.next_generation();
        self.desire(Desired { shape: file.shape(generation), retry: file.retry }, source).await?;
        Ok(Applied { generation, plan })
    }

    async fn desire(&mut self, desired: Desired, source: Source) -> Result<(), Error> {
        let before = self.durable.set_source(source);
        self.fold(Event::Desired(Box::new(desired)));
        let mut settled = self.settle().await;
        match settled.refused.pop() {
            Some(refused) => {
                self.durable.set_source(before);
                Err(refused.into())
            }
            None => self.check_recorded(&settled),
        }
    }

    /// Wants nothing any more, and lets effects run: an earlier pause must not keep machines.
    ///
    /// Said again while it is not recorded yet, it says that again.
    pub(super) async fn down(&mut self) -> Result<(), Error> {
        if self.leaving {
            return self.check_recorded(&Settled::default());
        }
        self.leaving = true;
        self.fold(Event::Resume);
        let nothing = ClusterShape::new(self.shell.options.run, self.next_generation(), []);
        let retry = self.driver().retry_policy().clone();
        self.desire(Desired { shape: nothing, retry }, Source::default()).await
    }
}

/// Refuses groups of providers that are not there: each of their nodes would be refused on its own later.
pub(crate) fn check_providers(file: &ClusterFile, known: &[ProviderKind]) -> Result<(), Error> {
    let unknown = |kind: &ProviderKind| !known.contains(kind);
    let Some(group) = file.groups.iter().find(|group| unknown(&group.provider)) else {
        return Ok(());
    };
    let known: Vec<_> = known.iter().map(ProviderKind::as_str).collect();
    Err(Error::UnknownProvider {
        group: group.group_id.clone(),
        provider: group.provider.to_string(),
        known: known.join(", "),
    })
}
