mod abstraction;
mod defects;
mod search;
