//! What the provider does with the next effects.

use std::time::Duration;

use myelin_shape::LogicalNodeId;
use myelin_state::{BootstrapStage, ErrorClass, OperationKind};

/// How an effect ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    /// It works.
    Works,
    /// It works, and the reply is there after this long.
    After(Duration),
    /// It works, and its reply comes twice.
    Twice,
    /// It works, and the reply is lost.
    Lost,
    /// It fails without effect.
    Fails(ErrorClass),
    /// It works, and nobody is told so.
    Ambiguous,
    /// It does nothing and never answers, not even when it is to stop.
    Stuck,
}

/// What becomes of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Boot {
    /// The agent joins.
    Joins,
    /// The agent joins before the reply to the start is there.
    JoinsFirst,
    /// It fails at this stage.
    Fails(BootstrapStage),
    /// Nothing more is heard.
    Hangs,
}

/// Something scripted.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// The next `times` effects of a kind end like this.
    Effect { kind: OperationKind, node: Option<LogicalNodeId>, reply: Reply, times: u32 },
    /// Bootstraps of machines made from an image go like this.
    Image { image: &'static str, boot: Boot },
    /// The next `times` bootstraps of a node go like this.
    Node { node: LogicalNodeId, boot: Boot, times: u32 },
}

impl Rule {
    pub(crate) fn effect(kind: OperationKind, reply: Reply, times: u32) -> Self {
        Self::Effect { kind, node: None, reply, times }
    }

    pub(crate) fn effect_of(node: &str, kind: OperationKind, reply: Reply, times: u32) -> Self {
        Self::Effect { kind, node: Some(node.into()), reply, times }
    }

    pub(crate) fn boot(node: &str, boot: Boot, times: u32) -> Self {
        Self::Node { node: node.into(), boot, times }
    }
}

/// The rules; later ones first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Vec<Rule>);

impl Script {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.0.push(rule);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn reply(&mut self, kind: OperationKind, node: &LogicalNodeId) -> Reply {
        for rule in self.0.iter_mut().rev() {
            if let Rule::Effect { kind: k, node: n, reply, times } = rule
                && *k == kind
                && n.as_ref().is_none_or(|n| n == node)
                && *times > 0
            {
                *times -= 1;
                return *reply;
            }
        }
        Reply::Works
    }

    pub(crate) fn boot(&mut self, node: &LogicalNodeId, image: &str) -> Boot {
        for rule in self.0.iter_mut().rev() {
            match rule {
                Rule::Node { node: n, boot, times } if n == node && *times > 0 => {
                    *times -= 1;
                    return *boot;
                }
                Rule::Image { image: i, boot } if image == *i => return *boot,
                Rule::Effect { .. } | Rule::Image { .. } | Rule::Node { .. } => {}
            }
        }
        Boot::Joins
    }
}
