mod equality;
mod fixture;
mod ladder;
mod policy;
mod topology;
