//! A host that boots one node and says so, for tests that kill it: `process-host ROOT LISTENER AGENT CLUSTER`.

use std::{error::Error, ffi::OsString, sync::Arc};

use myelin_api::JoinSecret;
use myelin_executor::{
    Bootstrap as _, BootstrapSink, BootstrapUpdate, CreateRequest, Provider as _, StartRequest,
};
use myelin_provider_process::{JoinSource, KIND, Options, ProcessProvider};
use myelin_shape::{
    AttemptKey, BootstrapSessionId, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec,
    expand_node_group,
};

#[derive(Debug)]
struct Deaf;

impl BootstrapSink for Deaf {
    fn report(&self, _: &AttemptKey, _: BootstrapSessionId, _: BootstrapUpdate) {}
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "it speaks to whoever started it")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [root, listener, agent, cluster] = &args[..] else {
        return Err("four arguments are wanted".into());
    };
    let join = JoinSource { address: listener.clone(), secret: JoinSecret::new([0xa5; 32]) };
    let options = Options::new(root, vec![OsString::from(agent)], join);
    let provider = ProcessProvider::new(options, Arc::new(Deaf))?;
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, KIND);
    let spec = expand_node_group(&group).next().ok_or("a group of one has a node")?;
    let key = AttemptKey {
        cluster: cluster.parse()?,
        run: group.run_id,
        node: spec.logical_node_id.clone(),
        attempt: NodeAttemptId(1),
    };
    let template_digest = spec.template.digest().into();
    let request =
        CreateRequest { key: key.clone(), template_digest, generation: 1, spec: spec.clone() };
    let made = provider.create(&request).await?;
    let start = StartRequest {
        operation: OperationId { attempt: key.attempt, sequence: 1 },
        key,
        spec,
        lease: made.lease,
        connection: made.connection.ok_or("a directory is reached at once")?,
    };
    println!("{}", provider.start(&start).await?);
    std::future::pending().await
}
