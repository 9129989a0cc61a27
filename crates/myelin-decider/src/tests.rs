mod equality;
mod fixture;
mod held;
mod ladder;
mod planner;
mod policy;
mod topology;
