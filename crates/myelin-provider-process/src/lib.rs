//! The process provider: directories and process groups on this host as leases.
