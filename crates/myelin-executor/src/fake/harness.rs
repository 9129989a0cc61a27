//! The fake as a provider under test.

use std::sync::Arc;

use async_trait::async_trait;

use myelin_shape::{NodeTemplate, RunId, RunNodeGroupSpec};
use myelin_state::LeaseFacts;

use super::{FakeWorld, Flaw, REFUSED_IMAGE, script::Effect};
use crate::{Bootstrap, CreateRequest, Provider, conformance::ProviderHarness};

#[async_trait]
impl ProviderHarness for FakeWorld {
    fn provider(&self) -> Arc<dyn Provider> {
        Self::provider(self)
    }

    fn bootstrap(&self) -> Arc<dyn Bootstrap> {
        Self::bootstrap(self)
    }

    fn working(&self) -> NodeTemplate {
        RunNodeGroupSpec::new(RunId(1), "worker", 1, self.0.kind.as_str()).template()
    }

    fn refused(&self) -> Option<NodeTemplate> {
        let mut template = self.working();
        REFUSED_IMAGE.clone_into(&mut template.shape.image);
        Some(template)
    }

    async fn runs_anything_on(&self, lease: &LeaseFacts) -> bool {
        Self::runs_anything_on(self, lease)
    }

    fn reopened(&self) -> Option<(Arc<dyn Provider>, Arc<dyn Bootstrap>)> {
        let forgets = self.inner().has(Flaw::ForgetsOnRestart);
        let world = if forgets { Self::of_kind(self.0.kind.as_str()) } else { self.clone() };
        Some((world.provider(), world.bootstrap()))
    }

    async fn duplicate(&self, request: &CreateRequest) -> bool {
        self.ensure_lease(&mut self.inner(), request, Effect::Extra).is_ok()
    }
}
