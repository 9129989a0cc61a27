mod equality;
mod fixture;
mod held;
mod ladder;
mod policy;
mod topology;
