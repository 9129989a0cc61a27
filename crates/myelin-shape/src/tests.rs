mod expansion;
mod ids;
mod limits;
mod round_trips;
mod strategies;
mod validation;
