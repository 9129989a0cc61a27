mod convergence;
mod fixture;
mod histories;
mod plans;
mod records;
