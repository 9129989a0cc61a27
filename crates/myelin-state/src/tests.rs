mod round_trips;
mod strategies;
mod vocabulary;
