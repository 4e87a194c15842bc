//! `policy.node`: Rego policies for the agent. `src/os/policy` is its only user.
//!
//! Every engine is a thread that takes one job at a time, so that a policy never stops the event loop. A thread that asks
//! for too much memory, or that was given up, never runs again; only the process's end removes it.

mod limits;
mod node;
mod policy;
mod worker;

#[global_allocator]
static ALLOCATOR: limits::LimitedAllocator = limits::LimitedAllocator;
