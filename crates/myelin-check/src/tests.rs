mod convergence;
mod explained;
mod fixture;
mod histories;
mod plans;
mod records;
