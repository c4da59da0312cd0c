//! The client against a server that does exactly what each test says.

mod batching;
mod failover;
mod failures;
mod policies;
mod server;
