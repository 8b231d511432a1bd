//! Queues of waiters: the nodes, their memory, and the list under MCS and TP-MCS.

#[cfg(loom)]
pub mod checked;
pub mod list;
pub mod node;
#[cfg(not(loom))]
mod pool;

pub use node::{Node, NodeMemory};
