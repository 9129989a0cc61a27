//! The rules every provider obeys.

use std::{fs, sync::Arc};

use async_trait::async_trait;

use myelin_executor::{Bootstrap, Provider, conformance};
use myelin_shape::{BootSpec, NodeTemplate};
use myelin_state::LeaseFacts;

use crate::world::{World, running_on, template};

struct Harness<'a>(&'a World);

#[async_trait]
impl conformance::ProviderHarness for Harness<'_> {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0.provider) as _
    }

    fn bootstrap(&self) -> Arc<dyn Bootstrap> {
        Arc::clone(&self.0.provider) as _
    }

    fn reopened(&self) -> Option<(Arc<dyn Provider>, Arc<dyn Bootstrap>)> {
        let provider = Arc::new(self.0.another_provider());
        Some((Arc::clone(&provider) as _, provider))
    }

    fn working(&self) -> NodeTemplate {
        template(BootSpec::default())
    }

    fn refused(&self) -> Option<NodeTemplate> {
        let mut refused = template(BootSpec::default());
        refused.shape.image = "/nonexistent/image".into();
        Some(refused)
    }

    async fn runs_anything_on(&self, lease: &LeaseFacts) -> bool {
        !running_on(lease).is_empty()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_provider_conforms() {
    let world = World::new().await;
    let report = conformance::run(&Harness(&world)).await;
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.skipped, ["oldest_of_two_leases_comes_first"]);
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 0, "nothing is left");
}
