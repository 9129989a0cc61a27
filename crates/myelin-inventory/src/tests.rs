//! Sweeps as text: what is listed and recorded goes in, classes and duties come out.

mod absence;
mod brakes;
mod classes;
mod collection;
mod fixture;
mod properties;
mod views;
