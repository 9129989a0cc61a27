mod fixture;
mod folding;
mod totality;
mod transitions;
