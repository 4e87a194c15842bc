//! `policy.node`: Rego policies for the agent, used by `src/os/policy` only.
//!
//! Each engine is a thread that runs one job at a time, so that a policy never blocks the event loop. A thread that
//! exceeds its memory, or that was given up, never runs again; only the process's end frees it.

mod limits;
mod node;
mod policy;
mod worker;

#[global_allocator]
static ALLOCATOR: limits::LimitedAllocator = limits::LimitedAllocator;
