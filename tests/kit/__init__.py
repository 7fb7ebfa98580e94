"""The test kit: what tests of several parts share, and no test. Waits are in `eventually`, real servers in `nats_server` and
`nats_cluster`, simulated hosts in `hosts`, a world for each core in the module of its name."""
