//! Declare the cluster you want; myelin leases, boots, joins and keeps it so.
