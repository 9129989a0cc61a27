mod basics;
mod changes;
mod failures;
mod operators;
mod properties;
mod silence;
mod stuck;
mod world;
