//! TAPIR: strictly serializable transactions over shards that IR replicates without a leader.

mod coordinator;
mod message;
mod node;
mod operation;
mod options;
mod record;
mod recovery;
mod replica;
mod shard;
mod topology;

pub use coordinator::Coordinator;
pub use message::{Evaluation, Message, Timer};
pub use node::Node;
pub use operation::{Decision, Invoked, Part, Prepare, Transactions, Vote};
pub use options::{Mutants, Options};
pub use record::Record;
pub use replica::{Decided, KeyedEffects, Replica};
pub use topology::Topology;
