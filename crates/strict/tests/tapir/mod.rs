//! IR and TAPIR over a small deterministic network without disks: what is persisted is durable at once.

mod contention;
mod epochs;
mod expiry;
mod keysets;
mod kills;
mod merges;
mod mutants;
mod network;
mod observed;
mod orders;
mod paths;
mod pipelines;
mod random;
mod reads;
mod recovery;
mod scripts;
mod stamps;
mod survivor;
mod sync;
mod transfer;
mod views;
